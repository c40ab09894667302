// Package udptunnel opens UDP sockets for clients that ask an HTTP server to relay datagrams (CONNECT-UDP, RFC 9298), and decides to which
// targets. It knows nothing of HTTP: a proxy gives it the datagrams of a tunnel, and takes those of the target.
//
// A tunnel sends packets from inside of a network to where a client says. So every target must be on a list, and addresses of the machine
// itself and of its links are none of it unless they are named as such.
package udptunnel

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Prefix is the path of the default template, before host and port (RFC 9298 3).
const Prefix = "/.well-known/masque/udp/"

// ParsePath returns the target that a path of the default template names: /.well-known/masque/udp/{host}/{port}/.
func ParsePath(path string) (host string, port uint16, err error) {
	rest, ok := strings.CutPrefix(path, Prefix)
	name, number, ok2 := strings.Cut(strings.TrimSuffix(rest, "/"), "/")
	if !ok || !ok2 || strings.Contains(number, "/") {
		return "", 0, fmt.Errorf("%w: the path is not %s{host}/{port}/", ErrTarget, Prefix)
	}
	host, err = url.PathUnescape(name)
	if err != nil || host == "" || len(host) > 253 {
		return "", 0, fmt.Errorf("%w: the host is %q", ErrTarget, name)
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() != "" || err != nil && !isName(host) {
		return "", 0, fmt.Errorf("%w: the host is %q", ErrTarget, name)
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%w: the port is %q", ErrTarget, number)
	}
	return host, uint16(n), nil
}

// isName reports whether a host is a name that DNS may have, and no other spelling of an address: resolvers of some systems read 0x7f.1 as
// one.
func isName(host string) bool {
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return false
		}
		for _, c := range []byte(l) {
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	last := labels[len(labels)-1]
	return last[0] < '0' || last[0] > '9' // no top-level domain begins with a digit (RFC 3696 2)
}

// Target is addresses and ports that tunnels may lead to.
type Target struct {
	Prefix      netip.Prefix
	First, Last uint16
}

// nat64 is the prefix whose addresses have one of IPv4 at their end (RFC 6052 2.1).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// permits returns why a target may not be reached, nil if it may. own are the addresses of the machine.
func permits(targets []Target, to netip.AddrPort, own []netip.Addr) error {
	a := to.Addr().Unmap()
	if a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || a.Is4() && a.As4()[0] == 0 {
		return fmt.Errorf("%w: %s is no address of a host", ErrDenied, a)
	}
	if nat64.Contains(a) {
		b := a.As16()
		if inner := netip.AddrFrom4([4]byte(b[12:])); special(inner, own) != "" {
			return fmt.Errorf("%w: %s stands for %s", ErrDenied, a, inner)
		}
	}
	kind := special(a, own)
	for _, t := range targets {
		if !t.Prefix.Contains(a) || to.Port() < t.First || to.Port() > t.Last {
			continue
		}
		if kind == "" || t.names(kind, a) {
			return nil
		}
	}
	if kind != "" {
		return fmt.Errorf("%w: %s is %s, which no target names as such", ErrDenied, a, kind)
	}
	return fmt.Errorf("%w: no target has %s", ErrDenied, to)
}

const (
	kindLoopback  = "a loopback address"
	kindLinkLocal = "a link-local address"
	kindOwn       = "an address of this machine"
)

// special returns which addresses a belongs to that a wide prefix does not mean; "" for others.
func special(a netip.Addr, own []netip.Addr) string {
	switch {
	case a.IsLoopback():
		return kindLoopback
	case a.IsLinkLocalUnicast():
		return kindLinkLocal
	case slices.Contains(own, a):
		return kindOwn
	}
	return ""
}

// names reports whether the target means addresses of a kind: its prefix has no others, or it is the one address.
func (t *Target) names(kind string, a netip.Addr) bool {
	first := t.Prefix.Masked().Addr()
	switch kind {
	case kindLoopback:
		return first.IsLoopback()
	case kindLinkLocal:
		return first.IsLinkLocalUnicast()
	}
	return t.Prefix.IsSingleIP() && first == a
}
