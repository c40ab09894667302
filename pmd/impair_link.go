package pmd

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

const defaultReorderHold = time.Millisecond

// ImpairStats says what happened to the packets of one direction since the wrapper was made.
//
//	Packets + Duplicated = Passed + LostRandom + LostBurst + LostQueue + LostMTU + Discarded + held now
type ImpairStats struct {
	Packets    uint64 // came in
	Passed     uint64 // went out
	LostRandom uint64 // word loss
	LostBurst  uint64 // word burst
	LostQueue  uint64 // word queue
	LostMTU    uint64 // word mtu, and packets of more frames than may be held or than a batch holds
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

type impairCount struct {
	packets, passed, random, burst, queue, mtu, discarded atomic.Uint64
	duplicated, uncopied, corrupted, marked, reordered    atomic.Uint64
	long                                                  atomic.Uint64 // of mtu: received, and no batch holds it
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
	bad    bool // the state of Gilbert and Elliott
	last   clock.Time
	wire   Serializer
	held   *heap
	count  impairCount
}

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
		wire: Serializer{Rate: uint64(d.Rate), Queue: d.Queue, waiting: make([]sent, 0, limit)},
		held: newHeap(limit),
	}
}

// room returns how many descriptors the link takes now.
func (l *link) room() int { return max(0, l.limit-l.held.frames) }

// enter takes the packets of d. The last descriptor ends a packet.
func (l *link) enter(now clock.Time, d []packet.Desc) {
	for len(d) > 0 {
		n := packet.Chain(d)
		l.packet(now, d[:n])
		d = d[n:]
	}
}

// packet takes one packet of descriptors d and decides what becomes of it.
func (l *link) packet(now clock.Time, d []packet.Desc) {
	l.count.packets.Add(1)
	switch {
	case l.MTU != 0 && l.network(d) > l.MTU || len(d) > l.limit:
		l.lose(d, &l.count.mtu)
	case l.random.Sample(CauseLoss, l.loss):
		l.lose(d, &l.count.random)
	case l.burst():
		l.lose(d, &l.count.burst)
	default:
		if l.random.Sample(CauseDup, l.dup) {
			l.twice(now, d)
			return
		}
		l.send(now, d)
	}
}

// lose gives the frames of a packet to the pool.
func (l *link) lose(d []packet.Desc, why *atomic.Uint64) {
	why.Add(1)
	for i := range d {
		l.pool.Put(d[i].Off)
	}
}

// network returns the bytes of a packet from the network header on.
func (l *link) network(d []packet.Desc) int {
	_, bytes := packet.Count(d)
	_, off, _ := wire.Network(l.arena.Bytes(&d[0]))
	return int(bytes) - off
}

// burst moves the state of the link on by one packet and says whether it is lost.
func (l *link) burst() bool {
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

// twice sends a packet and a copy of it in frames of the pool.
func (l *link) twice(now clock.Time, d []packet.Desc) {
	if len(d) > maxCopy || l.pool.Free() < len(d) || l.room() < 2*len(d) {
		l.count.uncopied.Add(1)
		l.send(now, d)
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
	l.send(now, d)
	l.send(now, to)
}

// send puts a packet that was not lost on the wire.
func (l *link) send(now clock.Time, d []packet.Desc) {
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
			l.lose(d, &l.count.queue)
			return
		}
	}
	l.held.push(l.due(left), d)
}

// due returns when a packet arrives that has left at the given time.
func (l *link) due(left clock.Time) clock.Time {
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
