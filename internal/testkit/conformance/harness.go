package conformance

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// timeout bounds how long a test waits for a condition. It is no measure of speed.
const timeout = 10 * time.Second

// harness is one open queue under test, with the packets that it has received and sent so far.
type harness struct {
	testing.TB
	Rig
	s     *Subject
	arena *ring.Arena
	pool  *ring.Pool
	rnd   *rand.Rand
	start time.Time

	inbound  [][]byte // what the far end sends, in its order
	sent     int      // of inbound
	extra    int      // packets sent to try the wire
	got      arrivals // by Rx
	far      arrivals // at the far end
	number   uint32   // of the next packet of Tx
	tx       pmd.Stats
	closed   bool
	scratch  []byte
	before   []packet.Desc
	received *packet.Batch
}

// open opens a queue with a pool of so many frames, for a test in which the far end sends so many
// packets of the sizes that size returns.
func open(t testing.TB, s *Subject, frames, inbound int, size func(i int) int) *harness {
	t.Helper()
	const others = 4096 // frames for the far end
	frames += s.Lends
	if s.Resident {
		frames += inbound
	}
	b := &harness{TB: t, s: s, rnd: rand.New(rand.NewPCG(1, 2)), start: time.Now()}
	var err error
	b.arena, err = ring.NewArena(ring.ArenaConfig{Frames: frames + others, FrameSize: s.frameSize(), Huge: ring.HugeOff, Shared: s.Shared})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.arena.Close() })
	if b.pool, err = b.arena.Cut(frames); err != nil {
		t.Fatal(err)
	}
	for i := range inbound {
		b.inbound = append(b.inbound, newPacket(uint32(i), size(i)))
	}
	b.Rig = s.Open(t, Setup{Arena: b.arena, Pool: b.pool, Inbound: b.inbound})
	b.received = b.batch(packet.BatchSize)
	t.Cleanup(b.finish)
	if b.Send != nil {
		b.waitForLink()
	} else {
		b.sent = inbound
	}
	return b
}

// fixed returns a size function: every packet has n bytes.
func fixed(n int) func(int) int { return func(int) int { return n } }

// mixed returns sizes from the shortest to the longest, both included.
func (s *Subject) mixed(i int) int {
	room := s.longest() - shortest
	return shortest + i*331%(room+1)
}

func (b *harness) batch(n int) *packet.Batch { return packet.NewBatch(b.arena.View(), n) }

func (b *harness) now() clock.Time { return clock.Time(time.Since(b.start)) + 1 }

