// Package cc decides how much a TCP connection may have in flight and how fast it may send.
//
// A Controller is chosen by name: reno (RFC 5681, 6582), cubic (RFC 9438 with HyStart++, RFC 9406), bbr
// (after draft-ietf-ccwg-bbr) and dctcp (RFC 8257). It sees samples and events and gives a window and a pacing rate; what
// is lost, and when, is package tcp/loss's to find.
package cc

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Controller is the congestion control of one connection. Bytes are of sequence space.
type Controller interface {
	// OnAck takes the sample of an ACK that delivered something.
	OnAck(s *Sample)

	// OnEvent takes what happened that was no delivery. flight is the pipe before it.
	OnEvent(now clock.Time, e Event, flight uint32)

	// SetMSS tells the segment size, when it is known and when it changes.
	SetMSS(mss uint32)

	// Window is the congestion window, in bytes.
	Window() uint32

	// Threshold is what the window is to come down to in recovery, by PRR (RFC 6937); 0 says that Window
	// holds in recovery too.
	Threshold() uint32

	// Pacing is the rate to send at, in bytes per second; 0 is no pacing.
	Pacing() uint64
}

// Event is what a controller is told beside samples.
type Event uint8

// The events.
const (
	Lost       Event = iota // fast recovery begins
	Recovered               // the loss episode is over
	Timeout                 // the retransmission timer ran out, the first time in this episode
	Undo                    // the episode was no loss: restore what Lost or Timeout took
	Congestion              // ECN-Echo: one reduction, as for a loss (RFC 3168 6.1.2); at most once per round trip
	ProbeLost               // a tail loss was repaired by its probe: one reduction (RFC 8985 7.4.2)
	Restart                 // sending begins again after an idle time above the RTO (RFC 5681 4.1)
)

// Sample is what an ACK has shown; see package tcp/loss for the meaning of the first ones.
type Sample struct {
	Now       clock.Time
	Acked     uint32 // newly acknowledged by the cumulative ACK
	Delivered uint32 // newly arrived, by ACK or SACK
	Lost      uint32 // newly marked lost
	Marked    uint32 // bytes newly reported as having met congestion (CE)

	Flight uint32 // before this ACK
	Sent   uint32 // SND.NXT
	Una    uint32 // SND.UNA

	RTT, MinRTT, SRTT time.Duration // 0: none

	Total, TotalLost uint64 // bytes delivered, and lost, in all
	RateBytes        uint64
	RateInterval     time.Duration
	Prior, PriorLost uint64 // of Total and TotalLost, when the newest delivered segment was sent
	SentFlight       uint32 // pipe after that segment was sent

	AppLimited    bool // the rate sample was limited by the application
	WindowLimited bool // the window was the limit in the last round trip: it may grow (RFC 9438 5.8, RFC 2861)
	Recovery      bool // within a loss episode
	Resent        bool // the newest delivered segment was a retransmission
}
