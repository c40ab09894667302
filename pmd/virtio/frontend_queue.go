package virtio

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/segment"
	"github.com/millrace/millrace/pmd/virtio/vring"
	"github.com/millrace/millrace/ring"
)

// FrontendQueue is a pair of rings that a back end serves: a pmd.Driver. The frames of both rings are the back end's to read and write; it
// has as many free ones as the receive ring has descriptors.
type FrontendQueue struct {
	dev  *Frontend
	id   int
	pool *ring.Pool
	note notifier

	place      [2][]byte // of the rings, in shared memory: to the driver, from it
	kick, call [2]int    // eventfds, the same for all connections

	mu     sync.Mutex // the loop tries it, and the link's goroutine takes it to change what follows
	closed bool
	in     *vring.Driver // nil while there is no back end
	out    *vring.Driver
	mem    *packet.Arena
	slots  []byte // headers that do not fit in front of their packets
	header int
	merge  bool
	takes  accepted // by the back end
	armed  bool     // the back end calls for the next packet
	lost   []uint32 // frames of rings that are no more: they are the pool's when the loop comes

	fresh [2]*vring.Driver // of the connection that is being made
	items []vring.Item
	done  []uint32
	cut   segment.Cutter // a large packet that is being sent in segments
	big   []byte
	inCut segment.Cutter // the same of one that is being received, within one call
	inBig []byte

	modes atomic.Pointer[string]
	count pmd.Counters
}

var _ ring.Holder = (*FrontendQueue)(nil)

// open makes the files of the queue.
func (q *FrontendQueue) open() (err error) {
	q.done, q.items = make([]uint32, 0, 64), make([]vring.Item, 0, 64)
	q.kick, q.call, q.note.fd = [2]int{-1, -1}, [2]int{-1, -1}, -1
	for dir := range q.place {
		if q.kick[dir], err = newEventfd(); err != nil {
			return err
		}
		if q.call[dir], err = newEventfd(); err != nil {
			return err
		}
	}
	if err = q.note.open(); err == nil {
		q.note.watch(-1, q.call[toDriverRing])
	}
	return err
}

// prepare makes empty rings for a connection.
func (q *FrontendQueue) prepare(features uint64) error {
	cfg := vring.Config{Size: q.dev.cfg.Ring, Packed: features&featurePacked != 0, EventIdx: features&featureEventIdx != 0}
	desc, avail, used := vring.Layout(cfg.Size, cfg.Packed)
	for dir, mem := range q.place {
		clear(mem)
		q.fresh[dir] = vring.NewDriver(cfg, mem[:desc], mem[desc:][:avail], mem[desc+avail:][:used])
	}
	q.slots = q.place[fromDriverRing][len(q.place[fromDriverRing])-cfg.Size*headerSlot:]
	return nil
}

// attach gives the rings of prepare to the loop.
func (q *FrontendQueue) attach(features uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.in, q.out, q.armed = q.fresh[toDriverRing], q.fresh[fromDriverRing], false
	q.out.NeedNoCall()
	q.header, q.merge, q.takes = headerLen(features), features&featureMrgRxbuf != 0, toDevice(features)
	text := fmt.Sprintf("virtio-user, %s, %d descriptors", describe(features), q.dev.cfg.Ring)
	q.modes.Store(&text)
}

// detach takes the rings away: the back end is gone.
func (q *FrontendQueue) detach() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.in != nil {
		q.lost = q.out.Reclaim(q.in.Reclaim(q.lost))
		q.in, q.out = nil, nil
	}
	q.cut.Stop()
}

// enter locks the queue for a call of the loop; see BackendQueue.
func (q *FrontendQueue) enter(op string) (busy bool, err error) {
	if !q.mu.TryLock() {
		return true, nil
	}
	for _, off := range q.lost {
		q.pool.Put(off)
	}
	q.lost = q.lost[:0]
	switch {
	case q.closed || q.dev.closing.Load():
		err = pmd.ErrClosed
	case q.in == nil:
		err = q.dev.link.down()
	default:
		return false, nil
	}
	q.mu.Unlock()
	return false, q.dev.cfg.fail(op, q.id, err, "")
}

// broken stops the queue because of what the back end did.
func (q *FrontendQueue) broken(err error) {
	q.lost = q.out.Reclaim(q.in.Reclaim(q.lost))
	q.in, q.out = nil, nil
	q.cut.Stop()
	q.dev.link.hangUp(fmt.Errorf("%w: %w", ErrGuest, err))
}

// Rx implements pmd.Driver. Packets wait in the ring while there is no room for them.
func (q *FrontendQueue) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if busy, err := q.enter("rx"); busy || err != nil {
		return 0, err
	}
	defer q.mu.Unlock()
	b.Base = int64(now)
	first := b.Len()
	if !q.reclaim() {
		return 0, nil
	}
	if q.cut.Active() {
		q.flush()
		q.publish()
	}
	q.poll(b, uint32(now))
	n := b.Len() - first
	q.count.Rx(b.D[first:])
	return n, nil
}

// poll receives, gives the ring free frames, and has the back end call for the next packet when there is none.
func (q *FrontendQueue) poll(b *packet.Batch, stamp uint32) {
	for q.in != nil {
		found := q.receiveAll(b, stamp)
		if q.in == nil {
			return
		}
		q.refill()
		switch {
		case found:
			if q.armed {
				q.armed = false
				q.in.NeedNoCall()
			}
			return
		case q.armed:
			if !q.note.drain() || !q.in.Pending() {
				return
			}
		default:
			q.armed = true
			if !q.in.WantCall() {
				return
			}
		}
		if b.Room() == 0 {
			return
		}
	}
}