// eventually polls until done, and fails with what after timeout.
func (b *harness) eventually(what string, done func() bool) {
	b.Helper()
	for end := time.Now().Add(timeout); !done(); {
		if time.Now().After(end) {
			b.Fatalf("%s: not within %v; received %d, the far end %d; %+v", what, timeout, b.got.n, b.far.n, b.Queue.Info().Stats)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// waitForLink sends until a packet arrives: a link that has just come up may lose the first ones.
func (b *harness) waitForLink() {
	b.Helper()
	b.got.helloSeen = false
	p := newPacket(hello, shortest)
	b.eventually("the first packet to arrive", func() bool {
		if b.Send(p) {
			b.extra++
		}
		for try := 0; try < 20 && !b.got.helloSeen; try++ {
			b.receive()
			time.Sleep(100 * time.Microsecond)
		}
		return b.got.helloSeen
	})
}

// offer makes the far end send the next n packets and returns how many the link took.
func (b *harness) offer(n int) int {
	if b.Send == nil {
		return n
	}
	for i := range n {
		if !b.Send(b.inbound[b.sent]) {
			return i
		}
		b.sent++
	}
	return n
}

// rx calls Rx once and checks its contract.
func (b *harness) rx(to *packet.Batch) int {
	b.Helper()
	b.before = append(b.before[:0], to.D...)
	now := b.now()
	n, err := b.Queue.Rx(now, to)
	if err != nil && (b.Send != nil || !errors.Is(err, io.EOF)) {
		b.Fatalf("Rx: %v", err)
	}
	if err != nil && n != 0 {
		b.Fatalf("Rx = %d, %v; an error comes alone", n, err)
	}
	b.checkRx(to, n, now)
	return n
}

func (b *harness) checkRx(to *packet.Batch, n int, now clock.Time) {
	b.Helper()
	had := len(b.before)
	switch {
	case to.Len() != had+n || to.Len() > cap(to.D):
		b.Fatalf("Rx = %d into a batch that had %d of %d and has %d", n, had, cap(to.D), to.Len())
	case !slices.Equal(to.D[:had], b.before):
		b.Fatal("Rx changed what the batch held before")
	case n == 0:
		return
	case to.Base != int64(now):
		b.Fatalf("Base is %d at %d", to.Base, now)
	case to.D[to.Len()-1].Flags.Has(packet.FlagMore):
		b.Fatal("Rx ends within a packet")
	}
	b.scratch = b.scratch[:0]
	for i := had; i < to.Len(); i++ {
		d := &to.D[i]
		if at := to.Time(i); at > int64(now) || at < 0 {
			b.Fatalf("a packet that arrived at %d, received at %d", at, now)
		}
		if d.Len == 0 || b.arena.Tailroom(d) < 0 {
			b.Fatalf("a descriptor of %d bytes at %d of a frame of %d", d.Len, b.arena.Headroom(d), b.arena.FrameSize())
		}
		knows := packet.FlagMore
		if b.s.Caps&pmd.CapRxChecksum != 0 {
			knows |= packet.FlagL4ChecksumOK
		}
		if d.Flags&^knows != 0 || d.Verdict != 0 {
			b.Fatalf("a driver says more than it knows: %+v", *d)
		}
		b.scratch = append(b.scratch, to.Bytes(i)...)
		if !d.Flags.Has(packet.FlagMore) {
			b.got.add(b, b.scratch)
			b.scratch = b.scratch[:0]
		}
	}
}

// release returns a batch to the driver or the pool.
func (b *harness) release(from *packet.Batch) {
	if b.Release != nil {
		b.Release(from)
	} else {
		b.pool.PutBatch(from)
	}
}

// receive calls Rx once and releases the frames.
func (b *harness) receive() int {
	b.Helper()
	n := b.rx(b.received)
	b.release(b.received)
	return n
}

// receiveAll receives until so many packets have arrived since the start.
func (b *harness) receiveAll(total int) {
	b.Helper()
	b.eventually("packets to be received", func() bool {
		for b.receive() > 0 {
		}
		return b.got.n >= total
	})
}

// fill puts one packet into frames of the pool, as many as it takes; false where there are too few.
func (b *harness) fill(to *packet.Batch, p []byte) bool {
	size := b.arena.FrameSize()
	need := max(1, (len(p)+size-1)/size)
	if need > b.pool.Free() || need > to.Room() {
		return false
	}
	for ; need > 0; need-- {
		off, _ := b.pool.Get()
		d := packet.Desc{Off: off, Len: uint16(min(len(p), size))}
		copy(b.arena.Bytes(&d), p)
		if p = p[d.Len:]; len(p) > 0 {
			d.Flags = packet.FlagMore
		}
		to.Append(d)
	}
	return true
}

// add puts the next packet of a size into the batch.
func (b *harness) add(to *packet.Batch, size int) bool {
	if !b.fill(to, newPacket(b.number, size)) {
		return false
	}
	b.number++
	return true
}

// send calls Tx once, checks its contract and keeps the rest in the batch.
func (b *harness) send(from *packet.Batch) int {
	b.Helper()
	b.before = append(b.before[:0], from.D...)
	n, err := b.Queue.Tx(b.now(), from)
	if err != nil {
		b.Fatalf("Tx = %d, %v", n, err)
	}
	switch {
	case n < 0 || n > len(b.before) || from.Len() != len(b.before):
		b.Fatalf("Tx = %d of %d, and the batch has %d", n, len(b.before), from.Len())
	case n > 0 && b.before[n-1].Flags.Has(packet.FlagMore):
		b.Fatal("Tx ends within a packet")
	case !slices.Equal(from.D[n:], b.before[n:]):
		b.Fatal("Tx changed what it left to the caller")
	}
	packets, size := packet.Count(b.before[:n])
	b.tx.TxPackets += packets
	b.tx.TxBytes += size
	from.Consume(n)
	return n
}

// sendAll sends the batch while the far end receives.
func (b *harness) sendAll(from *packet.Batch) {
	b.Helper()
	b.eventually("Tx to take all", func() bool {
		b.send(from)
		b.receiveFar()
		b.receive() // drivers finish what they have taken in Rx as well
		return from.Len() == 0
	})
}

// receiveFar receives what has arrived at the far end.
func (b *harness) receiveFar() {
	b.Helper()
	if b.AfterClose && !b.closed {
		return
	}
	for p := b.Recv(); p != nil; p = b.Recv() {
		b.far.add(b, p)
	}
}

// waitFarTotal waits until the far end has received so many packets.
func (b *harness) waitFarTotal(total int) {
	b.Helper()
	if b.AfterClose {
		b.close()
	}
	b.eventually("packets to arrive", func() bool {
		if !b.closed {
			b.receive()
		}
		b.receiveFar()
		return b.far.n >= total
	})
}

// audit checks that every frame has one owner.
func (b *harness) audit(batches ...*packet.Batch) {
	b.Helper()
	holders := append([]ring.Holder{b.pool, b.Queue.(ring.Holder)}, b.Holders...)
	resident := map[uint32]bool{}
	if b.s.Resident {
		b.Queue.(ring.Holder).Holds(func(off uint32) { resident[b.arena.Frame(off)] = true })
	}
	for _, batch := range batches {
		holders = append(holders, held{batch, resident})
	}
	if err := ring.Audit(b.arena, holders...); err != nil {
		b.Fatal(err)
	}
}

// held makes a batch a holder of its frames, unless the queue still owns them (Subject.Resident).
type held struct {
	*packet.Batch
	resident map[uint32]bool
}

func (h held) Holds(visit func(off uint32)) {
	for i := range h.D {
		if off := h.D[i].Off; !h.resident[h.Arena.Frame(off)] {
			visit(off)
		}
	}
}

// close closes the queue twice; all frames must be returned.
func (b *harness) close() {
	b.Helper()
	for range 2 {
		if err := b.Queue.Close(); err != nil {
			b.Fatalf("Close: %v", err)
		}
	}
	b.closed = true
	if b.pool.Free() != b.pool.Size() {
		b.Errorf("the pool has %d of %d frames after Close", b.pool.Free(), b.pool.Size())
	}
}

// finish ends a test: the counters are those of the packets that passed, and nothing is left behind.
func (b *harness) finish() {
	if b.Failed() {
		_ = b.Queue.Close()
		return
	}
	b.audit()
	b.checkCounters()
	if !b.closed {
		b.close()
	}
	b.audit()
	b.checkCounters()
}

// checkCounters compares Stats with the results of Rx and Tx.
func (b *harness) checkCounters() {
	b.Helper()
	s := b.Queue.Info().Stats
	if s.RxPackets != b.got.all || s.RxBytes != b.got.bytes {
		b.Errorf("Stats: %d packets, %d bytes received; Rx brought %d, %d", s.RxPackets, s.RxBytes, b.got.all, b.got.bytes)
	}
	if s.TxPackets != b.tx.TxPackets || s.TxBytes != b.tx.TxBytes {
		b.Errorf("Stats: %d packets, %d bytes sent; Tx took %d, %d", s.TxPackets, s.TxBytes, b.tx.TxPackets, b.tx.TxBytes)
	}
}

// lost is what the link lost on the way to the queue.
func (b *harness) lost() uint64 {
	if b.Lost == nil {
		return 0
	}
	return b.Lost()
}
