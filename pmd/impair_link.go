package pmd

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// defaultReorderHold is long enough for others to overtake at 1000 packets a second and more.
const defaultReorderHold = time.Millisecond

// ImpairStats counts the packets of one direction since the wrapper was made. The sum is exact:
//
//	Packets + Duplicated = Passed + LostRandom + LostBurst + LostQueue + LostMTU + Discarded + held now
type ImpairStats struct {
	Packets    uint64 // received or sent, before impairment
	Passed     uint64 // after it
	LostRandom uint64 // by the word loss
	LostBurst  uint64 // by the word burst
	LostQueue  uint64 // by the word queue
	LostMTU    uint64 // by the word mtu, and packets of more frames than may be held or than a batch holds
	Discarded  uint64 // held when the wrapper was closed
	Duplicated uint64 // copies made
	Uncopied   uint64 // copies not made because no frame was free
	Corrupted  uint64
	Marked     uint64 // with Congestion Experienced
	Reordered  uint64 // held back for others to overtake
}

// Lost returns the packets that did not arrive.
func (c ImpairStats) Lost() uint64 {
	return c.LostRandom + c.LostBurst + c.LostQueue + c.LostMTU + c.Discarded
}

// impairCount is an ImpairStats while it runs: one loop adds, any goroutine loads.
type impairCount struct {
	packets, passed, random, burst, queue, mtu, discarded atomic.Uint64
	duplicated, uncopied, corrupted, marked, reordered    atomic.Uint64
	tooLong                                               atomic.Uint64 // of mtu: received, and no batch holds it
}

func (c *impairCount) load() ImpairStats {
	return ImpairStats{
		Packets: c.packets.Load(), Passed: c.passed.Load(),
		LostRandom: c.random.Load(), LostBurst: c.burst.Load(), LostQueue: c.queue.Load(),
		LostMTU: c.mtu.Load(), Discarded: c.discarded.Load(),
		Duplicated: c.duplicated.Load(), Uncopied: c.uncopied.Load(),
		Corrupted: c.corrupted.Load(), Marked: c.marked.Load(), Reordered: c.reordered.Load(),
	}
}

// link is one direction of an Impair wrapper.
type link struct {
	Impairment
	loss, dup, corrupt, ce, reorder  Probability
	toBad, toGood, lostBad, lostGood Probability

	arena  *packet.Arena
	pool   *ring.Pool
	limit  int // frames that may be held
	random *RandomSource
	bad    bool       // the state of the Gilbert-Elliott model
	last   clock.Time // arrival of the packet before
	wire   Serializer
	held   *heap
	count  impairCount
}

// newLink returns a link that holds at most limit frames of pool.
func newLink(d Impairment, pool *ring.Pool, limit int, random *RandomSource) *link {
	if d.CorruptBits == 0 {
		d.CorruptBits = 1
	}
	if d.ReorderHold == 0 {
		d.ReorderHold = defaultReorderHold
	}
	return &link{
		Impairment: d,
		loss:       NewProbability(d.Loss), dup: NewProbability(d.Dup), corrupt: NewProbability(d.Corrupt),
		ce: NewProbability(d.CE), reorder: NewProbability(d.Reorder),
		toBad: NewProbability(d.Burst.Start), toGood: NewProbability(d.Burst.End),
		lostBad: NewProbability(d.Burst.LostBad), lostGood: NewProbability(d.Burst.LostGood),
		arena: pool.Arena().View(), pool: pool, limit: limit, random: random,
		wire: Serializer{Rate: uint64(d.Rate), Queue: d.Queue, waiting: make([]queuedPacket, 0, limit)},
		held: newHeap(limit),
	}
}

// room returns how many descriptors the link takes now.
func (l *link) room() int { return max(0, l.limit-l.held.frames) }

// admit takes the packets of d. The last descriptor ends a packet.
func (l *link) admit(now clock.Time, d []packet.Desc) {
	for len(d) > 0 {
		n := packet.Chain(d)
		l.admitPacket(now, d[:n])
		d = d[n:]
	}
}

// admitPacket takes one packet of descriptors d and applies the words of the profile in their order.
func (l *link) admitPacket(now clock.Time, d []packet.Desc) {
	l.count.packets.Add(1)
	switch {
	case l.MTU != 0 && l.networkLen(d) > l.MTU || len(d) > l.limit:
		l.drop(d, &l.count.mtu)
	case l.random.Sample(CauseLoss, l.loss):
		l.drop(d, &l.count.random)
	case l.burstLoss():
		l.drop(d, &l.count.burst)
	default:
		if l.random.Sample(CauseDup, l.dup) {
			l.duplicate(now, d)
			return
		}
		l.transmit(now, d)
	}
}

// drop gives the frames of a packet to the pool and counts it in why.
func (l *link) drop(d []packet.Desc, why *atomic.Uint64) {
	why.Add(1)
	for i := range d {
		l.pool.Put(d[i].Off)
	}
}

