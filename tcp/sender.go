package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/loss"
)

// sender decides what may be sent and when: it joins what is in flight and lost (package
// loss) with congestion control (package cc). It moves no data; Conn's output asks it.
//
// Input: ack, for each acceptable ACK. Output: while room allows, first the ranges of lost
// (then resent), then new data (then sent). Timers: timer is when onTimer must be called.
type sender struct {
	scoreboard loss.Scoreboard
	cc         cc.Controller

	nextSend      clock.Time // pacing: nothing is sent before
	lastSent      clock.Time
	deliveryRate  uint64 // latest sample, bytes per second
	maxPacing     uint64 // the application's limit, bytes per second; 0 is none
	prrWindow     uint32 // window by PRR, in fast recovery (RFC 9937)
	ecnRecover    uint32 // SND.NXT at the last reduction by ECN, with inECNRecovery (RFC 3168 6.1.2)
	limitedBy     uint32 // SND.NXT when the window last limited sending, with windowLimited
	maxFlight     uint32 // largest flight while it limits
	inECNRecovery bool
	lastACK       ackFacts
	windowLimited bool
	unreduced     bool // fast recovery keeps the window (RFC 4821 7.5)
	cwr           bool // the window was reduced: the next new segment carries CWR (RFC 3168 6.1.2)
}

// ackFacts are the measurements of the last ACK, for Info.
type ackFacts uint8

const (
	ackDuplicate  ackFacts = 1 << iota // the peer received a segment twice
	ackAppLimited                      // the latest rate sample measures the application
)

// init makes the sender ready from sequence number seq, which is the SYN's.
func (x *sender) init(p *loss.Pool, seq uint32, o loss.Options, control cc.Controller) {
	*x = sender{cc: control, maxPacing: x.maxPacing}
	x.scoreboard.Init(p, seq, o)
	x.setOptions(o)
}

// setOptions takes what the handshake, or a change of the path MTU, has settled.
func (x *sender) setOptions(o loss.Options) {
	x.scoreboard.SetOptions(o)
	x.cc.SetMSS(o.MSS)
}

// setControl changes congestion control; the new one starts with its initial window.
func (x *sender) setControl(control cc.Controller) {
	x.cc = control
	x.cc.SetMSS(x.mss())
	x.nextSend = 0
}

// room is the sender's. The SYN of a connection by Fast Open takes nothing of the window: the initial one is of data (RFC 6928 2),
// and without its octet the last of ten segments would not fit.
func (c *Conn) room(now clock.Time) (n uint32, wait clock.Time) {
	if c.state == StateSynReceived {
		return c.sender.roomBeside(now, 1)
	}
	return c.sender.room(now)
}

// sent notes n bytes of new sequence space from seq (SYN and FIN count). appLimited means
// that there is nothing more to send though window and receiver would allow it: rate
// samples then measure the application, not the path.
func (x *sender) sent(now clock.Time, seq, n uint32, limited bool) {
	x.scoreboard.Sent(now, seq, n)
	x.pace(now, n)
	if limited {
		x.scoreboard.SetAppLimited()
	}
	x.noteUse()
}

// sentProbe is sent for a probe of the path: one segment, longer than the others.
func (x *sender) sentProbe(now clock.Time, seq, n uint32, limited bool) {
	mss := x.mss()
	x.scoreboard.SetMSS(n)
	x.sent(now, seq, n, limited)
	x.scoreboard.SetMSS(mss)
}

// noteUse notes whether the window, not the application, limits what was just sent. Only
// then may the window grow: an unused window is no measure of what the path carries (RFC
// 7661, RFC 9438 5.8). Retransmissions use the window as new data does. Otherwise the loss
// window after a timeout (RFC 5681 3.1) would stay at one segment where the flight before
// had not filled the window.
func (x *sender) noteUse() {
	window := x.window()
	if !x.windowLimited {
		x.maxFlight = 0
	}
	// In slow start half a window in flight counts as full: it doubles within the round
	// trip.
	f := x.scoreboard.Flight()
	x.maxFlight = max(x.maxFlight, f)
	if f+x.mss() > window || 2*f > window && x.slowStart() {
		x.windowLimited, x.limitedBy = true, x.scoreboard.Next()
	}
}

// mayGrow reports whether the window has limited sending. In slow start it grows to twice of
// what was in flight, and no further: more was not shown to be carried.
func (x *sender) mayGrow() bool {
	return x.windowLimited && (!x.slowStart() || x.cc.Window() < 2*x.maxFlight)
}

func (x *sender) slowStart() bool { return x.cc.Window() < x.cc.Threshold() }

// resent notes that n bytes from seq, as lost or a probe gave them, were sent again.
func (x *sender) resent(now clock.Time, seq, n uint32) {
	x.scoreboard.Resent(now, seq, n)
	x.pace(now, n)
	x.noteUse()
}

