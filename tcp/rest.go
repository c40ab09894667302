package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/tcp/loss"
)

// Most connections are idle most of the time. One that has nothing to do for restAfter gives the part of
// its state back that only work needs, awake, and keeps of it what rest has. Whatever happens to it next
// makes it awake again, first of all.

// restAfter is how long nothing happens before a connection rests. It is long for whoever answers, so
// that those at work are not disturbed.
const restAfter = time.Second

// awake is the state of a connection that is at work, or was of late.
type awake struct {
	sender sender
	snd    *sendQueue   // nil with nothing queued
	rcv    *receiveRing // nil with nothing held
	hint   uint64       // the Output's
	tune   tuning

	ackAt      clock.Time // delayed ACK; never
	probeAt    clock.Time // zero-window probe, end of FIN-WAIT-2 without an application; never
	progressAt clock.Time // the last new acknowledgment, or when what is unacknowledged was sent

	acked uint32 // RCV.NXT in the last segment sent
	short uint32 // behind the last segment that was not full
	dsack seqRange2
}

// rest is what a connection at rest remembers of awake.
type rest struct {
	board    loss.Rest
	cc       cc.Controller
	rate     uint64
	lastSent clock.Time
}

// spareAwake is how many of awake wait to be used again: connections that rest are to free memory.
const spareAwake = 64

// idle reports whether the connection has nothing to do that rest would forget.
func (c *Conn) idle() bool {
	const busy = flagDirty | flagBlocked | flagAckNow | flagReset | flagProbing | flagTailProbe | flagSynAck
	return c.state >= StateEstablished && !c.over() && c.flags&busy == 0 && c.events == 0 &&
		!c.outstanding() && c.nxt == c.end+b2u(c.has(flagFIN)) && c.snd == nil && c.rcv == nil &&
		c.ackAt == never && c.probeAt == never && c.acked == c.rcvNxt && c.dsack == (seqRange2{}) &&
		!c.sender.cwr && c.sender.board.Quiet()
}

// restAt is when an idle connection rests.
func (c *Conn) restAt() clock.Time {
	x := &c.sender
	return max(c.heardAt, x.lastSent, x.nextSend).Add(restAfter)
}

// doze gives awake back.
func (c *Conn) doze() {
	x := &c.sender
	c.rest = rest{board: x.board.Rest(), cc: x.cc, rate: x.rate, lastSent: x.lastSent}
	c.m.putAwake(c.awake)
	c.awake = nil
}

// wake makes a connection at rest ready for what comes, and has Poll look at it.
func (c *Conn) wake() {
	if c.awake == nil {
		c.rouse()
		c.m.mark(c)
	}
}

// rouse makes the connection awake.
func (c *Conn) rouse() {
	c.awake = c.m.getAwake()
	c.ackAt, c.probeAt, c.progressAt = never, never, c.m.now
	c.acked, c.short = c.rcvNxt, c.una
	r, x := &c.rest, &c.sender
	o := c.lossOptions()
	x.board.Resume(&c.m.losses, c.nxt, o, r.board)
	x.cc, x.rate, x.lastSent, x.mss, x.maxPacing = r.cc, r.rate, r.lastSent, o.MSS, c.opt.MaxPacing
	c.rest = rest{}
}

func (m *Mux) getAwake() *awake {
	n := len(m.awakes)
	if n == 0 {
		return new(awake)
	}
	w := m.awakes[n-1]
	m.awakes = m.awakes[:n-1]
	*w = awake{}
	return w
}

func (m *Mux) putAwake(w *awake) {
	if len(m.awakes) < spareAwake {
		m.awakes = append(m.awakes, w)
	}
}
