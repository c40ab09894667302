package link

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Limits of a striped link, in bytes.
const (
	fragment = piece    // into which messages are cut
	window   = 16 << 20 // that a rail has under way: an end that does not receive has at most so much of each rail to keep
)

// ErrNoRail is the error of a link whose rails have all failed.
var ErrNoRail = errors.New("collective: all rails to the peer have failed")

// Striped is a link over several connections, the rails. A message is cut into fragments, each of which goes by the rail that is
// free first. The receiver acknowledges a fragment when it is in its place. What a failed rail has not got acknowledged goes by
// the others once more, and the receiver drops what it has already: a fragment is reduced exactly once.
type Striped struct {
	rails []*rail

	mu      sync.Mutex
	changed sync.Cond // of what follows
	queue   []*outgoing
	serial  uint64 // of the last fragment
	posted  map[Key]*incoming
	early   map[Key][]*arrived
	low     uint64              // all fragments up to it have come
	seen    map[uint64]struct{} // those above low that have
	alive   int
	err     error
}

// rail is one connection.
type rail struct {
	conn     net.Conn
	failed   bool
	flying   map[uint64]*outgoing // sent, and not acknowledged
	inFlight int                  // their bytes
	acks     []uint64             // to send
	acking   bool                 // some are being written
}

// outgoing is a fragment that is not acknowledged.
type outgoing struct {
	head  Header
	bytes [][]byte
	size  int
	done  func(err error)
}

// incoming is a message that a Recv waits for.
type incoming struct {
	want *Header
	to   Sink
	have uint64
	some bool // a fragment has come, perhaps of no bytes
	busy int  // fragments that are being stored
	err  error
}

// arrived is a fragment that has come before its Recv.
type arrived struct {
	Header
	rail *rail
	data []byte
}

var _ Link = (*Striped)(nil)

// NewStriped returns a link over connections, which it takes.
func NewStriped(conns []net.Conn) *Striped {
	l := &Striped{posted: map[Key]*incoming{}, early: map[Key][]*arrived{}, seen: map[uint64]struct{}{}, alive: len(conns)}
	l.changed.L = &l.mu
	for _, c := range conns {
		r := &rail{conn: c, flying: map[uint64]*outgoing{}}
		l.rails = append(l.rails, r)
	}
	for _, r := range l.rails {
		go l.write(r)
		go l.read(r)
	}
	return l
}

// Alive returns the number of rails that have not failed.
func (l *Striped) Alive() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alive
}

