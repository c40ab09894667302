package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/tcp/loss"
)

// sender is the part of a connection that decides what may be sent and when: what is in flight, what was
// lost, and congestion control. It moves no data: Conn's output asks it.
//
// Input: ack, for each acceptable ACK. Output: while room says so, first the ranges of lost (then
// resent), then new data (then sent). Timers: timer is when onTimer wants to be called.
type sender struct {
	scoreboard loss.Scoreboard
	cc         cc.Controller

	nextSend      clock.Time // pacing: nothing before
	lastSent      clock.Time
	deliveryRate  uint64 // at which data was delivered last, bytes per second
	maxPacing     uint64 // the application's bound, bytes per second; 0: none
	mss           uint32
	prrWindow     uint32 // window that PRR gives, in fast recovery
	ecnRecover    uint32 // SND.NXT at the last reduction by ECN, with inECNRecovery (RFC 3168 6.1.2)
	limitedBy     uint32 // SND.NXT when the window last limited sending, with limited
	inECNRecovery bool
	windowLimited bool
	cwr           bool // the window was reduced: the next new segment is to say so (RFC 3168 6.1.2)
}

// init makes the sender ready from sequence number seq, which the SYN takes.
func (x *sender) init(p *loss.Pool, seq uint32, o loss.Options, control cc.Controller) {
	*x = sender{cc: control, maxPacing: x.maxPacing}
	x.scoreboard.Init(p, seq, o)
	x.setOptions(o)
}

// setOptions tells what the handshake, or a change of the path MTU, has settled.
func (x *sender) setOptions(o loss.Options) {
	x.mss = o.MSS
	x.scoreboard.SetOptions(o)
	x.cc.SetMSS(o.MSS)
}

// setControl changes congestion control; the new one begins anew.
func (x *sender) setControl(control cc.Controller) {
	x.cc = control
	x.cc.SetMSS(x.mss)
	x.nextSend = 0
}

// sent notes n bytes of new sequence space from seq (SYN and FIN count); limited says that there is
// nothing more to send though window and receiver would allow it.
func (x *sender) sent(now clock.Time, seq, n uint32, limited bool) {
	x.scoreboard.Sent(now, seq, n)
	x.pace(now, n)
	if limited {
		x.scoreboard.SetAppLimited()
	}
	window := x.window()
	slow := x.cc.Window() < x.cc.Threshold()
	if f := x.scoreboard.Flight(); f+x.mss > window || slow && 2*f > window {
		x.noteWindowLimited(seq + n)
	}
}

// noteWindowLimited notes that the window, not the application, limits sending: it may grow.
func (x *sender) noteWindowLimited(next uint32) { x.windowLimited, x.limitedBy = true, next }

// resent notes that n bytes from seq, as lost or probe said, were sent again.
func (x *sender) resent(now clock.Time, seq, n uint32) {
	x.scoreboard.Resent(now, seq, n)
	x.pace(now, n)
}

// ack applies an acceptable ACK: ece is a classic ECN-Echo (RFC 3168), ce how many bytes are newly
// reported as marked (AccECN, RFC 9768).
func (x *sender) ack(now clock.Time, a *loss.Ack, ece bool, ce uint32) loss.Events {
	var s loss.Sample
	flight, recovering := x.scoreboard.Outstanding(), x.scoreboard.InFastRecovery()
	x.scoreboard.Ack(now, a, &s)
	x.reportEvents(now, s.Events, flight)
	if ece && ce == 0 {
		ce = s.Delivered // RFC 8257 3.3
	}
	if ece || ce > 0 {
		x.congested(now, a.Una, flight)
	}
	if s.RateInterval > 0 {
		x.deliveryRate = s.RateBytes * uint64(time.Second) / uint64(s.RateInterval)
	}
	if s.Delivered > 0 {
		x.cc.OnAck(x.sample(now, a.Una, &s, ce, recovering || x.scoreboard.InFastRecovery()))
	}
	if x.windowLimited && int32(a.Una-x.limitedBy) >= 0 {
		x.windowLimited = false
	}
	x.reduce(&s)
	return s.Events
}

