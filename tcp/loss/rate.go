package loss

import "github.com/millrace/millrace/clock"

// rate is the state of delivery rate estimation (draft-cheng-iccrg-delivery-rate-estimation
// 3.1).
type rate struct {
	deliveredAt clock.Time // C.delivered_time
	firstSent   clock.Time // C.first_sent_time
	appLimited  uint64     // C.app_limited: value of Delivered at which a limit by the application is over; 0: there is none

	// of the newest segment that this ACK has delivered
	sampled        bool
	sent           clock.Time
	end            uint32
	priorAt, first clock.Time
}

// restart begins a flight after nothing was in flight: the application is the limit
// (sections 3.2 and 3.4).
func (k *rate) restart(now clock.Time, delivered uint64) {
	k.deliveredAt, k.firstSent = now, now
	k.appLimited = max(delivered, 1)
}

// begin begins an ACK.
func (k *rate) begin() { k.sampled = false }

// deliver is UpdateRateSample of section 3.3: the sample is of the segment that was sent
// last.
func (k *rate) deliver(now clock.Time, r *record, end uint32, s *Sample) {
	k.deliveredAt = now
	if k.sampled && !sentAfter(r.sent, end, k.sent, k.end) {
		return
	}
	k.sampled = true
	k.sent, k.end = r.sent, end
	k.priorAt, k.first = r.deliveredAt, r.firstSent
	s.Prior, s.PriorLost, s.SentFlight = r.delivered, r.lost, r.flight
	s.AppLimited, s.Resent = r.state&appLimited != 0, r.state&resent != 0
}

// finish is GenerateRateSample of section 3.3. Of the time in which the data was sent and
// that in which it was acknowledged the longer counts, so that neither bunched ACKs nor
// bursts look fast. An interval below the least round-trip time is no sample.
func (k *rate) finish(b *Scoreboard, s *Sample) {
	if k.appLimited != 0 && b.delivered > k.appLimited {
		k.appLimited = 0
	}
	if !k.sampled {
		return
	}
	k.firstSent = k.sent
	interval := max(k.sent.Sub(k.first), k.deliveredAt.Sub(k.priorAt))
	if interval <= 0 || interval < b.rtt.min {
		return
	}
	s.RateBytes, s.RateInterval = b.delivered-s.Prior, interval
}
