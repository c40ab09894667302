package udp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
)

// ICMP tells of an ICMP error about a datagram that this host sent. Only the socket that is
// connected to the very flow hears of it (RFC 8085 5.2), and only of those errors that
// later datagrams would meet too: a route may come back, and the path MTU is the node's
// business. It reports whether there is such a socket, which vouches for the error; for one
// about the path MTU it is enough that an unconnected socket has sent to the peer lately.
func (m *Mux) ICMP(now clock.Time, e *ip.ICMPError) bool {
	s := m.flows[e.Tuple]
	if s == nil {
		return e.Kind == ip.TooBig && m.recentPeers.has(&e.Tuple, m.cfg.Seed)
	}
	if err := hardError(e.Kind); err != nil {
		s.err = err
		s.mark(Readable)
	}
	return true
}

// hardError returns the error that a kind stands for, nil for the soft ones (RFC 1122
// 4.1.3.3, 4.2.3.9).
func hardError(k ip.ErrorKind) error {
	switch k {
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
