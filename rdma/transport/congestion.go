package transport

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Congestion control is DCQCN (Zhu and others, Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015): a receiver of packets
// that a router has marked answers with congestion notifications (CNP), and a sender that gets them cuts its
// rate, and raises it in steps while none come. The numbers are the paper's, those of rates as parts of the line rate.
const (
	cnpInterval   = 50 * time.Microsecond // N: a receiver sends no more of them
	alphaInterval = 55 * time.Microsecond // K: without a CNP the estimate of congestion decays
	raiseInterval = 55 * time.Microsecond // T: a step of the rate
	raiseBytes    = 10 << 20              // B: another one
	fastRounds    = 5                     // F: steps that only approach the rate before the cut
	gain          = 1.0 / 256             // g: weight of a CNP, or of its absence, in the estimate

	additivePart = 1.0 / 1000 // of the line rate: 40 Mb/s of 40 Gb/s
	hyperPart    = 1.0 / 100
	leastPart    = 1.0 / 1000

	// burstTime bounds how far the pacing lags behind: callers of Poll may be so late.
	burstTime = 50 * time.Microsecond
)

// reactionPoint is the sender's side of one queue pair. Rates are in bytes per nanosecond.
type reactionPoint struct {
	line, rate, target float64
	alpha              float64    // estimate of congestion: 0 to 1
	limited            bool       // since the first CNP, until the rate is the line's again
	timerRounds        int        // steps by time
	byteRounds         int        // steps by bytes
	bytes              int        // since the last one of these
	alphaAt, raiseAt   clock.Time // when the next decay and step are due
	next               clock.Time // when the next packet may leave
}

// init sets the line rate in bits per second; 0 is no congestion control.
func (r *reactionPoint) init(line uint64) {
	bytes := float64(line) / 8e9
	*r = reactionPoint{line: bytes, rate: bytes, target: bytes, alpha: 1}
}

// cut reacts to a CNP (equations 1).
func (r *reactionPoint) cut(now clock.Time) {
	r.advance(now)
	r.limited = true
	r.target = r.rate
	r.rate = max(r.rate*(1-r.alpha/2), r.line*leastPart)
	r.alpha = (1-gain)*r.alpha + gain
	r.timerRounds, r.byteRounds, r.bytes = 0, 0, 0
	r.alphaAt, r.raiseAt = now.Add(alphaInterval), now.Add(raiseInterval)
}

// advance runs what is due by time (equation 2, and the steps of figure 7).
func (r *reactionPoint) advance(now clock.Time) {
	for r.limited && (r.alphaAt <= now || r.raiseAt <= now) {
		if r.alphaAt <= r.raiseAt {
			r.alpha *= 1 - gain
			r.alphaAt = r.alphaAt.Add(alphaInterval)
			continue
		}
		r.timerRounds++
		r.raiseAt = r.raiseAt.Add(raiseInterval)
		r.raise()
	}
}

// raise is one step: fast recovery, additive increase or hyper increase (equations 3 and 4).
func (r *reactionPoint) raise() {
	switch most, least := max(r.timerRounds, r.byteRounds), min(r.timerRounds, r.byteRounds); {
	case most <= fastRounds:
	case least > fastRounds:
		r.target += float64(least-fastRounds) * r.line * hyperPart
	default:
		r.target += r.line * additivePart
	}
	r.target = min(r.target, r.line)
	r.rate = (r.target + r.rate) / 2
	if r.rate >= r.line*(1-leastPart) {
		r.rate, r.limited = r.line, false
	}
}

// mayLeave reports whether a packet may leave now; if not, next is when.
func (r *reactionPoint) mayLeave(now clock.Time) bool {
	if !r.limited {
		return true
	}
	r.advance(now)
	return !r.limited || now >= r.next
}

// left notes that a packet of so many bytes has left.
func (r *reactionPoint) left(now clock.Time, bytes int) {
	if !r.limited {
		return
	}
	r.next = max(r.next, now.Add(-burstTime)).Add(time.Duration(float64(bytes) / r.rate))
	if r.bytes += bytes; r.bytes >= raiseBytes {
		r.bytes = 0
		r.byteRounds++
		r.raise()
	}
}
