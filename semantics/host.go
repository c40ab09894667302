package semantics

import (
	"net/netip"
	"strings"
)

// NormalizeHost returns a host, without port, in the one form that is compared with rules: in lower case, without the dot that ends
// an absolute name (RFC 1034 3.1), and an address of IPv6 as RFC 5952 writes it. Most hosts have that form, and are returned as they
// are. ok is false where an empty label is left at the end: such a name is none, and programs differ in what they make of it.
func NormalizeHost(host string) (normal string, ok bool) {
	if host == "" {
		return "", true
	}
	if host[0] == '[' {
		return normalAddress(host), true
	}
	if strings.HasSuffix(host, ".") {
		if host = host[:len(host)-1]; host == "" || host[len(host)-1] == '.' {
			return "", false
		}
	}
	if !all(host, notUpper) {
		host = strings.ToLower(host)
	}
	return host, true
}

// normalAddress returns an address of IPv6 in brackets as RFC 5952 writes it. What is none stays as it is.
func normalAddress(host string) string {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return host
	}
	var room [48]byte
	out := append(a.AppendTo(append(room[:0], '[')), ']')
	if string(out) == host {
		return host
	}
	return string(out)
}

// WithoutRootDot returns an authority without the dot that ends an absolute name. host is its Host. The port stays.
func WithoutRootDot(authority, host string) string {
	if !strings.HasSuffix(host, ".") {
		return authority
	}
	return host[:len(host)-1] + authority[len(host):]
}
