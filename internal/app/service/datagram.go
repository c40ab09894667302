package service

import (
	"errors"
	"net"
	"net/netip"
	"time"
)

// maxDatagram holds any UDP datagram.
const maxDatagram = 1 << 16

// ServePacket answers the datagrams of pc, which it takes, until Shutdown or Close (ErrClosed) or until pc
// fails.
func (s *Server) ServePacket(pc net.PacketConn) error {
	if !s.kind.Datagrams() {
		pc.Close()
		return errors.New("service: " + string(s.kind) + " takes no datagrams")
	}
	if !s.open(pc, func() { pc.Close() }) {
		pc.Close()
		return ErrClosed
	}
	defer s.leave(pc)
	take := s.reply(pc)
	if s.iperf != nil {
		take = s.iperf.datagrams(pc)
	}
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err == nil {
			s.datagrams.Add(1)
			s.in.Add(uint64(n))
			take(buf[:n], from)
			continue
		}
		if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil || !s.passing(err) {
			return s.ending(err)
		}
	}
}

// passing reports whether an error of a packet conn is one of a datagram that we sent before, such as "connection
// refused", which the kernel reports to the next reader.
func (s *Server) passing(err error) bool {
	var e net.Error
	if errors.As(err, &e) && e.Timeout() {
		return false
	}
	var op *net.OpError
	if !errors.As(err, &op) {
		return false
	}
	s.acceptErrors.Add(1)
	time.Sleep(time.Millisecond) // whatever it is, it costs little
	return true
}

// reserved is the first port that ordinary clients have: below are services, which might answer our answer,
// and so on without end.
const reserved = 1024

// reply returns a function that answers a datagram.
func (s *Server) reply(pc net.PacketConn) func([]byte, net.Addr) {
	out := make([]byte, 0, maxDatagram)
	return func(b []byte, from net.Addr) {
		if portOf(from) < reserved {
			s.unanswered.Add(1)
			return
		}
		if a := s.answer(out[:0], b); a != nil {
			s.send(pc, a, from)
		}
	}
}

// send sends a datagram and counts it.
func (s *Server) send(pc net.PacketConn, b []byte, to net.Addr) bool {
	n, err := pc.WriteTo(b, to)
	s.out.Add(uint64(n))
	if err != nil {
		s.sendFailures.Add(1)
	}
	return err == nil
}

// portOf returns the port of an address, 0 where it has none.
func portOf(a net.Addr) uint16 { return addrPort(a).Port() }

// addrPort returns an address and port in one form, the zero AddrPort where a has none.
func addrPort(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.UDPAddr:
		ap = a.AddrPort()
	case *net.TCPAddr:
		ap = a.AddrPort()
	default:
		ap, _ = netip.ParseAddrPort(a.String())
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
