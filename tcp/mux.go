package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
)

// Config says how a Mux works. Output is needed; the zero values of the rest are defaults.
type Config struct {
	Output Output
	Now    clock.Time // the time at which the Mux begins
	Secret [32]byte   // of initial sequence numbers, cookies and timestamps (RFC 6528); the same for all loops of a host
	Seed   uint64     // of random numbers that need not be secret

	Budget      int64         // bytes of all buffers; 0 is 64 MiB
	MaxConns    int           // 0 is 1<<20
	MaxHalfOpen int           // records of connections that are being accepted; 0 is 65 536; cookies serve beyond
	MaxTimeWait int           // records of connections that wait for old segments; 0 is 65 536
	TimeWait    time.Duration // how long TIME-WAIT lasts, 2 MSL; 0 is 60 s

	// Owns reports whether segments of the flow come to this Mux; nil is that all do. Connect chooses a
	// local port with which they do.
	Owns func(t *ip.Tuple) bool

	Defaults Options // of connections and listeners that have none
}

// Mux holds the connections and listeners of one loop. It does not lock: all calls for it and for its
// connections come from the owner of the loop.
type Mux struct {
	cfg   Config
	stats Stats
	front front
}

// NewMux returns a Mux without connections.
func NewMux(cfg Config) *Mux {
	m := &Mux{cfg: cfg}
	m.initFront()
	return m
}

// Input takes a segment that arrived for t, which names the flow as this host sees it. Addresses and
// checksum have been verified. The answer is Deliver or the reason of its drop. What it causes to be
// sent leaves with the next Poll.
func (m *Mux) Input(now clock.Time, t *ip.Tuple, s *Segment) packet.Verdict {
	return m.passive(now, t, s)
}

// Poll runs timers that are due, sends what may be sent, and tells owners what became possible. It
// returns when it wants to be called again at the latest; a call of Input or of a connection's methods
// wants a Poll at once.
func (m *Mux) Poll(now clock.Time) clock.Time { return clock.Never }

// Connect begins to connect to t's remote end. Where LocalPort is 0 it chooses a free one that Owns
// approves. The owner hears Connected, or Closed.
func (m *Mux) Connect(now clock.Time, t ip.Tuple, o *Options, owner Owner) (*Conn, error) {
	return nil, ErrNoPort
}

// Each calls f for every connection.
func (m *Mux) Each(f func(*Conn)) {}

// Stats returns the counters.
func (m *Mux) Stats() Stats { return m.stats }