// Send implements Link.
func (l *Striped) Send(h *Header, parts [][]byte, p *Pending) {
	total := int(h.Total)
	done := func(error) {}
	if total <= inline { // a copy is cheaper than to wait for the acknowledgement
		parts = [][]byte{slices.Concat(parts...)}
	} else {
		left := (total + fragment - 1) / fragment
		p.Add()
		done = func(err error) { // with mu
			if err != nil {
				p.fail(err)
			}
			if left--; left == 0 {
				p.Done(nil)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for off := 0; off == 0 || off < total; off += fragment {
		n := min(fragment, total-off)
		o := &outgoing{head: *h, size: n, done: done}
		o.head.Kind, o.head.Offset, o.head.Length = Data, uint64(off), uint64(n)
		o.bytes, parts = split(parts, n)
		if l.err != nil {
			if p.fail(l.err); total > inline {
				o.done(l.err)
			}
			continue
		}
		l.serial++
		o.head.Serial = l.serial
		l.queue = append(l.queue, o)
	}
	l.changed.Broadcast()
}

// split returns the first n bytes of parts, and the rest.
func split(parts [][]byte, n int) (first, rest [][]byte) {
	for n > 0 {
		k := min(n, len(parts[0]))
		first = append(first, parts[0][:k])
		n -= k
		if k < len(parts[0]) {
			return first, append([][]byte{parts[0][k:]}, parts[1:]...)
		}
		parts = parts[1:]
	}
	return first, parts
}

// next waits for what a rail has to write. ok is false when it has failed.
func (l *Striped) next(r *rail) (acks []uint64, o *outgoing, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if r.failed || l.err != nil {
			return nil, nil, false
		}
		if len(r.acks) > 0 {
			acks, r.acks, r.acking = r.acks, nil, true
		}
		if len(l.queue) > 0 && r.inFlight < window {
			o, l.queue = l.queue[0], l.queue[1:]
			r.flying[o.head.Serial] = o
			r.inFlight += o.size
		}
		if acks != nil || o != nil {
			return acks, o, true
		}
		l.changed.Wait()
	}
}

// write writes acknowledgements and fragments to a rail until it fails.
func (l *Striped) write(r *rail) {
	var head []byte
	for {
		acks, o, ok := l.next(r)
		if !ok {
			return
		}
		head = head[:0]
		put := func(h *Header) {
			head = append(head, make([]byte, HeaderSize)...)
			h.Put(head[len(head)-HeaderSize:])
		}
		for _, serial := range acks {
			put(&Header{Kind: Ack, Serial: serial})
		}
		var buffers net.Buffers
		if o != nil {
			put(&o.head)
			buffers = append(buffers, o.bytes...)
		}
		buffers = append(net.Buffers{head}, buffers...)
		if _, err := buffers.WriteTo(r.conn); err != nil {
			l.lose(r, err)
			return
		}
		if len(acks) > 0 {
			l.mu.Lock()
			r.acking = false
			l.changed.Broadcast() // Flush waits for it
			l.mu.Unlock()
		}
	}
}

// lose takes a rail out of use. Its fragments go to the others.
func (l *Striped) lose(r *rail, why error) {
	_ = r.conn.Close() // it has failed
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.failed {
		return
	}
	r.failed = true
	l.alive--
	again := make([]*outgoing, 0, len(r.flying))
	for _, o := range r.flying {
		again = append(again, o)
	}
	slices.SortFunc(again, func(a, b *outgoing) int { return int(a.head.Serial) - int(b.head.Serial) })
	l.queue = append(again, l.queue...)
	clear(r.flying)
	if l.alive == 0 {
		l.failLocked(fmt.Errorf("%w: %w", ErrNoRail, why))
	}
	l.changed.Broadcast()
}

// failLocked ends all calls.
func (l *Striped) failLocked(err error) {
	if l.err != nil {
		return
	}
	l.err = err
	for _, o := range l.queue {
		o.done(err)
	}
	l.queue = nil
	for _, r := range l.rails {
		for _, o := range r.flying {
			o.done(err)
		}
		clear(r.flying)
	}
	l.changed.Broadcast()
}

// read takes what comes by a rail until it fails.
func (l *Striped) read(r *rail) {
	in := NewSingle(r.conn) // for its buffer
	var head [HeaderSize]byte
	scratch := make([]byte, fragment)
	for {
		err := in.fill(head[:])
		if err != nil {
			l.lose(r, err)
			return
		}
		h, err := ParseHeader(head[:])
		if err == nil && h.Length > fragment {
			err = ErrHeader
		}
		if err != nil {
			l.Close(err)
			return
		}
		if h.Kind == Ack {
			l.acknowledged(r, h.Serial)
			continue
		}
		b := scratch[:h.Length]
		if err := in.fill(b); err != nil {
			l.lose(r, err)
			return
		}
		l.deliver(r, &h, b)
	}
}

// acknowledged ends a fragment, on the rail that has it now: the acknowledgement may come for one that has been sent again.
func (l *Striped) acknowledged(r *rail, serial uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range append([]*rail{r}, l.rails...) {
		if o := r.flying[serial]; o != nil {
			delete(r.flying, serial)
			r.inFlight -= o.size
			o.done(nil)
			l.changed.Broadcast()
			return
		}
	}
	for i, o := range l.queue { // to be sent again
		if o.head.Serial == serial {
			l.queue = slices.Delete(l.queue, i, i+1)
			o.done(nil)
			return
		}
	}
}

// first reports whether a fragment comes for the first time. With mu.
func (l *Striped) first(serial uint64) bool {
	if _, ok := l.seen[serial]; ok || serial <= l.low {
		return false
	}
	l.seen[serial] = struct{}{}
	for {
		if _, ok := l.seen[l.low+1]; !ok {
			return true
		}
		l.low++
		delete(l.seen, l.low)
	}
}

// acknowledge has a rail send an acknowledgement, or another one where it has failed. With mu.
func (l *Striped) acknowledge(r *rail, serial uint64) {
	if r.failed {
		for _, other := range l.rails {
			if !other.failed {
				r = other
			}
		}
	}
	r.acks = append(r.acks, serial)
	l.changed.Broadcast()
}

// deliver puts a fragment in its place, or keeps it.
func (l *Striped) deliver(r *rail, h *Header, b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.first(h.Serial) {
		l.acknowledge(r, h.Serial)
		return
	}
	in := l.posted[h.Key]
	if in == nil {
		l.early[h.Key] = append(l.early[h.Key], &arrived{*h, r, slices.Clone(b)})
		return
	}
	l.store(in, r, h, b)
}

// store gives a fragment to the sink of a message. With mu, which it leaves meanwhile.
func (l *Striped) store(in *incoming, r *rail, h *Header, b []byte) {
	if err := match(h, in.want); err != nil {
		in.err = err
		l.changed.Broadcast()
		return
	}
	if in.busy++; len(b) > 0 {
		l.mu.Unlock()
		in.to.Store(int(h.Offset), b)
		l.mu.Lock()
	}
	in.busy--
	in.have, in.some = in.have+h.Length, true
	l.acknowledge(r, h.Serial)
}

// Recv implements Link.
func (l *Striped) Recv(want *Header, to Sink) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := &incoming{want: want, to: to}
	l.posted[want.Key] = in
	defer delete(l.posted, want.Key)
	early := l.early[want.Key]
	delete(l.early, want.Key)
	for _, a := range early {
		l.store(in, a.rail, &a.Header, a.data)
	}
	for {
		switch {
		case in.busy > 0: // the sink is in use
		case in.err != nil:
			return in.err
		case in.some && in.have == want.Total:
			return nil
		case l.err != nil:
			return l.err
		}
		l.changed.Wait()
	}
}

// Flush implements Link: it waits until all is acknowledged.
func (l *Striped) Flush(most time.Duration) {
	expired := false
	timer := time.AfterFunc(most, func() {
		l.mu.Lock()
		expired = true
		l.changed.Broadcast()
		l.mu.Unlock()
	})
	defer timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !expired && l.err == nil && l.pending() {
		l.changed.Wait()
	}
}

// pending reports whether something is not acknowledged, or an acknowledgement not written. With mu.
func (l *Striped) pending() bool {
	for _, r := range l.rails {
		if !r.failed && (len(r.flying) > 0 || len(r.acks) > 0 || r.acking) {
			return true
		}
	}
	return len(l.queue) > 0
}

// Close implements Link.
func (l *Striped) Close(err error) {
	l.mu.Lock()
	l.failLocked(err)
	l.mu.Unlock()
	for _, r := range l.rails {
		_ = r.conn.Close() // the error of the link is err
	}
}
