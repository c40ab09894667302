package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/buffer"
	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/loss"
)

// Most connections are idle most of the time. One that has nothing to do for compactAfter
// returns the part of its state that only work needs, active, and keeps of it what
// compacted has: a million idle connections then take 300 MB less. Whatever happens to it
// next restores active first.
//
// compactAfter is long against a round trip, so that a connection between request and
// response stays active.
const compactAfter = time.Second

// active is the state of a connection that is at work, or was within compactAfter.
type active struct {
	sender     sender
	snd        *buffer.Queue // nil with nothing queued
	rcv        *buffer.Ring  // nil with nothing held
	routeCache uint64        // the Output's
	tuning     receiveTuning

	ackAt      clock.Time // delayed ACK; never
	probeAt    clock.Time // window probe, or the end of FIN-WAIT-2 for an orphan; never
	progressAt clock.Time // when data was last acknowledged, or sent with nothing in flight: timeouts count from it

	previous   uint32 // writer in the Mux's list, and the one behind
	following  uint32
	woken      bool      // by wakeWriters: the next Write goes before the writers in the list
	ringShare  uint16    // the part of promised that the devices' rings may have to hold, in ringUnit: of ringPromises.sum
	promised   uint32    // memory that the announced window promises, bytes: part of Pool.Promised
	lastAcked  uint32    // RCV.NXT in the last segment sent
	partialEnd uint32    // behind the last segment that was not full (Minshall's snd_sml)
	dsack      byteRange // duplicate to report in the next ACK
}

// compacted holds the parts of active that a compacted connection keeps.
type compacted struct {
	scoreboard loss.Saved
	cc         cc.Controller
	rate       uint64
	lastSent   clock.Time
}

// maxSpareActive is the number of unused active structures that are kept: few, since compacting
// is to free memory.
const maxSpareActive = 64

// idle reports whether compacting would lose nothing: no data, no timer, no pending event.
func (c *Conn) idle() bool {
	// Each of these flags is work that a Poll still has to do, or an outcome that is open.
	const busy = flagDirty | flagBlocked | flagAckNow | flagReset | flagWindowProbe | flagTailProbe | flagSynAck | flagDeferred | flagStarved
	return c.state >= StateEstablished && !c.ended() && c.flags&busy == 0 && c.events == 0 &&
		!c.outstanding() && c.nxt == c.end+seqLen(c.has(flagFIN)) && c.snd == nil && c.rcv == nil &&
		c.ackAt == never && c.probeAt == never && c.lastAcked == c.rcvNxt && c.dsack == (byteRange{}) &&
		!(c.sender.cwr && c.ecn.mode == ecn.Classic) && c.sender.scoreboard.Idle()
}

// compactAt is when an idle connection is compacted.
func (c *Conn) compactAt() clock.Time {
	x := &c.sender
	return max(c.aliveAt, x.lastSent, x.nextSend).Add(compactAfter)
}

// compact frees active.
func (c *Conn) compact() {
	c.unpromise()
	x := &c.sender
	c.compacted = compacted{scoreboard: x.scoreboard.Save(), cc: x.cc, rate: x.deliveryRate, lastSent: x.lastSent}
	c.m.putActive(c.active)
	c.active = nil
}

// ensureActive restores a compacted connection, and marks it so that Poll arms its timers.
func (c *Conn) ensureActive() {
	if c.active == nil {
		c.restore()
		c.m.markDirty(c)
	}
}

// restore makes the connection active again. What is not remembered has the value that idle
// requires.
func (c *Conn) restore() {
	c.active = c.m.getActive()
	c.ackAt, c.probeAt, c.progressAt = never, never, c.m.now
	c.lastAcked, c.partialEnd = c.rcvNxt, c.una
	r, x := &c.compacted, &c.sender
	o := c.lossOptions()
	x.scoreboard.Restore(&c.m.losses, c.nxt, o, r.scoreboard)
	x.cc, x.deliveryRate, x.lastSent, x.maxPacing = r.cc, r.rate, r.lastSent, c.opt.MaxPacing
	c.compacted = compacted{}
	c.promise()
}

func (m *Mux) getActive() *active {
	w := m.spareActive.get()
	*w = active{}
	return w
}

func (m *Mux) putActive(w *active) { m.spareActive.put(w, maxSpareActive) }
