package virtio

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/segment"
	"github.com/millrace/millrace/pmd/virtio/vring"
	"github.com/millrace/millrace/ring"
)

// Directions of a pair of rings, as they are numbered: to and from the driver.
const (
	toDriverRing = iota
	fromDriverRing
)

// maxMerge bounds the buffers of one packet: 64 KiB in buffers of 1 KiB. A driver with smaller ones gets no packets that long.
const maxMerge = 64

// BackendQueue is a pair of rings of a front end: a pmd.Driver. Rx brings what the driver sends. A packet is copied once each way, so the
// queue holds no frames.
type BackendQueue struct {
	dev  *Backend
	id   int
	pool *ring.Pool
	note notifier

	mu     sync.Mutex // the loop tries it, and the link's goroutine takes it to change what follows
	closed bool
	in     *vring.Device // nil while it does not run
	out    *vring.Device
	call   [2]int // eventfds by direction; -1: the driver polls
	mem    *packet.Arena
	spans  []span
	header int // bytes
	merge  bool
	takes  accepted // by the driver
	armed  bool     // the driver notifies of the next packet

	chain   vring.Chain
	chains  [maxMerge]vring.Chain
	cursor  writer
	run     vring.Run // of small packets, within one call
	written [vring.RunSize]uint32
	zeros   [vring.RunSize]uint32 // written to buffers that are read
	gone    packet.Batch          // frames that return to the pool
	cut     segment.Cutter        // a large packet that is being sent in segments
	big     []byte                // its bytes
	inCut   segment.Cutter        // the same of one that is being received, within one call
	inBig   []byte

	modes atomic.Pointer[string]
	count pmd.Counters
}

var (
	_ pmd.Driver  = (*BackendQueue)(nil)
	_ ring.Holder = (*BackendQueue)(nil)
)

func newBackendQueue(b *Backend, id int, pool *ring.Pool) (*BackendQueue, error) {
	q := &BackendQueue{dev: b, id: id, pool: pool, mem: pool.Arena().View(), call: [2]int{-1, -1}}
	text := "not connected"
	q.modes.Store(&text)
	return q, q.note.open()
}

// attach gives a ring to the queue, which is locked.
func (q *BackendQueue) attach(dir int, d *vring.Device, s *session, r *backRing) {
	if q.closed {
		return
	}
	if dir == fromDriverRing {
		q.in, q.armed = d, false
	} else {
		q.out = d
	}
	q.call[dir], q.spans = r.call, s.spans
	q.header, q.merge, q.takes = headerLen(s.features), s.features&featureMrgRxbuf != 0, toDriver(s.features)
	text := fmt.Sprintf("vhost-user, %s, %d descriptors, memory sealed: %v", describe(s.features), d.Size(), sealed(s.maps))
	q.modes.Store(&text)
}

// detach takes a ring from the queue, which is locked, and returns it; nil where there was none.
func (q *BackendQueue) detach(dir int) (d *vring.Device) {
	if dir == fromDriverRing {
		d, q.in = q.in, nil
	} else {
		d, q.out = q.out, nil
		q.cut.Stop()
	}
	q.call[dir] = -1
	return d
}

// watch replaces the kick file of a ring.
func (q *BackendQueue) watch(dir, old, fd int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if dir == fromDriverRing && !q.closed {
		q.note.watch(old, fd)
	}
}

// enter locks the queue for a call of the loop. busy means that the front end is changing the rings.
func (q *BackendQueue) enter(op string) (busy bool, err error) {
	if !q.mu.TryLock() {
		return true, nil
	}
	switch {
	case q.closed:
		err = pmd.ErrClosed
	case q.in == nil || q.out == nil:
		err = q.dev.link.down()
	default:
		return false, nil
	}
	q.mu.Unlock()
	return false, q.dev.cfg.fail(op, q.id, err, "")
}

// leave unlocks the queue. A fault in the guest's memory ends the connection: the rings are not used any more.
func (q *BackendQueue) leave(before bool) {
	debug.SetPanicOnFault(before)
	if r := recover(); r != nil {
		q.broken(faultOf(r, q.spans))
	}
	q.mu.Unlock()
}

// broken stops the queue because of what the guest did.
func (q *BackendQueue) broken(err error) {
	q.in, q.out = nil, nil
	q.cut.Stop()
	q.dev.link.hangUp(fmt.Errorf("%w: %w", ErrGuest, err))
}

// Rx implements pmd.Driver. Packets wait in the ring while there is no room or frame for them.
func (q *BackendQueue) Rx(now clock.Time, b *packet.Batch) (n int, err error) {
	if busy, err := q.enter("rx"); busy || err != nil {
		return 0, err
	}
	first := b.Len()
	defer func() { n = q.countRx(b, first) }()
	defer q.leave(catchFaults())
	b.Base = int64(now)
	q.poll(b, uint32(now), first)
	return 0, nil // the deferred function knows better
}

// countRx counts the packets of b from first on. After a fault the last packet may be incomplete: its frames are the pool's.
func (q *BackendQueue) countRx(b *packet.Batch, first int) int {
	whole := first + packet.Whole(b.D[first:], b.Len()-first)
	for _, d := range b.D[whole:] {
		q.pool.Put(d.Off)
	}
	b.D = b.D[:whole]
	q.count.Rx(b.D[first:])
	return whole - first
}