// networkLen returns the bytes of a packet from the network header on, as it is on the wire: of one that the device cuts those
// of its longest segment.
func (l *link) networkLen(d []packet.Desc) int {
	_, bytes := packet.Count(d)
	_, off, _ := wire.Network(l.arena.Bytes(&d[0]))
	n := int(bytes)
	if d[0].Flags.Has(packet.FlagOffload) {
		if o := l.arena.Offload(&d[0]); o.GSO != packet.GSONone {
			n = min(n, int(o.HeadersEnd)-l.arena.Headroom(&d[0])+int(o.SegmentSize))
		}
	}
	return n - off
}

// burstLoss advances the Gilbert-Elliott model by one packet and reports whether that is lost: two states
// with a loss probability each (Elliott, 1963), because losses on real links come in bursts, which
// retransmission and FEC meet differently from independent ones.
func (l *link) burstLoss() bool {
	if l.bad {
		l.bad = !l.random.Sample(CauseBurst, l.toGood)
	} else {
		l.bad = l.random.Sample(CauseBurst, l.toBad)
	}
	if l.bad {
		return l.random.Sample(CauseBurstLoss, l.lostBad)
	}
	return l.random.Sample(CauseBurstLoss, l.lostGood)
}

// maxCopy is the largest packet, in descriptors, that is duplicated: 64 KiB in frames of 2 KiB.
const maxCopy = 33

// duplicate sends a packet and a copy of it in frames of the pool. A copy for which no frame is free is
// counted and not made: waiting for one would delay the original.
func (l *link) duplicate(now clock.Time, d []packet.Desc) {
	if len(d) > maxCopy || l.pool.Free() < len(d) || l.room() < 2*len(d) {
		l.count.uncopied.Add(1)
		l.transmit(now, d)
		return
	}
	var buf [maxCopy]packet.Desc
	to := buf[:len(d)]
	for i := range d {
		off, _ := l.pool.Get()
		to[i] = d[i]
		to[i].Off = off + uint32(l.arena.Headroom(&d[i])) // the copy may grow in front as the original may
		copy(l.arena.Bytes(&to[i]), l.arena.Bytes(&d[i]))
	}
	l.count.duplicated.Add(1)
	l.transmit(now, d)
	l.transmit(now, to)
}

// transmit corrupts and marks a packet that was not lost, serializes it and holds it until it arrives.
func (l *link) transmit(now clock.Time, d []packet.Desc) {
	if l.random.Sample(CauseCorrupt, l.corrupt) {
		l.flip(d)
	}
	if l.ce != (Probability{}) && l.random.Sample(CauseCE, l.ce) && markCE(l.arena.Bytes(&d[0])) {
		l.count.marked.Add(1)
	}
	left := now
	if l.Rate != 0 {
		_, bytes := packet.Count(d)
		var ok bool
		if left, ok = l.wire.Send(now, int(bytes)); !ok {
			l.drop(d, &l.count.queue)
			return
		}
	}
	l.held.push(l.arrival(left), d)
}

// arrival returns when a packet that left at the given time arrives. A packet held for reordering does not
// delay the ones behind it in a FIFO, or it could not be overtaken.
func (l *link) arrival(left clock.Time) clock.Time {
	due := left.Add(max(0, l.Delay+l.random.Jitter(l.Jitter, l.Shape)))
	if l.FIFO {
		due = max(due, l.last)
	}
	l.last = due
	if l.random.Sample(CauseReorder, l.reorder) {
		l.count.reordered.Add(1)
		due = due.Add(l.ReorderHold)
	}
	return due
}

// maxCorruptBits bounds the list of bits that flip keeps on the stack.
const maxCorruptBits = 64

// flip inverts CorruptBits different bits of the packet, or all of a shorter one. Different, because two
// flips of one bit cancel out and the packet would count as corrupted.
func (l *link) flip(d []packet.Desc) {
	_, bytes := packet.Count(d)
	total := bytes * 8
	if total == 0 {
		return
	}
	l.count.corrupted.Add(1)
	var done [maxCorruptBits]uint64
	for i := range min(uint64(l.CorruptBits), total) {
		bit := l.random.Uint64N(CauseBits, total)
		for slices.Contains(done[:i], bit) {
			bit = (bit + 1) % total
		}
		done[i] = bit
		l.flipBit(d, bit)
	}
}

// flipBit inverts a bit of the packet, counted over all of its descriptors.
func (l *link) flipBit(d []packet.Desc, bit uint64) {
	for i := range d {
		if n := uint64(d[i].Len) * 8; bit >= n {
			bit -= n
			continue
		}
		l.arena.Bytes(&d[i])[bit/8] ^= 1 << (bit % 8)
		return
	}
}

// markCE sets Congestion Experienced in an ECN-capable IPv4 or IPv6 packet behind Ethernet and its
// tags (RFC 3168 5, 23.1) and reports whether it did. A packet that says Not-ECT, or CE already, is
// left as it is.
func markCE(b []byte) bool {
	etherType, off, ok := wire.Network(b)
	if !ok {
		return false
	}
	switch p := b[off:]; etherType {
	case wire.EtherTypeIPv4:
		return wire.IPv4(p).ValidHeader() && wire.IPv4(p).MarkCE()
	case wire.EtherTypeIPv6:
		return wire.IPv6(p).ValidHeader() && wire.IPv6(p).MarkCE()
	}
	return false
}
