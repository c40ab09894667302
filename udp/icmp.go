package udp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
)

// ICMP handles an ICMP error about a datagram that this host sent. Only the socket that is
// connected to that flow learns of it (RFC 8085 5.2), and only of errors that later
// datagrams would meet too: a route may come back, and the path MTU is the node's concern.
// It reports whether there is such a socket, which validates the error. One about the path
// MTU is also valid where an unconnected socket has lately sent to the peer.
func (m *Mux) ICMP(now clock.Time, e *ip.ICMPError) bool {
	s := m.flows[e.Tuple]
	if s == nil {
		return e.Kind == ip.TooBig && m.recentPeers.has(&e.Tuple, m.cfg.Seed)
	}
	if err := hardError(e); err != nil {
		s.err = err
		s.mark(Readable)
	}
	return true
}

// hardError returns the error that e stands for, nil for soft ones (RFC 1122 4.1.3.3,
// 4.2.3.9). A neighbour that does not answer is reported by this host itself, so that nobody
// can forge it (RFC 1122 2.4: the link layer must be able to report failures upwards).
func hardError(e *ip.ICMPError) error {
	switch e.Kind {
	case ip.HostUnreachable:
		if e.Local {
			return ErrHost
		}
	case ip.PortUnreachable:
		return ErrRefused
	case ip.ProtoUnreachable:
		return ErrProtocol
	case ip.Prohibited:
		return ErrProhibited
	}
	return nil
}

// TakeErr returns and clears the error that ICMP reported to a connected socket; nil is
// none.
func (s *Socket) TakeErr() error {
	err := s.err
	s.err = nil
	return err
}
