package netsim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/wire"
)

const (
	defaultReorderHold = time.Millisecond
	linkHeader         = 14 // rate and queue count Ethernet frames, as on a device
)

// Count says what happened to the packets of a pipe.
//
//	Packets + Duplicated = Passed + LostRandom + LostBurst + LostQueue + LostMTU + those on the way
type Count struct {
	Packets, Passed                           uint64
	LostRandom, LostBurst, LostQueue, LostMTU uint64
	Duplicated, Corrupted, Marked, Reordered  uint64
	Bytes                                     uint64 // of the packets that passed
}

// Lost returns the packets that did not arrive.
func (c *Count) Lost() uint64 { return c.LostRandom + c.LostBurst + c.LostQueue + c.LostMTU }

// Pipe is one direction of a link. Several paths may share one.
type Pipe struct {
	Count Count

	// TooBig has the pipe tell the sender of a packet that its word mtu loses how large packets may
	// be, by ICMP. Without it the pipe is a black hole for large packets.
	TooBig bool

	net    *Net
	imp    pmd.Impairment
	random *pmd.RandomSource
	rate   pmd.Serializer
	bad    bool // the state of Gilbert and Elliott
	last   clock.Time

	loss, dup, corrupt, ce, reorder  pmd.Probability
	toBad, toGood, lostBad, lostGood pmd.Probability
}

// Pipe returns a new pipe. Its random numbers follow from the seed of the net, the number of the pipe
// and seed.
func (n *Net) Pipe(imp pmd.Impairment, seed uint64) *Pipe {
	n.pipes++
	return newPipe(n, imp, pmd.NewRandomSource(mix(n.seed, seed), uint64(n.pipes)))
}

func newPipe(n *Net, imp pmd.Impairment, random *pmd.RandomSource) *Pipe {
	l := &Pipe{net: n, random: random}
	l.Set(imp)
	return l
}

// Set changes what the pipe does to packets that enter it from now on.
func (l *Pipe) Set(imp pmd.Impairment) {
	imp.CorruptBits = max(imp.CorruptBits, 1)
	if imp.ReorderHold == 0 {
		imp.ReorderHold = defaultReorderHold
	}
	l.imp = imp
	l.loss, l.dup, l.corrupt = pmd.NewProbability(imp.Loss), pmd.NewProbability(imp.Dup), pmd.NewProbability(imp.Corrupt)
	l.ce, l.reorder = pmd.NewProbability(imp.CE), pmd.NewProbability(imp.Reorder)
	l.toBad, l.toGood = pmd.NewProbability(imp.Burst.Start), pmd.NewProbability(imp.Burst.End)
	l.lostBad, l.lostGood = pmd.NewProbability(imp.Burst.LostBad), pmd.NewProbability(imp.Burst.LostGood)
	l.rate.Rate, l.rate.Queue = uint64(imp.Rate), imp.Queue
}

// Impairment returns what the pipe does to packets.
func (l *Pipe) Impairment() pmd.Impairment { return l.imp }

// Clean has the pipe lose and harm nothing any more; its delay, rate
// and MTU remain.
func (l *Pipe) Clean() {
	l.Set(pmd.Impairment{MTU: l.imp.MTU, Rate: l.imp.Rate, Delay: l.imp.Delay})
}

// enter decides what becomes of a packet, which it takes.
func (l *Pipe) enter(p *Packet) {
	l.Count.Packets++
	switch {
	case l.imp.MTU != 0 && len(p.Bytes) > l.imp.MTU:
		if l.TooBig {
			l.net.tooBig(p, l.imp.MTU)
		}
		l.lose(p, &l.Count.LostMTU, "mtu")
	case l.random.Sample(pmd.CauseLoss, l.loss):
		l.lose(p, &l.Count.LostRandom, "loss")
	case l.burst():
		l.lose(p, &l.Count.LostBurst, "burst")
	case l.random.Sample(pmd.CauseDup, l.dup):
		l.Count.Duplicated++
		twin := l.net.copy(p)
		l.send(p)
		l.send(twin)
	default:
		l.send(p)
	}
}

func (l *Pipe) lose(p *Packet, why *uint64, word string) {
	*why++
	l.net.report(Lost, p, word)
	l.net.release(p)
}

// burst moves the state of the link on by one packet and says whether it is lost.
func (l *Pipe) burst() bool {
	if l.bad {
		l.bad = !l.random.Sample(pmd.CauseBurst, l.toGood)
	} else {
		l.bad = l.random.Sample(pmd.CauseBurst, l.toBad)
	}
	if l.bad {
		return l.random.Sample(pmd.CauseBurstLoss, l.lostBad)
	}
	return l.random.Sample(pmd.CauseBurstLoss, l.lostGood)
}

// send puts a packet that was not lost on the wire.
func (l *Pipe) send(p *Packet) {
	if l.random.Sample(pmd.CauseCorrupt, l.corrupt) {
		l.Count.Corrupted++
		p.Corrupt = true
		l.flip(p.Bytes)
	}
	if l.random.Sample(pmd.CauseCE, l.ce) && markCE(p.Bytes) {
		l.Count.Marked++
	}
	left := l.net.now
	if l.rate.Rate != 0 {
		var ok bool
		if left, ok = l.rate.Send(left, len(p.Bytes)+linkHeader); !ok {
			l.lose(p, &l.Count.LostQueue, "queue")
			return
		}
	}
	l.Count.Passed++
	l.Count.Bytes += uint64(len(p.Bytes))
	l.net.events.push(event{at: l.due(left), packet: p})
}

// due returns when a packet arrives that has left at the given time.
func (l *Pipe) due(left clock.Time) clock.Time {
	due := left.Add(max(0, l.imp.Delay+l.random.Jitter(l.imp.Jitter, l.imp.Shape)))
	if l.imp.FIFO {
		due = max(due, l.last)
	}
	l.last = due
	if l.random.Sample(pmd.CauseReorder, l.reorder) {
		l.Count.Reordered++
		due = due.Add(l.imp.ReorderHold)
	}
	return due
}

// flip inverts as many different bits as the profile says, or all of a shorter packet.
func (l *Pipe) flip(b []byte) {
	total := uint64(len(b)) * 8
	done := make([]uint64, 0, 8)
	for range min(uint64(l.imp.CorruptBits), total) {
		bit := l.random.Uint64N(pmd.CauseBits, total)
		for slices.Contains(done, bit) {
			bit = (bit + 1) % total
		}
		done = append(done, bit)
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// markCE sets Congestion Experienced in an IP packet whose sender is capable of it, and reports whether it is.
func markCE(b []byte) bool {
	switch {
	case wire.IPv4(b).ValidHeader():
		return wire.IPv4(b).MarkCE()
	case wire.IPv6(b).ValidHeader():
		return wire.IPv6(b).MarkCE()
	}
	return false
}

// Queued returns the bytes that wait for the rate of the pipe, with the packet that is being sent.
func (l *Pipe) Queued() int { return l.rate.Waiting(l.net.now) }

// forward lets a packet enter its next pipe, or arrive.
func (n *Net) forward(p *Packet) {
	if len(p.hops) > 0 {
		l := p.hops[0]
		p.hops = p.hops[1:]
		l.enter(p)
		return
	}
	x := n.nodes[p.to]
	if x == nil {
		n.report(Lost, p, "nobody")
		n.release(p)
		return
	}
	x.arrive(p)
}

// send has a packet leave a node by a path.
func (n *Net) send(p *Packet, to wire.Addr, hops []*Pipe) {
	p.to, p.hops = to, hops
	n.report(Sent, p, "")
	n.forward(p)
}
