package http3

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
)

// maxUnshared bounds the servers that are remembered for having refused a shared connection.
const maxUnshared = 1024

// shared returns a connection to another server that may carry requests for to (RFC 9114 3.3): to the same address,
// with a certificate that is valid for both. It returns nil if there is none.
func (t *Transport) shared(ctx context.Context, to destination) *clientConn {
	candidates := t.candidates(to)
	if len(candidates) == 0 {
		return nil
	}
	host, port, err := net.SplitHostPort(to.addr)
	if err != nil {
		return nil
	}
	ips, err := t.lookup(ctx, host)
	if err != nil {
		return nil // dialing says so
	}
	for _, c := range candidates {
		remote, ok := c.q.RemoteAddr().(*net.UDPAddr)
		if !ok || strconv.Itoa(remote.Port) != port {
			continue
		}
		at := remote.AddrPort().Addr().Unmap()
		if slices.ContainsFunc(ips, func(ip netip.Addr) bool { return ip.Unmap() == at }) && t.authoritative(c, to.name) {
			return c
		}
	}
	return nil
}

// candidates returns the connections to other servers, unless to has refused one.
func (t *Transport) candidates(to destination) (list []*clientConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, refused := t.unshared[to]; refused {
		return nil
	}
	for other, d := range t.conns {
		if other != to && d.complete() && !d.shared && d.usable() {
			list = append(list, d.c)
		}
	}
	return list
}

// authoritative reports whether the certificate of a connection is valid for a name. Where the configuration checks
// another name than that of the URL, or none, no connection is shared.
func (t *Transport) authoritative(c *clientConn, name string) bool {
	state := c.q.State().TLS
	if !state.HandshakeComplete || len(state.PeerCertificates) == 0 {
		return false
	}
	if t.TLS == nil {
		return state.PeerCertificates[0].VerifyHostname(name) == nil
	}
	if t.TLS.InsecureSkipVerify || t.TLS.ServerName != "" || state.PeerCertificates[0].VerifyHostname(name) != nil {
		return false
	}
	state.ServerName = name
	return t.TLS.VerifyConnection == nil || t.TLS.VerifyConnection(state) == nil
}

// misdirected reports whether a response 421 came over a shared connection, and has later requests use one of their
// own (RFC 9110 15.5.20).
func (t *Transport) misdirected(to destination, resp *http.Response) bool {
	if resp.StatusCode != http.StatusMisdirectedRequest {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.conns[to]
	if d == nil || !d.shared {
		return false
	}
	delete(t.conns, to)
	if t.unshared == nil || len(t.unshared) >= maxUnshared {
		t.unshared = map[destination]struct{}{}
	}
	t.unshared[to] = struct{}{}
	return true
}

// lookup resolves a name.
func (t *Transport) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if t.Lookup != nil {
		return t.Lookup(ctx, host)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
