package loss

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// The bounds of the retransmission timeout. RFC 6298 2.4 asks for at least one second; like
// Linux we put 200 ms under the term of the variance instead, because delayed ACKs wait no
// longer than that, and probes (RFC 8985 7) come before the timeout.
const (
	InitialRTO = time.Second // RFC 6298 2.1
	MinRTO     = 200 * time.Millisecond
	MaxRTO     = 120 * time.Second // RFC 6298 2.5: at least 60 s

	uncertainRTO = 3 * time.Second // RFC 6298 5.7
)

// minRTTWindow is the time that the least round-trip time holds. A route that became longer
// would otherwise never be noticed.
const minRTTWindow = 30 * time.Second

// estimator is the round-trip time and the timeout that follows from it (RFC 6298).
type estimator struct {
	estimates
	backoff   uint8 // timeouts in a row
	uncertain bool  // the SYN was sent more than once, and no round-trip time was measured (RFC 6298 5.7)
}

// estimates are the results of measurements.
type estimates struct {
	srtt, rttvar time.Duration
	min          time.Duration // least sample of late, 0: none
	minAt        clock.Time
}

// sample takes a measurement of a segment that was sent once (Karn's algorithm is the
// caller's), or of an echoed timestamp.
func (e *estimator) sample(now clock.Time, rtt time.Duration) {
	rtt = max(rtt, 1)
	if e.srtt == 0 {
		e.srtt, e.rttvar = rtt, rtt/2 // RFC 6298 2.2
	} else {
		off := e.srtt - rtt
		if off < 0 {
			off = -off
		}
		e.rttvar += (off - e.rttvar) / 4 // RFC 6298 2.3, in this order
		e.srtt = max(e.srtt+(rtt-e.srtt)/8, 1)
	}
	e.backoff = 0 // RFC 6298 5: a new measurement collapses the backed-off timer
}

// updateMin keeps the least round-trip time, from the newest delivered segment of an ACK.
func (e *estimator) updateMin(now clock.Time, rtt time.Duration) {
	if rtt = max(rtt, 1); e.min == 0 || rtt <= e.min || now.Sub(e.minAt) > minRTTWindow {
		e.min, e.minAt = rtt, now
	}
}

// base is the timeout before backoff.
func (e *estimator) base() time.Duration {
	switch {
	case e.srtt == 0 && e.uncertain:
		return uncertainRTO
	case e.srtt == 0:
		return InitialRTO
	}
	return min(e.srtt+max(4*e.rttvar, MinRTO), MaxRTO)
}

// rto is the timeout with its backoff (RFC 6298 5.5).
func (e *estimator) rto() time.Duration {
	return min(e.base()<<min(e.backoff, 10), MaxRTO)
}
