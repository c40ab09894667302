package cc

import (
	"math"
	"time"
)

// window is the common part of the controllers that react to losses (RFC 5681).
type window struct {
	cwnd, ssthresh uint32
	mss            uint32
	credit         uint32 // bytes that arrived in congestion avoidance and for which the window has not grown yet
	srtt           uint32 // nanoseconds, for pacing; capped at 4.3 s, where pacing no longer matters
}

// infiniteThreshold is the initial slow-start threshold: as high as possible (RFC 5681
// 3.1), so that slow start finds the path's capacity.
const infiniteThreshold = math.MaxUint32

// maxWindow bounds windows: no more than half the sequence space can be in flight, or
// numbers would be ambiguous.
const maxWindow = 1 << 30

// minPacedRTT is the round-trip time from which windows are paced. Below, a window is
// shorter than what timers can spread.
const minPacedRTT = time.Millisecond

func newWindow(mss uint32) window {
	return window{cwnd: Initial(mss), ssthresh: infiniteThreshold, mss: mss}
}

// setSRTT takes the smoothed round-trip time.
func (w *window) setSRTT(srtt time.Duration) { w.srtt = uint32(min(srtt, math.MaxUint32)) }

// Window implements Controller.
func (w *window) Window() uint32 { return w.cwnd }

// Threshold implements Controller.
func (w *window) Threshold() uint32 { return w.ssthresh }

// SetMSS implements Controller. A window that is still the initial one follows the segment
// size.
func (w *window) SetMSS(mss uint32) {
	if w.cwnd == Initial(w.mss) {
		w.cwnd = Initial(mss)
	}
	w.mss = mss
	w.cwnd = max(w.cwnd, mss)
}

// Pacing implements Controller: twice the window per round trip in slow start, so that it
// can double, and 1.2 times the window after, so that pacing does not limit what the window
// allows (as Linux does).
func (w *window) Pacing() uint64 {
	if time.Duration(w.srtt) < minPacedRTT {
		return 0
	}
	rate := uint64(w.cwnd) * uint64(time.Second) / uint64(w.srtt)
	if w.cwnd < w.ssthresh/2 {
		return 2 * rate
	}
	return rate + rate/5
}

func (w *window) slowStart() bool { return w.cwnd < w.ssthresh }

// increase adds n to the window.
func (w *window) increase(n uint32) { w.cwnd = min(w.cwnd+min(n, maxWindow), maxWindow) }

// increaseLinearly grows the window by a segment for each window that has arrived (RFC 5681
// 3.1). It counts bytes: an acknowledged byte counts once, however the peer divides its
// ACKs (RFC 3465).
func (w *window) increaseLinearly(acked uint32) {
	w.credit += acked
	if w.credit >= w.cwnd {
		n := w.credit / w.cwnd
		w.credit -= n * w.cwnd
		w.increase(n * w.mss)
	}
}

// reductionBase returns the value that a reduction starts from: the window, or what was in flight where
// that was far less, since then the network has not shown that it carries the window (RFC
// 5681 3.1, RFC 9438 4.6).
func (w *window) reductionBase(flight uint32) uint32 { return min(w.cwnd, max(flight, 2*w.mss)) }

// reduce sets window and threshold, at least to two segments: with one, a delayed ACK would
// stall each round trip.
func (w *window) reduce(to uint32) {
	w.ssthresh = max(to, 2*w.mss)
	w.cwnd = w.ssthresh
	w.credit = 0
}

// onlySYN is the flight of a SYN or SYN-ACK. Where that is lost, the initial window is one
// segment (RFC 5681 3.1), but nothing is known that a threshold could follow from.
const onlySYN = 1

// collapse sets the loss window of one segment after a timeout (RFC 5681 3.1).
func (w *window) collapse() {
	w.cwnd = w.mss
	w.credit = 0
}

// restart handles a long idle time: the path may have changed (RFC 5681 4.1). The threshold
// keeps three quarters of what was known, so that slow start gets back there quickly (RFC
// 2861 3.2).
func (w *window) restart() {
	w.ssthresh = max(w.ssthresh, w.cwnd/4*3)
	w.cwnd = min(w.cwnd, Initial(w.mss))
}
