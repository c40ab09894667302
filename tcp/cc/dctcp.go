package cc

import "github.com/millrace/millrace/clock"

// gainDCTCP is g of RFC 8257 4.2.
const gainDCTCP = 1.0 / 16

// dctcp reduces the window in proportion to how much was marked, not by half for any mark
// (RFC 8257). It needs switches that mark at a low queue length, and is for data centres
// only (RFC 8257 5).
type dctcp struct {
	reno
	alpha          float64 // DCTCP.Alpha
	arrived, marks uint32  // bytes in this observation window
	end            uint32  // DCTCP.WindowEnd, with begun
	begun          bool
}

// newDCTCP begins with alpha 1: the first marks halve the window (RFC 8257 4.2).
func newDCTCP(mss uint32) *dctcp { return &dctcp{reno: *newReno(mss), alpha: 1} }

// OnAck implements Controller.
func (d *dctcp) OnAck(s Sample) {
	d.observe(&s)
	d.reno.OnAck(s)
}

// observe is steps 1 to 7 of RFC 8257 3.3.
func (d *dctcp) observe(s *Sample) {
	d.arrived += s.Delivered
	d.marks += min(s.Marked, s.Delivered)
	if !d.begun {
		d.begun, d.end = true, s.Next
	}
	if int32(s.Una-d.end) < 0 || d.arrived == 0 {
		return
	}
	d.alpha += gainDCTCP * (float64(d.marks)/float64(d.arrived) - d.alpha)
	d.arrived, d.marks, d.end = 0, 0, s.Next
}

// OnEvent implements Controller. Losses are as for reno (RFC 8257 3.5).
func (d *dctcp) OnEvent(now clock.Time, e Event, flight uint32) {
	if e != Congestion {
		d.reno.OnEvent(now, e, flight)
		return
	}
	d.save()
	d.reduce(uint32(float64(d.cwnd) * (1 - d.alpha/2))) // RFC 8257 3.3 step 9
}