// ack applies an acceptable ACK with its congestion feedback f.
func (x *sender) ack(now clock.Time, a *loss.Ack, f *ecn.Feedback) loss.Events {
	var s loss.Sample
	flight, recovering := x.scoreboard.Outstanding(), x.scoreboard.InFastRecovery()
	repairing := x.scoreboard.InRecovery()
	x.scoreboard.Ack(now, a, &s)
	if s.Events != 0 {
		x.reportEvents(now, s.Events, flight)
	}
	f.Flight = x.scoreboard.Outstanding()
	ce, congested := f.Read(s.Delivered, x.mss())
	x.lastACK &^= ackDuplicate
	if s.Duplicated {
		x.lastACK |= ackDuplicate
	}
	if congested {
		x.congested(now, a.Una, flight)
	}
	if s.RateInterval > 0 {
		x.deliveryRate = s.RateBytes * uint64(time.Second) / uint64(s.RateInterval)
		x.lastACK &^= ackAppLimited
		if s.AppLimited {
			x.lastACK |= ackAppLimited
		}
	}
	if s.Delivered > 0 {
		sample := x.sample(now, a.Una, &s, ce, recovering || x.scoreboard.InFastRecovery())
		sample.Acked = x.growth(a, &s, repairing)
		x.cc.OnAck(sample)
	}
	if x.windowLimited && int32(a.Una-x.limitedBy) >= 0 {
		x.windowLimited = false
	}
	if x.unreduced || x.scoreboard.InFastRecovery() {
		x.reduce(&s)
	}
	return s.Events
}

// reportEvents passes on to congestion control what an ACK or a timer has changed. Undo and
// Recovered come before what begins: one ACK can end an episode and begin the next.
func (x *sender) reportEvents(now clock.Time, e loss.Events, flight uint32) {
	for _, m := range [...]struct {
		from loss.Events
		to   cc.Event
	}{
		{loss.Undo, cc.Undo},
		{loss.Recovered, cc.Recovered},
		{loss.Recover, cc.Lost},
		{loss.Timeout, cc.Timeout},
		{loss.Backoff, cc.Backoff},
	} {
		if e&m.from != 0 {
			x.cc.OnEvent(now, m.to, flight)
		}
	}
	if e&loss.ProbeLost != 0 && !x.scoreboard.InRecovery() {
		x.cc.OnEvent(now, cc.ProbeLost, flight)
	}
	if e&(loss.Recover|loss.Timeout|loss.ProbeLost) != 0 {
		x.cwr = true
	}
}

// congested handles a report of marks: at most one reduction per round trip, and none in a
// loss episode, which has reduced the window already (RFC 3168 6.1.2).
func (x *sender) congested(now clock.Time, una, flight uint32) {
	if x.inECNRecovery && int32(una-x.ecnRecover) < 0 || x.scoreboard.InRecovery() {
		return
	}
	x.inECNRecovery, x.ecnRecover = true, una+x.scoreboard.Outstanding()
	x.cwr = true
	x.cc.OnEvent(now, cc.Congestion, flight)
}

// growth is N of RFC 5681 3.1: the bytes for which an ACK lets the window grow. A duplicate
// ACK has none, whatever it SACKs: until loss is declared or ruled out, cwnd does not change
// (RFC 5681 3.2, RFC 3042). The ACK that rules it out does not count what was SACKed before,
// since that would let a burst leave. Where segments are overtaken all the time nearly
// everything is SACKed first, and then it counts once it is acknowledged.
//
// While a timeout is repaired, what had arrived before it is no measure of the path now.
// Without SACK the two look alike, and each ACK counts as one segment (RFC 3465 2.3).
func (x *sender) growth(a *loss.Ack, s *loss.Sample, repairing bool) uint32 {
	b := &x.scoreboard
	switch {
	case !repairing && b.Reordering() > dupThresh:
		return s.Acked
	case repairing && !b.HasSACK():
		return min(s.Acked, uint32(max(a.Packets, 1))*x.mss())
	}
	return min(s.Acked, s.Delivered)
}

// dupThresh is the reordering, in segments, that loss detection without times would take
// for a loss (RFC 5681 3.2).
const dupThresh = 3

// sample returns the input of congestion control from an ACK.
func (x *sender) sample(now clock.Time, una uint32, s *loss.Sample, ce uint32, recovering bool) cc.Sample {
	b := &x.scoreboard
	return cc.Sample{
		Now: now, Delivered: s.Delivered, Lost: s.Lost, Marked: ce,
		Flight: b.Flight(), Una: una, Next: una + b.Outstanding(),
		RTT: s.RTT, MinRTT: b.MinRTT(), SRTT: b.SRTT(),
		Total: b.Delivered(), TotalLost: b.TotalLost(),
		RateBytes: s.RateBytes, RateInterval: s.RateInterval,
		Prior: s.Prior, PriorLost: s.PriorLost, SentFlight: s.SentFlight,
		AppLimited: s.AppLimited, WindowLimited: x.mayGrow(), FastRecovery: recovering,
	}
}

// reduce sets the window of fast recovery by PRR, unless the controller has its own
// (threshold 0). Where the reduction was undone, the window itself is what PRR aims at.
func (x *sender) reduce(s *loss.Sample) {
	if !x.scoreboard.InFastRecovery() {
		x.unreduced = false
		return
	}
	if t := x.cc.Threshold(); t != 0 {
		if x.unreduced {
			t = x.cc.Window()
		}
		x.prrWindow = x.scoreboard.Reduce(t, s)
	}
}