// refill gives the back end free frames: each has room for the header in front of where a packet begins.
func (q *FrontendQueue) refill() {
	n := min(q.in.Free(), q.pool.Free())
	if n < min(q.dev.cfg.Ring/8, q.in.Free()) && q.in.Free() < q.dev.cfg.Ring/2 {
		return // a few at a time cost more than they bring
	}
	start := uint32(q.dev.cfg.Headroom - q.header)
	size := uint32(q.mem.FrameSize()) - start
	for _, off := range q.pool.GetBatch(n) {
		item := [1]vring.Item{{Addr: arenaBase + uint64(off+start), Len: size, Frame: off}}
		q.in.Add(item[:], true)
	}
	if n > 0 && q.in.Publish() {
		q.count.Wakeups.Add(1)
		signal(q.kick[toDriverRing])
	}
}

// receiveAll receives packets while b has room, and reports whether there were any.
func (q *FrontendQueue) receiveAll(b *packet.Batch, stamp uint32) (found bool) {
	for b.Room() > 0 && q.in != nil {
		head, n, ok, err := q.in.Used()
		if err != nil {
			q.broken(err)
			return found
		}
		if !ok || !q.receive(b, stamp, head, n) {
			return found
		}
		found = true
	}
	return found
}

var errBuffers = errors.New("a packet has more buffers than were returned, or bytes than they have")

// receive appends the packet that begins in the chain head, into which the back end says that it wrote n bytes; false means that b has no
// room. The frames that hold it are the caller's from then on.
func (q *FrontendQueue) receive(b *packet.Batch, stamp uint32, head uint16, n uint32) bool {
	frame := q.in.Frame(head)
	h := parseHeader(q.mem.Mem[frame+uint32(q.dev.cfg.Headroom-q.header):][:q.header])
	frames := 1
	if q.merge {
		frames = int(h.buffers)
	}
	if frames > b.Room() && frames <= cap(b.D) {
		return false
	}
	if !h.complete() && h.gso != packet.GSONone && !q.roomForLarge(b) {
		return false
	}
	first, total := b.Len(), 0
	for i := range max(1, frames) {
		if i > 0 {
			var ok bool
			var err error
			if head, n, ok, err = q.in.Used(); err != nil || !ok {
				q.discard(b, first)
				q.broken(errors.Join(errBuffers, err))
				return true
			}
		}
		if n > q.in.Len(head) || i == 0 && int(n) < q.header || i > 0 && n == 0 {
			q.discard(b, first)
			q.broken(errBuffers)
			return true
		}
		off := q.in.Take(head, q.done[:0])[0]
		d := packet.Desc{Off: off + uint32(q.dev.cfg.Headroom-q.header), Len: uint16(n), Stamp: stamp, Flags: packet.FlagMore}
		if i == 0 {
			d.Off, d.Len = d.Off+uint32(q.header), d.Len-uint16(q.header)
		}
		if i == frames-1 {
			d.Flags = 0
		}
		total += int(d.Len)
		if b.Room() == 0 { // longer than any batch of this size
			q.pool.Put(off)
			continue
		}
		b.Append(d)
	}
	q.finish(b, first, &h, frames, total)
	return true
}

// discard returns the frames of b from first on to the pool.
func (q *FrontendQueue) discard(b *packet.Batch, first int) {
	for _, d := range b.D[first:] {
		q.pool.Put(d.Off)
	}
	b.D = b.D[:first]
}

// finish checks the packet of b from first on, and does the work that it leaves to the device.
func (q *FrontendQueue) finish(b *packet.Batch, first int, h *header, frames, total int) {
	d := b.D[first:]
	switch {
	case frames < 1 || len(d) < frames || d[0].Len < 14 || total > maxLarge,
		h.gso == packet.GSONone && total > q.dev.cfg.MTU+14 && total > limit(q.mem.Bytes(&d[0]), q.dev.cfg.MTU),
		h.gso == packet.GSONone && !h.complete() && !completeChecksum(q.mem, d, h):
		q.count.RxInvalid.Add(1)
		q.discard(b, first)
	case h.gso != packet.GSONone:
		q.finishLarge(b, first, h)
	}
}

// Info implements pmd.Driver.
func (q *FrontendQueue) Info() pmd.Info {
	cfg := &q.dev.cfg
	return pmd.Info{
		Driver: "virtio", Device: cfg.Name(), Queue: q.id, MTU: cfg.MTU, MAC: cfg.MAC,
		Caps: pmd.CapPoll | pmd.CapMultiBuf | pmd.CapZeroCopy | pmd.CapOffload | pmd.CapOffloadUDP,
		FD:   q.note.fd, Negotiated: *q.modes.Load(), Stats: q.count.Stats(),
	}
}

// Holds implements ring.Holder: the frames in both rings.
func (q *FrontendQueue) Holds(visit func(off uint32)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, off := range q.lost {
		visit(off)
	}
	if q.in != nil {
		q.in.Frames(visit)
		q.out.Frames(visit)
	}
}

// Close implements pmd.Driver. It stops the device, whose other queues return ErrClosed from then on: the back end has to stop
// before frames have another owner.
func (q *FrontendQueue) Close() error {
	err := q.dev.stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return err
	}
	q.closed = true
	if q.in != nil {
		q.lost = q.out.Reclaim(q.in.Reclaim(q.lost))
		q.in, q.out = nil, nil
	}
	for _, off := range q.lost {
		q.pool.Put(off)
	}
	q.lost = nil
	for _, fd := range []int{q.kick[0], q.kick[1], q.call[0], q.call[1], q.note.fd} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	return err
}