// poll receives, and has the driver notify of the next packet when there is none.
func (q *BackendQueue) poll(b *packet.Batch, stamp uint32, first int) {
	if q.cut.Active() {
		q.flush()
		q.publish(toDriverRing, q.out)
	}
	for q.in != nil {
		found := q.receiveAll(b, stamp)
		if q.in == nil {
			return
		}
		switch {
		case found:
			if q.armed {
				q.armed = false
				q.in.NeedNoNotify()
			}
			return
		case q.armed:
			if !q.note.drain() {
				return
			}
			// The notification came after the ring was looked at, or is of a packet that has been received.
			if !q.in.Pending() {
				return
			}
		default:
			q.armed = true
			if !q.in.WantNotify() {
				return
			}
		}
	}
}

// receiveAll receives packets while b has room, and reports whether there were any chains.
func (q *BackendQueue) receiveAll(b *packet.Batch, stamp uint32) (found bool) {
	// A guest that makes nothing but unusable chains available does not keep the loop.
	for budget := b.Room() + q.in.Size(); budget > 0 && b.Room() > 0; budget-- {
		if q.receiveRun(b, stamp) {
			found = true
			continue
		}
		m := q.in.Mark()
		ok, err := q.in.Take(&q.chain)
		if err != nil {
			q.publish(fromDriverRing, q.in)
			q.broken(err)
			return found
		}
		if !ok {
			break
		}
		found = true
		if !q.receive(b, stamp) {
			q.in.Rewind(m)
			break
		}
		q.in.Return(&q.chain, 0)
	}
	q.publish(fromDriverRing, q.in)
	return found
}

// publish makes what was returned visible, and calls the driver where it wants that.
func (q *BackendQueue) publish(dir int, d *vring.Device) {
	if d != nil && d.Publish() && q.call[dir] >= 0 {
		q.count.Wakeups.Add(1)
		signal(q.call[dir])
	}
}

// receive copies the packet of the chain to frames; false means that it has to wait. What is no packet is counted.
func (q *BackendQueue) receive(b *packet.Batch, stamp uint32) bool {
	c := &q.chain
	n := c.InLen() - q.header
	if c.Err != nil || len(c.Out) > 0 || n < 14 {
		q.count.RxInvalid.Add(1)
		return true
	}
	var h header
	var raw [maxHeader]byte
	gather(raw[:q.header], c.In, 0)
	if h = parseHeader(raw[:q.header]); !h.complete() {
		return q.receivePartial(b, stamp, &h, n)
	}
	most := q.dev.cfg.MTU + 14
	if n > most {
		var head [22]byte
		gather(head[:], c.In, q.header)
		most = limit(head[:], q.dev.cfg.MTU)
	}
	if n > most {
		q.count.RxInvalid.Add(1)
		return true
	}
	return q.fill(b, stamp, n, nil)
}

// fill copies the n bytes behind the header to frames and appends their descriptors; false means that there is no room. Where h is
// set, the packet leaves work to the device that sends it.
func (q *BackendQueue) fill(b *packet.Batch, stamp uint32, n int, h *header) bool {
	size := q.mem.FrameSize()
	frames := (q.dev.cfg.Headroom + n + size - 1) / size
	if frames > cap(b.D) {
		q.count.RxInvalid.Add(1)
		return true
	}
	if frames > b.Room() || frames > q.pool.Free() {
		return false
	}
	first, at, room := b.Len(), q.header, q.dev.cfg.Headroom
	for left := n; left > 0; {
		off, _ := q.pool.Get()
		// The packet is incomplete until all of it is copied: a fault meanwhile leaves what countRx takes away.
		d := packet.Desc{Off: off + uint32(room), Len: uint16(min(left, size-room)), Stamp: stamp, Flags: packet.FlagMore}
		b.Append(d)
		gather(q.mem.Bytes(&d), q.chain.In, at)
		at += int(d.Len)
		left -= int(d.Len)
		room = 0
	}
	b.D[len(b.D)-1].Flags = 0
	if h != nil {
		h.setOffload(q.mem, &b.D[first])
	}
	return true
}

// gather copies the bytes of pieces from offset skip on to dst, which they fill.
func gather(dst []byte, pieces [][]byte, skip int) {
	for _, p := range pieces {
		if skip >= len(p) {
			skip -= len(p)
			continue
		}
		n := copy(dst, p[skip:])
		if dst = dst[n:]; len(dst) == 0 {
			return
		}
		skip = 0
	}
}

// Info implements pmd.Driver.
func (q *BackendQueue) Info() pmd.Info {
	cfg := &q.dev.cfg
	return pmd.Info{
		Driver: "vhost", Device: cfg.Name(), Queue: q.id, MTU: cfg.MTU, MAC: cfg.MAC,
		Caps: pmd.CapPoll | pmd.CapMultiBuf | pmd.CapOffload | pmd.CapOffloadUDP,
		FD:   q.note.fd, Negotiated: *q.modes.Load(), Stats: q.count.Stats(),
	}
}

// Holds implements ring.Holder: a queue holds no frames between two calls.
func (q *BackendQueue) Holds(func(off uint32)) {}

// Close implements pmd.Driver. The device goes on with its other queues.
func (q *BackendQueue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		q.in, q.out = nil, nil
		q.cut.Stop()
		q.note.close()
	}
	return nil
}
