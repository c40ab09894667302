package bgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dial connects to a router by the kernel's TCP.
func Dial(ctx context.Context, p *Peer) (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		e := c.Control(func(fd uintptr) { err = setOptions(int(fd), p) })
		return errors.Join(e, err)
	}}
	if p.LocalAddress.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.LocalAddress, 0))
	}
	conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(p.Address, p.Port).String())
	if errors.Is(err, unix.EADDRNOTAVAIL) && p.LocalAddress.IsValid() {
		return nil, fmt.Errorf("%w (local_address is to be an address of the kernel: ip address add %v dev DEV)", err, p.LocalAddress)
	}
	return conn, err
}

// setOptions sets the options of a socket that must be there before the first packet.
func setOptions(fd int, p *Peer) error {
	if p.Password != "" {
		if err := setPassword(fd, p); err != nil {
			return err
		}
	}
	level, ttl, least, class := unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MINTTL, unix.IP_TOS
	if p.Address.Is6() {
		level, ttl, least, class = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT, unix.IPV6_TCLASS
	}
	switch {
	case p.TTLSecurity: // RFC 5082 3: both sides send 255, so that what arrives with less was further away
		if err := unix.SetsockoptInt(fd, level, ttl, 255); err != nil {
			return fmt.Errorf("ttl_security: %w", err)
		}
		if err := unix.SetsockoptInt(fd, level, least, 256-max(p.Hops, 1)); err != nil {
			return fmt.Errorf("ttl_security: %w", err)
		}
	case p.Hops > 0:
		if err := unix.SetsockoptInt(fd, level, ttl, p.Hops); err != nil {
			return fmt.Errorf("hops: %w", err)
		}
	}
	return unix.SetsockoptInt(fd, level, class, 0xc0) // network control, RFC 4271 appendix E
}

// setPassword gives a socket the key of its peer (RFC 2385).
func setPassword(fd int, p *Peer) error {
	sig := unix.TCPMD5Sig{Keylen: uint16(len(p.Password))}
	copy(sig.Key[:], p.Password)
	if p.Address.Is4() {
		sig.Addr.Family = unix.AF_INET
		copy(sig.Addr.Data[2:], p.Address.AsSlice()) // sockaddr_in: port, address
	} else {
		sig.Addr.Family = unix.AF_INET6
		copy(sig.Addr.Data[6:], p.Address.AsSlice()) // sockaddr_in6: port, flow label, address
	}
	if err := unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &sig); err != nil {
		return fmt.Errorf("password_file: %w (the kernel is to have CONFIG_TCP_MD5SIG)", err)
	}
	return nil
}
