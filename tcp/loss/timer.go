package loss

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// maxAckDelay is how long the peer may hold an ACK back, where it has a single segment to wait for
// (RFC 8985 7.2, TLP.max_ack_delay).
const maxAckDelay = 200 * time.Millisecond

// probe is the state of tail loss probes (RFC 8985 7.1). It outlives the flight: the ACK that tells what
// became of a probe may be one of later data.
type probe struct {
	end    uint32 // TLP.end_seq, with out
	out    bool
	resent bool // TLP.is_retrans
}

// Timer returns when OnTimer wants to be called: clock.Never with nothing in flight.
func (b *Board) Timer() clock.Time {
	f := b.f
	if f == nil {
		return clock.Never
	}
	t := f.rto
	if f.pto != 0 {
		t = min(t, f.pto)
	}
	if f.reo != 0 {
		t = min(t, f.reo)
	}
	return t
}

// OnTimer does what is due, and tells by the events in s what changed: Recover, Marked, Probe, Timeout, Backoff.
func (b *Board) OnTimer(now clock.Time, s *Sample) {
	*s = Sample{Flight: b.Flight()}
	f := b.f
	if f == nil {
		return
	}
	if f.reo != 0 && f.reo <= now {
		b.reorderTimer(now, s)
	}
	switch {
	case f.pto != 0 && f.pto <= now:
		f.pto = 0
		f.rto = now.Add(b.rtt.rto()) // RFC 8985 7.3
		s.Events |= Probe
	case f.rto <= now:
		b.timeout(now, s)
	}
}

// reorderTimer finds what has become late (RFC 8985 6.3).
func (b *Board) reorderTimer(now clock.Time, s *Sample) {
	b.detect(now, s)
	if s.Lost > 0 {
		s.Events |= Marked
		b.enter(s)
		b.f.prr.begin(b, s, &news{})
	}
}

// armProbe sets the timer of the tail loss probe (RFC 8985 7.2): two round trips after the last
// transmission or progress, and not after the timeout.
func (b *Board) armProbe(now clock.Time) {
	f := b.f
	f.pto = 0
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
	f.pto = min(now.Add(wait), f.rto)
}

// Probe returns the range to send as tail loss probe after event Probe, where there is no new data to
// send: the last segment in flight.
func (b *Board) Probe() (seq, n uint32) {
	if b.f == nil {
		return 0, 0
	}
	r := b.at(b.f.tail)
	n = (r.len()-1)%r.mss + 1
	return r.end - n, n
}

// Probed notes that a probe was sent that ends at SND.NXT, end: one segment of new data (fresh, also
// noted by Sent), or the range of Probe (also Resent).
func (b *Board) Probed(end uint32, fresh bool) {
	b.probe = probe{end: end, out: true, resent: !fresh}
	if b.f != nil {
		b.f.pto = 0
	}
}

// probeAcked finds out what became of the probe (RFC 8985 7.4.2).
func (b *Board) probeAcked(una uint32, a *Ack, n *news, s *Sample) {
	p := &b.probe
	if !p.out || before(una, p.end) {
		return
	}
	switch {
	case !p.resent, // new data, and it has arrived
		n.dsack && n.dup.Right == p.end,                                // case 1: both copies have arrived
		una == p.end && !n.advanced && a.Duplicate && len(a.SACK) == 0: // case 3: both, from a peer without DSACK
		p.out = false
	case una != p.end: // case 2: only one of them, and data after it
		p.out = false
		s.Events |= ProbeLost
	}
}

// timeout is RFC 6298 5.4 to 5.6, with what RFC 8985 6.3 says is lost.
func (b *Board) timeout(now clock.Time, s *Sample) {
	f := b.f
	f.reo, f.pto = 0, 0
	b.probe.out = false
	was := f.episode
	repeated := was.phase == timeout && was.marker == b.una
	if b.at(f.head).state&sacked != 0 {
		b.renege()
		s.Events |= Reneged
	}
	b.loseLate(now, s)
	f.reno = reno{}
	b.begin(timeout)
	if repeated {
		f.episode.again, f.episode.resentAt, f.episode.resent = was.again, was.resentAt, was.resent
		s.Events |= Backoff
	} else {
		s.Events |= Timeout
	}
	if was.phase != recovery && s.Events&Reneged == 0 {
		f.episode.frto = frtoFirst
	}
	b.rtt.backoff = min(b.rtt.backoff+1, 30)
	f.rto = now.Add(b.rtt.rto())
}

// loseLate marks the first segment and all that are late as lost; without SACK all there is.
func (b *Board) loseLate(now clock.Time, s *Sample) {
	f := b.f
	late := f.rack.rtt + b.window()
	if !b.opts.SACK {
		late = 0
	}
	for i := f.old; i != 0; {
		this := i
		i = b.at(i).later
		if b.at(this).sent.Add(late) <= now {
			s.Lost += b.lose(this)
		}
	}
	s.Lost += b.loseFirst()
	if s.Lost > 0 {
		s.Events |= Marked
	}
}

// renege forgets all SACKs: the peer has dropped what it had SACKed (RFC 2018 8).
func (b *Board) renege() {
	f := b.f
	for i := f.head; i != 0; i = b.at(i).next {
		if r := b.at(i); r.state&sacked != 0 {
			r.state &^= sacked
			r.state |= missing | resent // what SACK has joined has no time of its own
			f.sacked -= r.len()
			f.missing += r.len()
		}
	}
	f.firstLost = f.head
}

// Retry has all that is in flight sent again without doubt of the network: segments have become too
// long for the path.
func (b *Board) Retry() {
	f := b.f
	if f == nil {
		return
	}
	for f.old != 0 {
		b.lost -= min(b.lost, uint64(b.lose(f.old)))
	}
	f.reno = reno{}
	f.pto, f.reo = 0, 0
}
