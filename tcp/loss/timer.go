package loss

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
)

// maxAckDelay is the time that the peer may delay the ACK of a single segment (RFC 8985 7.2,
// TLP.max_ack_delay).
const maxAckDelay = 200 * time.Millisecond

// probe is the state of tail loss probes (RFC 8985 7.1). It outlives the flight: the
// outcome of a probe may only show in the ACK of later data.
type probe struct {
	end    uint32 // TLP.end_seq, with out
	out    bool
	resent bool // TLP.is_retrans
}

// Timer returns when OnTimer must be called: clock.Never with nothing in flight.
func (b *Scoreboard) Timer() clock.Time {
	f := b.f
	if f == nil {
		return clock.Never
	}
	t := f.rtoTimer
	if f.ptoTimer != 0 {
		t = min(t, f.ptoTimer)
	}
	if f.reoTimer != 0 {
		t = min(t, f.reoTimer)
	}
	return t
}

// OnTimer handles what is due. The events in s say what changed: Recover, Marked, Probe,
// Timeout, Backoff.
func (b *Scoreboard) OnTimer(now clock.Time, s *Sample) {
	*s = Sample{Flight: b.Flight()}
	f := b.f
	if f == nil {
		return
	}
	if f.reoTimer != 0 && f.reoTimer <= now {
		b.reorderTimer(now, s)
	}
	switch {
	case f.ptoTimer != 0 && f.ptoTimer <= now:
		f.ptoTimer = 0
		f.rtoTimer = now.Add(b.rtt.rto()) // RFC 8985 7.3
		s.Events |= Probe
	case f.rtoTimer <= now:
		b.timeout(now, s)
	}
}

// reorderTimer finds the segments whose reordering window has passed (RFC 8985 6.3).
func (b *Scoreboard) reorderTimer(now clock.Time, s *Sample) {
	b.detectLoss(now, s)
	if s.Lost > 0 {
		s.Events |= Marked
		b.enterRecovery(s)
		b.f.prr.begin(b, s, &ackResult{})
	}
}

// armProbe sets the timer of the tail loss probe (RFC 8985 7.2): two round trips after the
// last transmission or progress, and not after the timeout. A single segment gets the
// peer's ACK delay in addition.
func (b *Scoreboard) armProbe(now clock.Time) {
	f := b.f
	f.ptoTimer = 0
	if !b.opts.SACK || f.episode.phase != open || f.sacked > 0 || b.probe.out {
		return
	}
	wait := time.Second
	if b.rtt.srtt > 0 {
		wait = 2 * b.rtt.srtt
		if b.next-b.una <= b.opts.MSS {
			wait += maxAckDelay
		}
	}
	f.ptoTimer = min(now.Add(wait), f.rtoTimer)
}

// Probe returns the range to send as tail loss probe after event Probe, where there is no
// new data: the last segment in flight, because its ACK shows all losses before it.
func (b *Scoreboard) Probe() (seq, n uint32) {
	if b.f == nil {
		return 0, 0
	}
	r := b.record(b.f.tail)
	n = (r.len()-1)%r.mss + 1
	return r.end - n, n
}

// Probed notes that a probe was sent that ends at end: one segment of new data (fresh, also
// noted by Sent), or the range of Probe (also Resent).
func (b *Scoreboard) Probed(end uint32, fresh bool) {
	b.probe = probe{end: end, out: true, resent: !fresh}
	if b.f != nil {
		b.f.ptoTimer = 0
	}
}

// probeAcked finds out whether a probe has repaired a loss (RFC 8985 7.4.2). If it has, the
// loss must reduce the window, as it would have been found by other means.
func (b *Scoreboard) probeAcked(una uint32, a *Ack, n *ackResult, s *Sample) {
	p := &b.probe
	if !p.out || seqnum.Before(una, p.end) {
		return
	}
	switch {
	case !p.resent, // new data, and it has arrived
		n.dsack && n.duplicate.Right == p.end,                          // case 1: both copies have arrived
		una == p.end && !n.advanced && a.Duplicate && len(a.SACK) == 0: // case 3: both, from a peer without DSACK
		p.out = false
	case una != p.end: // case 2: only one of them, and data after it
		p.out = false
		s.Events |= ProbeLost
	}
}

// timeout is RFC 6298 5.4 to 5.6, with what RFC 8985 6.3 says is lost. A SACKed first
// segment means that the peer has discarded data that it had SACKed (RFC 2018 8).
func (b *Scoreboard) timeout(now clock.Time, s *Sample) {
	f := b.f
	f.reoTimer, f.ptoTimer = 0, 0
	b.probe.out = false
	was := f.episode
	repeated := was.phase == timeout && was.startUna == b.una
	if b.record(f.head).state&sacked != 0 {
		b.renege()
		s.Events |= Reneged
	}
	b.markLateLost(now, s)
	f.reno = reno{}
	b.beginEpisode(timeout)
	if repeated {
		f.episode.resentAny, f.episode.firstResend, f.episode.unconfirmed = was.resentAny, was.firstResend, was.unconfirmed
		s.Events |= Backoff
	} else {
		s.Events |= Timeout
	}
	// Within recovery data was sent twice, so that ACKs are ambiguous (RFC 5682 2.1 step 1).
	if was.phase == open && s.Events&Reneged == 0 {
		f.episode.frto = frtoFirst
	}
	b.rtt.backoff = min(b.rtt.backoff+1, 30)
	f.rtoTimer = now.Add(b.rtt.rto())
}

// markLateLost marks the first segment and all that are late as lost; without SACK
// everything. Segments sent just before the timeout may well arrive (RFC 8985 6.3).
func (b *Scoreboard) markLateLost(now clock.Time, s *Sample) {
	f := b.f
	late := f.rack.rtt + b.reoWindow()
	if !b.opts.SACK {
		late = 0
	}
	for f.oldest != 0 && b.record(f.oldest).sent.Add(late) <= now {
		s.Lost += b.markLost(f.oldest)
	}
	s.Lost += b.markFirstLost()
	if s.Lost > 0 {
		s.Events |= Marked
	}
}

// renege forgets all SACKs: the peer has discarded what it had SACKed (RFC 2018 8).
func (b *Scoreboard) renege() {
	f := b.f
	for i := f.head; i != 0; i = b.record(i).next {
		if r := b.record(i); r.state&sacked != 0 {
			r.state &^= sacked
			r.state |= resent // what SACK has joined has no time of its own
			f.sacked -= r.len()
			b.setMissing(i)
		}
	}
	f.firstLost = f.head
}

// RetransmitAll makes everything in flight be sent again without a congestion event:
// segments have become too long for the path.
func (b *Scoreboard) RetransmitAll() {
	f := b.f
	if f == nil {
		return
	}
	for f.oldest != 0 {
		b.lost -= min(b.lost, uint64(b.markLost(f.oldest)))
	}
	f.reno = reno{}
	f.ptoTimer, f.reoTimer = 0, 0
}
