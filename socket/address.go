package socket

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/wire"
)

// family is the digit at the end of a network's name.
type family byte

// parseNetwork splits a network name: "tcp4" is "tcp" and '4'. Without a digit both families are allowed.
func parseNetwork(name string) (proto string, f family, err error) {
	proto = name
	if strings.HasSuffix(name, "4") || strings.HasSuffix(name, "6") {
		proto, f = name[:len(name)-1], family(name[len(name)-1])
	}
	if proto != "tcp" && proto != "udp" {
		return "", 0, net.UnknownNetworkError(name)
	}
	return proto, f, nil
}

// allows reports whether a is of the family. An IPv4-mapped IPv6 address counts as IPv4.
func (f family) allows(a netip.Addr) bool { return f == 0 || (f == '4') == a.Unmap().Is4() }

// unspecified returns the unspecified address of the family. Of both it is that of IPv6, as for a
// dual-stack socket (RFC 3493 5.3).
func (f family) unspecified() wire.Addr {
	if f == '4' {
		return wire.Unspecified4
	}
	return wire.Addr{}
}

// localAddr returns the address to bind to. An empty host is the unspecified address.
func localAddr(f family, p netip.AddrPort) (wire.Addr, error) {
	a := p.Addr()
	if !a.IsValid() {
		return f.unspecified(), nil
	}
	if !f.allows(a) {
		return wire.Addr{}, &net.AddrError{Err: "no suitable address", Addr: p.String()}
	}
	return wire.AddrFrom(a), nil
}

// checkLocal returns EADDRNOTAVAIL for an address that a socket of this stack cannot bind to: without the
// check, packets would leave with the address of another host. UDP sockets may also bind to multicast and
// broadcast addresses.
func (s *Stack) checkLocal(a wire.Addr, datagrams bool) error {
	h := s.group.Hosts[0] // it has all addresses; the other loops follow it
	h.Enter()
	defer h.Exit()
	return checkLocalOn(h, a, datagrams)
}

// checkLocalOn is checkLocal by the holder of a loop.
func checkLocalOn(h *host.Host, a wire.Addr, datagrams bool) error {
	if a.Unspecified() || datagrams && a.Multicast() {
		return nil
	}
	if h.IP.Usable(a) || datagrams && h.IP.Local(ip.LoopDev, a) == ip.Broadcast {
		return nil
	}
	return os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)
}

// parsePort reads a number or the name of a service.
func parsePort(proto, s string) (uint16, error) {
	if s == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(s, 10, 16); err == nil {
		return uint16(n), nil
	}
	n, err := net.LookupPort(proto, s)
	return uint16(n), err
}

// resolve appends the addresses of a "host:port" to out. For an empty host it appends the invalid
// netip.Addr.
func (s *Stack) resolve(ctx context.Context, out []netip.AddrPort, proto string, f family, address string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n, err := parsePort(proto, service)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return append(out, netip.AddrPortFrom(netip.Addr{}, n)), nil
	}
	// Most addresses are numeric and need no allocation. A zone is dropped: routes choose the interface.
	if a, err := netip.ParseAddr(host); err == nil && f.allows(a) {
		return append(out, netip.AddrPortFrom(a.WithZone("").Unmap(), n)), nil
	}
	addrs, err := s.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if f.allows(a) {
			out = append(out, netip.AddrPortFrom(a.Unmap(), n))
		}
	}
	if len(out) == 0 {
		return nil, &net.AddrError{Err: "no suitable address", Addr: host}
	}
	return out, nil
}

func (s *Stack) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{a.WithZone("")}, nil
	}
	return s.resolver(ctx, name)
}
