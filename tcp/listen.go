package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
)

// Listener takes connections to a local address and port.
type Listener struct {
	m     *Mux
	local ip.Addr
	port  uint16
	owner Owner
	queue []*Conn
	opts  *Options
}

// Listen takes connections to port at local, any address where that is zero. At most backlog of them
// wait to be accepted.
func (m *Mux) Listen(local ip.Addr, port uint16, backlog int, o *Options, owner Owner) (*Listener, error) {
	return nil, ErrInUse
}

// Accept returns the connection that waits longest, nil where none does. It belongs to the caller,
// who names its owner with SetOwner.
func (l *Listener) Accept() *Conn { return nil }

// Addr returns the address and the port that l listens on.
func (l *Listener) Addr() (ip.Addr, uint16) { return l.local, l.port }

// Close ends l and resets the connections that nobody has accepted.
func (l *Listener) Close(now clock.Time) {}

// passive takes a segment that belongs to no connection of the table: for a listener, a half-open or a
// TIME-WAIT record, or for nobody (RFC 9293 3.10.7.1 and 3.10.7.2).
func (m *Mux) passive(now clock.Time, t *ip.Tuple, s *Segment) packet.Verdict {
	return packet.DropNoSocket
}