// reportEvents passes on what an ACK or a timer has changed.
func (x *sender) reportEvents(now clock.Time, e loss.Events, flight uint32) {
	if e == 0 {
		return
	}
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

// congested takes a report of marks: a reduction at most once per round trip, and none in a loss episode,
// which has reduced already (RFC 3168 6.1.2).
func (x *sender) congested(now clock.Time, una, flight uint32) {
	if x.inECNRecovery && int32(una-x.ecnRecover) < 0 || x.scoreboard.InRecovery() {
		return
	}
	x.inECNRecovery, x.ecnRecover = true, una+x.scoreboard.Outstanding()
	x.cwr = true
	x.cc.OnEvent(now, cc.Congestion, flight)
}

// sample is what congestion control sees of an ACK.
func (x *sender) sample(now clock.Time, una uint32, s *loss.Sample, ce uint32, recovering bool) cc.Sample {
	b := &x.scoreboard
	return cc.Sample{
		Now: now, Acked: s.Acked, Delivered: s.Delivered, Lost: s.Lost, Marked: ce,
		Flight: b.Flight(), Una: una, Next: una + b.Outstanding(),
		RTT: s.RTT, MinRTT: b.MinRTT(), SRTT: b.SRTT(),
		Total: b.Delivered(), TotalLost: b.TotalLost(),
		RateBytes: s.RateBytes, RateInterval: s.RateInterval,
		Prior: s.Prior, PriorLost: s.PriorLost, SentFlight: s.SentFlight,
		AppLimited: s.AppLimited, WindowLimited: x.windowLimited, FastRecovery: recovering,
	}
}

// reduce has PRR set the window of fast recovery, where the controller leaves it to that.
func (x *sender) reduce(s *loss.Sample) {
	if x.scoreboard.InFastRecovery() {
		if t := x.cc.Threshold(); t != 0 {
			x.prrWindow = x.scoreboard.Reduce(t, s)
		}
	}
}

// window is how much may be in flight.
func (x *sender) window() uint32 {
	if x.scoreboard.InFastRecovery() && x.cc.Threshold() != 0 {
		return x.prrWindow
	}
	return x.cc.Window()
}

// room is how many bytes may be sent now by window, PRR and pacing: full segments, or 0. When pacing is
// what holds, wait is when to ask again; else it is clock.Never.
func (x *sender) room(now clock.Time) (n uint32, wait clock.Time) {
	x.afterIdle(now)
	pipe := x.scoreboard.Flight()
	n = x.window()
	n -= min(n, pipe)
	if pipe == 0 {
		n = max(n, x.mss)
	}
	if x.scoreboard.WantsNewData() {
		n = 2 * x.mss // RFC 5682 2.1 step 2b
	}
	if n < x.mss {
		return 0, clock.Never
	}
	if rate := x.pacing(); rate > 0 {
		if now < x.nextSend {
			return 0, x.nextSend
		}
		n = min(n, burst(rate, x.mss))
	}
	return n - n%x.mss, clock.Never
}

// afterIdle tells congestion control that the path was not seen for long (RFC 5681 4.1).
func (x *sender) afterIdle(now clock.Time) {
	if x.scoreboard.Outstanding() == 0 && x.lastSent != 0 && now.Sub(x.lastSent) > x.scoreboard.RTO() {
		x.lastSent = now
		x.cc.OnEvent(now, cc.Restart, 0)
	}
}

// pacing is the rate to send at, 0 for none.
func (x *sender) pacing() uint64 {
	rate := x.cc.Pacing()
	if x.maxPacing > 0 && (rate == 0 || rate > x.maxPacing) {
		rate = x.maxPacing
	}
	return rate
}

// burst is how much leaves at once at a rate: what it carries in a millisecond, 64 KiB at most.
func burst(rate uint64, mss uint32) uint32 {
	return max(uint32(min(rate/1000, 1<<16)), 2*mss)
}

// pace moves the time of the next transmission on by what n bytes take. A late timer may be made up
// for, by one burst.
func (x *sender) pace(now clock.Time, n uint32) {
	x.lastSent = now
	rate := x.pacing()
	if rate == 0 {
		return
	}
	credit := duration(burst(rate, x.mss), rate)
	x.nextSend = max(x.nextSend, now.Add(-credit)).Add(duration(n, rate))
}

// duration is how long n bytes take at rate.
func duration(n uint32, rate uint64) time.Duration {
	return time.Duration(uint64(n) * uint64(time.Second) / rate)
}

// lost returns the first range to send again, n = 0 for none.
func (x *sender) lost() (seq, n uint32) { return x.scoreboard.Lost() }

// timer is when onTimer wants to be called (retransmission, probe, reordering; pacing is output's own).
func (x *sender) timer() clock.Time { return x.scoreboard.Timer() }

// undoReduction takes back the reduction for a loss that was of the sender's own making (RFC 4821 7.5).
func (x *sender) undoReduction(now clock.Time) {
	x.cwr = false
	x.cc.OnEvent(now, cc.Undo, 0)
}

// onTimer does what is due. Probe in the result: send one segment now, whatever room says: new data if
// the peer's window has room, else the range of board.Probe; then board.Probed.
func (x *sender) onTimer(now clock.Time) loss.Events {
	var s loss.Sample
	flight := x.scoreboard.Outstanding()
	x.scoreboard.OnTimer(now, &s)
	x.reportEvents(now, s.Events, flight)
	x.reduce(&s)
	return s.Events
}

// rto is the timeout that the next transmission gets.
func (x *sender) rto() time.Duration { return x.scoreboard.RTO() }

// release gives the memory of what is in flight back.
func (x *sender) release() { x.scoreboard.Release() }
