// Package cc decides how much a TCP connection may have in flight and how fast it may send.
//
// A Controller is chosen by name: reno (RFC 5681, 6582), cubic (RFC 9438 with HyStart++,
// RFC 9406), bbr (after draft-ietf-ccwg-bbr) and dctcp (RFC 8257). It sees samples and
// events and sets a window and a pacing rate; what is lost, and when, is package
// tcp/loss's to find.
//
// The package is pure: times come in with samples and events.
package cc

import (
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
)

// Controller is the congestion control of one connection. Lengths are bytes.
type Controller interface {
	// OnAck handles the sample of an ACK that delivered something.
	OnAck(s Sample)

	// OnEvent handles what happened that was no delivery. flight is FlightSize (RFC 5681 2)
	// before it: sent and not acknowledged.
	OnEvent(now clock.Time, e Event, flight uint32)

	// SetMSS sets the segment size when it changes.
	SetMSS(mss uint32)

	// Window is the congestion window.
	Window() uint32

	// Threshold is the window to reach in fast recovery, by PRR (RFC 9937); 0
	// means that Window holds in recovery too.
	Threshold() uint32

	// Pacing is the rate to send at, bytes per second; 0 is unpaced.
	Pacing() uint64
}

// Event is an input of a controller beside samples.
type Event uint8

// The events.
const (
	Lost       Event = iota // fast recovery begins
	Recovered               // the loss episode is over
	Timeout                 // the retransmission timer ran out
	Backoff                 // it ran out again for the same data
	Undo                    // the episode was spurious: restore what Lost or Timeout took
	Congestion              // ECN-Echo: one reduction, as for a loss (RFC 3168 6.1.2); at most once per round trip
	ProbeLost               // a tail loss was repaired by its probe: one reduction (RFC 8985 7.4.2)
	Restart                 // sending begins again after an idle time above the RTO (RFC 5681 4.1)
)

// Sample holds the measurements of an ACK. loss.Sample explains the fields that have the same name.
type Sample struct {
	Now       clock.Time
	Acked     uint32 // for which the window may grow (RFC 5681 3.1): newly acknowledged by the cumulative ACK; 0 for duplicate ACKs
	Delivered uint32 // newly arrived, by ACK or SACK
	Lost      uint32 // newly marked lost
	Marked    uint32 // newly reported as having met congestion (CE)

	Flight    uint32 // pipe after this ACK
	Una, Next uint32 // SND.UNA and SND.NXT, after it

	RTT, MinRTT, SRTT time.Duration // 0: none

	Total, TotalLost uint64        // delivered, and lost, in all
	RateBytes        uint64        // delivered within RateInterval
	RateInterval     time.Duration // 0: no rate sample
	Prior, PriorLost uint64        // Total and TotalLost when the newest delivered segment was sent
	SentFlight       uint32        // pipe after it was sent

	AppLimited    bool // the application had nothing to send during the rate sample
	WindowLimited bool // the window limited sending recently: it may grow (RFC 7661, RFC 9438 5.8)
	FastRecovery  bool // PRR sets the window
}

// ErrUnknown is that no congestion control has the name.
var ErrUnknown = errors.New("cc: unknown congestion control")

// Default is the congestion control of connections whose options name none.
const Default = "cubic"

var controllers = map[string]func(mss uint32) Controller{
	"reno":  func(mss uint32) Controller { return newReno(mss) },
	"cubic": func(mss uint32) Controller { return newCubic(mss) },
	"bbr":   func(mss uint32) Controller { return newBBR(mss) },
	"dctcp": func(mss uint32) Controller { return newDCTCP(mss) },
}

// Known reports whether a congestion control has the name. "" is Default.
func Known(name string) bool { return name == "" || controllers[name] != nil }

// New returns the congestion control of that name for segments of mss bytes; "" is Default.
func New(name string, mss uint32) (Controller, error) {
	if name == "" {
		name = Default
	}
	if f := controllers[name]; f != nil {
		return f(mss), nil
	}
	return nil, ErrUnknown
}

// Pool has controllers that were given back, so that new connections need not allocate one.
// The zero value is ready; it belongs to one loop. Only cubic is kept: nearly all
// connections have it.
type Pool struct{ cubics []*cubic }

// maxSpare is the number of controllers that wait in a Pool.
const maxSpare = 4096

// New returns what the function New does, from the pool where it can.
func (p *Pool) New(name string, mss uint32) (Controller, error) {
	if n := len(p.cubics); n > 0 && (name == "" || name == Default) {
		c := p.cubics[n-1]
		p.cubics = p.cubics[:n-1]
		*c = cubic{window: newWindow(mss)}
		return c, nil
	}
	return New(name, mss)
}

// Put takes back what New returned, which must not be used any more.
func (p *Pool) Put(c Controller) {
	if c, ok := c.(*cubic); ok && len(p.cubics) < maxSpare {
		p.cubics = append(p.cubics, c)
	}
}

// Names lists what New knows, sorted.
func Names() []string {
	names := make([]string, 0, len(controllers))
	for n := range controllers {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Initial is the initial window for segments of mss bytes (RFC 6928 2): ten segments.
func Initial(mss uint32) uint32 { return min(10*mss, max(2*mss, 14600)) }
