package netsim

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
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

	net  *Net
	imp  pmd.Impairment
	draw *source
	rate serializer
	bad  bool // the state of Gilbert and Elliott
	last clock.Time

	loss, dup, corrupt, ce, reorder  chance
	toBad, toGood, lostBad, lostGood chance
}

// Pipe returns a new pipe. Its random draws follow from the seed of the net, the number of the pipe
// and seed.
func (n *Net) Pipe(imp pmd.Impairment, seed uint64) *Pipe {
	n.pipes++
	return newPipe(n, imp, newSource(mix(n.seed, seed), uint64(n.pipes)))
}

func newPipe(n *Net, imp pmd.Impairment, draw *source) *Pipe {
	l := &Pipe{net: n, draw: draw}
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
	l.loss, l.dup, l.corrupt = newChance(imp.Loss), newChance(imp.Dup), newChance(imp.Corrupt)
	l.ce, l.reorder = newChance(imp.CE), newChance(imp.Reorder)
	l.toBad, l.toGood = newChance(imp.Burst.Start), newChance(imp.Burst.End)
	l.lostBad, l.lostGood = newChance(imp.Burst.LostBad), newChance(imp.Burst.LostGood)
	l.rate.bits, l.rate.queue = uint64(imp.Rate), imp.Queue
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
	case l.draw.hit(causeLoss, l.loss):
		l.lose(p, &l.Count.LostRandom, "loss")
	case l.burst():
		l.lose(p, &l.Count.LostBurst, "burst")
	case l.draw.hit(causeDup, l.dup):
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
	l.net.tell(Lost, p, word)
	l.net.release(p)
}

// burst moves the state of the link on by one packet and says whether it is lost.
func (l *Pipe) burst() bool {
	if l.bad {
		l.bad = !l.draw.hit(causeBurst, l.toGood)
	} else {
		l.bad = l.draw.hit(causeBurst, l.toBad)
	}
	if l.bad {
		return l.draw.hit(causeBurstLoss, l.lostBad)
	}
	return l.draw.hit(causeBurstLoss, l.lostGood)
}

// send puts a packet that was not lost on the wire.
func (l *Pipe) send(p *Packet) {
	if l.draw.hit(causeCorrupt, l.corrupt) {
		l.Count.Corrupted++
		p.Corrupt = true
		l.flip(p.Bytes)
	}
	if l.draw.hit(causeCE, l.ce) && markCE(p.Bytes) {
		l.Count.Marked++
	}
	left := l.net.now
	if l.rate.bits != 0 {
		var ok bool
		if left, ok = l.rate.send(left, len(p.Bytes)+linkHeader); !ok {
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
	due := left.Add(max(0, l.imp.Delay+l.draw.jitter(l.imp.Jitter, l.imp.Shape)))
	if l.imp.FIFO {
		due = max(due, l.last)
	}
	l.last = due
	if l.draw.hit(causeReorder, l.reorder) {
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
		bit := l.draw.below(causeBits, total)
		for contains(done, bit) {
			bit = (bit + 1) % total
		}
		done = append(done, bit)
		b[bit/8] ^= 1 << (bit % 8)
	}
}

func contains(s []uint64, v uint64) bool {
	for _, have := range s {
		if have == v {
			return true
		}
	}
	return false
}

// markCE sets Congestion Experienced in a packet whose sender is capable of it, and reports whether it
// did (RFC 3168 5). The bytes may have been corrupted.
func markCE(b []byte) bool {
	switch {
	case wire.IPv4(b).ValidHeader():
		p := wire.IPv4(b)
		if p.ECN() != wire.ECT0 && p.ECN() != wire.ECT1 {
			return false
		}
		before := uint16(b[0])<<8 | uint16(b[1])
		p.SetECN(wire.CE)
		p.SetChecksum(wire.Update16(p.Checksum(), before, uint16(b[0])<<8|uint16(b[1])))
		return true
	case wire.IPv6(b).ValidHeader():
		p := wire.IPv6(b)
		if p.ECN() != wire.ECT0 && p.ECN() != wire.ECT1 {
			return false
		}
		p.SetECN(wire.CE)
		return true
	}
	return false
}

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
		n.tell(Lost, p, "nobody")
		n.release(p)
		return
	}
	x.arrive(p)
}

// send has a packet leave a node by a path.
func (n *Net) send(p *Packet, to ip.Addr, hops []*Pipe) {
	p.to, p.hops = to, hops
	n.tell(Sent, p, "")
	n.forward(p)
}
