package quicconn

import (
	"context"
	"net"
	"net/netip"

	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/socket"
)

// Opener opens a transport of QUIC on a UDP socket. The zero address is any, with a port of the system's choice: for
// connections to backends. An unspecified address is that of its own version of IP alone.
//
// It waits for the loops of a userspace stack, as methods of the transport do that open, close or configure its socket. So a
// loop that called one of them would wait for itself.
type Opener func(at netip.AddrPort, c quic.TransportConfig) (*quic.Transport, error)

// OverKernel is the Opener of the kernel's sockets.
func OverKernel(at netip.AddrPort, c quic.TransportConfig) (*quic.Transport, error) {
	pc, err := net.ListenUDP(network(at), net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	c.Messages = nil // package quic knows what the kernel's have
	return transportOn(pc, c)
}

// OverStack returns the Opener of sockets of a userspace stack. Each has a part on every loop, because the loop that a packet
// comes to follows from its addresses, and those of a connection may change.
func OverStack(s *socket.Stack) Opener {
	return func(at netip.AddrPort, c quic.TransportConfig) (*quic.Transport, error) {
		address := ":0"
		if at.IsValid() {
			address = at.String()
		}
		pc, err := s.ListenPacketWith(context.Background(), &socket.ListenConfig{}, network(at), address)
		if err != nil {
			return nil, err
		}
		c.Messages = pc
		return transportOn(pc, c)
	}
}

// transportOn takes a socket.
func transportOn(pc net.PacketConn, c quic.TransportConfig) (*quic.Transport, error) {
	t, err := quic.NewTransport(pc, c)
	if err != nil {
		_ = pc.Close()
	}
	return t, err
}

// network returns the network of an address for package net.
func network(at netip.AddrPort) string {
	switch {
	case !at.IsValid():
		return "udp"
	case at.Addr().Unmap().Is4():
		return "udp4"
	}
	return "udp6"
}