// window returns the bytes that may be in flight.
func (x *sender) window() uint32 {
	if x.scoreboard.InFastRecovery() && x.cc.Threshold() != 0 {
		return x.prrWindow
	}
	return x.cc.Window()
}

// room is the number of bytes that may be sent now by window, PRR and pacing: full segments, or 0.
// Where pacing is what limits, wait is when to ask again; else it is clock.Never. With
// nothing in flight one segment may always be sent, or a window below one segment would
// stop the connection.
func (x *sender) room(now clock.Time) (n uint32, wait clock.Time) { return x.roomBeside(now, 0) }

// roomBeside is room where so many of the octets in flight are no data.
func (x *sender) roomBeside(now clock.Time, control uint32) (n uint32, wait clock.Time) {
	x.afterIdle(now)
	pipe := x.scoreboard.Flight()
	pipe -= min(pipe, control)
	n = x.window()
	n -= min(n, pipe)
	if pipe == 0 {
		n = max(n, x.mss())
	}
	// Two segments of new data, whatever the window.
	if x.scoreboard.WantsNewData() {
		n = 2 * x.mss() // RFC 5682 2.1 step 2b
	}
	if n < x.mss() {
		return 0, clock.Never
	}
	if rate := x.pacing(); rate > 0 {
		if now < x.nextSend {
			return 0, x.nextSend
		}
		n = min(n, burst(rate, x.mss()))
	}
	return n - n%x.mss(), clock.Never
}

// afterIdle informs congestion control that nothing was sent for longer than the RTO: the
// path may have changed (RFC 5681 4.1).
func (x *sender) afterIdle(now clock.Time) {
	if x.scoreboard.Outstanding() == 0 && x.lastSent != 0 && now.Sub(x.lastSent) > x.scoreboard.RTO() {
		x.lastSent = now
		x.cc.OnEvent(now, cc.Restart, 0)
	}
}

// pacing is the rate to send at, bytes per second; 0 is unpaced.
func (x *sender) pacing() uint64 {
	if x.maxPacing == Unpaced {
		return 0
	}
	rate := x.cc.Pacing()
	if x.maxPacing > 0 && (rate == 0 || rate > x.maxPacing) {
		rate = x.maxPacing
	}
	return rate
}

// burst returns the amount that leaves at once at a rate: what it carries in a millisecond, at least
// two segments, at most 64 KiB. Shorter bursts would need more wakeups than timers provide.
func burst(rate uint64, mss uint32) uint32 {
	return max(uint32(min(rate/1000, 1<<16)), 2*mss)
}

// maxCatchUp is the sending time that a late timer may make up for on long paths. A loop
// that shares its CPU often wakes a millisecond late, and what it never makes up for lowers
// the rate below the one that was asked for.
const maxCatchUp = 2 * time.Millisecond

// pace moves the time of the next transmission by what n bytes take. A late timer may be
// made up for, by one burst or an eighth of the round trip at most, so that a long pause
// does not turn into a long burst.
func (x *sender) pace(now clock.Time, n uint32) {
	x.lastSent = now
	rate := x.pacing()
	if rate == 0 {
		return
	}
	credit := max(duration(burst(rate, x.mss()), rate), min(x.scoreboard.SRTT()/8, maxCatchUp))
	x.nextSend = max(x.nextSend, now.Add(-credit)).Add(duration(n, rate))
}

// duration is the time that n bytes take at rate.
func duration(n uint32, rate uint64) time.Duration {
	return time.Duration(uint64(n) * uint64(time.Second) / rate)
}

// lost returns the first range to send again; n is 0 for none.
func (x *sender) lost() (seq, n uint32) { return x.scoreboard.Lost() }

// timer is when onTimer must be called: retransmission, tail loss probe, reordering. Pacing
// is output's own.
func (x *sender) timer() clock.Time { return x.scoreboard.Timer() }

// undoReduction takes back the reduction for a loss that the sender itself has caused (RFC
// 4821 7.5).
func (x *sender) undoReduction(now clock.Time) {
	x.cwr, x.unreduced = false, true
	x.cc.OnEvent(now, cc.Undo, 0)
}

// onTimer handles what is due. With loss.Probe in the result, the caller sends one segment
// now, whatever room returns: new data if the peer's window allows it, else the range of
// scoreboard.Probe; then it calls scoreboard.Probed.
func (x *sender) onTimer(now clock.Time) loss.Events {
	var s loss.Sample
	flight := x.scoreboard.Outstanding()
	x.scoreboard.OnTimer(now, &s)
	if s.Events != 0 {
		x.reportEvents(now, s.Events, flight)
	}
	x.reduce(&s)
	return s.Events
}

// rto is the timeout that the next transmission gets.
func (x *sender) rto() time.Duration { return x.scoreboard.RTO() }

// mss is the payload of a full segment, bytes.
func (x *sender) mss() uint32 { return x.scoreboard.MSS() }

// release frees the memory of what is in flight.
func (x *sender) release() { x.scoreboard.Release() }
