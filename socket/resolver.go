package socket

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
)

// Resolver returns a net.Resolver that sends its queries over sockets of the stack, by UDP, and by TCP where
// an answer is truncated. It asks servers in turn, or without any those of /etc/resolv.conf, and like package
// net it reads /etc/hosts first. A server on a loopback address is one of the stack, not of the kernel: where
// resolv.conf names a local cache, such as 127.0.0.53, servers have to be given.
func (s *Stack) Resolver(servers ...netip.AddrPort) *net.Resolver {
	var next atomic.Uint32
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		// The resolver dials once for each attempt: each goes to another server.
		if n := uint32(len(servers)); n > 0 {
			address = servers[(next.Add(1)-1)%n].String()
		}
		return s.DialContext(ctx, network, address)
	}}
}

// resolveBy returns the function of Config.Resolver for a net.Resolver.
func resolveBy(r *net.Resolver) func(ctx context.Context, name string) ([]netip.Addr, error) {
	return func(ctx context.Context, name string) ([]netip.Addr, error) { return r.LookupNetIP(ctx, "ip", name) }
}
