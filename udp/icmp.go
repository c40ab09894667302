package udp

import (
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/wire"
)

// ICMP handles an ICMP error about a datagram that this host sent. Only the socket that is
// connected to that flow learns of it (RFC 8085 5.2), and only of errors that later
// datagrams would meet too: a route may come back, and the path MTU is the node's concern.
// It reports whether there is such a socket, which validates the error. One about the path
// MTU is also valid where an unconnected socket has lately sent to the peer.
//
// A socket with Options.QueueErrors has each error in its queue, connected or not, and the
// soft ones are reported as well.
func (m *Mux) ICMP(now clock.Time, e *ip.ICMPError) bool {
	s := m.flows[e.Tuple]
	if s == nil {
		sent := m.recentPeers.has(&e.Tuple, m.cfg.Seed) // else it is forged (RFC 5927 4)
		if s = m.find(&e.Tuple, &Datagram{}); sent && s != nil && s.opts.QueueErrors {
			s.noteError(e)
			return true
		}
		return sent && e.Kind == ip.TooBig
	}
	s.noteError(e)
	return true
}

// noteError keeps an error for TakeErr and NextError.
func (s *Socket) noteError(e *ip.ICMPError) {
	err := hardError(e)
	if s.opts.QueueErrors {
		err = anyError(e)
		s.queueError(e, err)
	}
	if err != nil {
		s.err = err
		s.mark(Readable)
	}
}

// Error is an error that ICMP has reported about a datagram of a socket.
type Error struct {
	Err        error // as TakeErr has it
	Local      bool  // detected by the host itself: Type and Code are those that a router would have sent
	Type, Code uint8
	MTU        int       // of ErrTooLong
	From       wire.Addr // sender of the report
	Remote     wire.Addr // where the datagram was to go
	RemotePort uint16
	Data       []byte // of the datagram, as far as the report quotes it
}

// maxErrors bounds the queue of errors of a socket: later ones are lost.
const maxErrors = 32

func (s *Socket) queueError(e *ip.ICMPError, err error) {
	if len(s.errors) == maxErrors {
		return
	}
	q := Error{
		Err: err, Local: e.Local, Type: e.Type, Code: e.Code, From: e.From, Remote: e.Tuple.Remote, RemotePort: e.Tuple.RemotePort,
	}
	if e.Kind == ip.TooBig {
		q.MTU = e.MTU
	}
	if len(e.Quote) > wire.UDPLen {
		q.Data = slices.Clone(e.Quote[wire.UDPLen:])
	}
	s.errors = append(s.errors, q)
}

// NextError takes the oldest error that ICMP has reported. TakeErr has the one of the next entry then, as Linux's
// SO_ERROR: a program that takes entries until there is none has taken all errors.
func (s *Socket) NextError() (Error, bool) {
	if len(s.errors) == 0 {
		return Error{}, false
	}
	e := s.errors[0]
	s.errors, s.err = s.errors[1:], nil
	if len(s.errors) == 0 {
		s.errors = nil
	} else {
		s.err = s.errors[0].Err
	}
	return e, true
}

// Failed reports whether TakeErr or NextError has something.
func (s *Socket) Failed() bool { return s.err != nil || len(s.errors) > 0 }

// anyError returns the error that a kind stands for, as Linux does.
func anyError(e *ip.ICMPError) error {
	switch e.Kind {
	case ip.NetUnreachable:
		return ErrUnreachable
	case ip.HostUnreachable, ip.TimeExceeded:
		return ErrHost
	case ip.TooBig:
		return ErrTooLong
	case ip.ParameterProblem:
		return ErrProtocol
	}
	return hardError(e)
}

// hardError returns the error that e stands for, nil for soft ones (RFC 1122 4.1.3.3,
// 4.2.3.9). A neighbour that does not answer is reported by this host itself, so that no other
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
