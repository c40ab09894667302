package proxy

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/bounded"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/proxyproto"
)

// The PROXY protocol has a form for UDP (version 2, DGRAM), and no rule where the header is. As dnsdist and others do, each datagram of a
// peer that sends headers begins with one: QUIC has no first datagram that a receiver could rely on, since they are lost and reordered.
// Datagrams to the peer have none.

// relayed3 holds the clients that headers have named, by the addresses of the peers that relay them: one for each client.
type relayed3 struct {
	mu    sync.Mutex
	peers bounded.Map[netip.AddrPort, proxied]
	bad   atomic.Uint64 // datagrams without a valid header that no worker has counted yet
}

// proxied is a client that a header has named.
type proxied struct{ client, local netip.AddrPort }

// relayedMost bounds the peers that are remembered: until their connection is accepted.
const relayedMost = 1 << 16

// of returns the client of a connection, nil where no header has named one.
func (r *relayed3) of(c *quicconn.Conn) *proxied {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers.Get(remoteOf(c))
	if p == nil || !p.client.IsValid() {
		return nil
	}
	found := *p
	return &found
}

// strip returns the length of the header of a datagram, 0 for a peer that sends none, and -1 for one without a valid header (see
// quic.TransportConfig).
func (e *endpoint) strip(from *net.UDPAddr, b []byte) int {
	ln := e.current.Load()
	if ln == nil || !ln.ProxyDatagrams {
		return 0
	}
	peer := unmapped(from.AddrPort())
	if !ln.sendsHeader(peer.Addr()) {
		return 0
	}
	h, n, err := proxyproto.Parse(b, 0)
	if err != nil || n == 0 || h.Version != 2 || h.Relays() && h.Transport != proxyproto.Datagram {
		e.countBad()
		return -1
	}
	var p proxied // with LOCAL the peer speaks for itself
	if h.Relays() {
		p = proxied{unmapped(h.Source), unmapped(h.Destination)}
	}
	e.relayed.mu.Lock()
	*e.relayed.peers.Enter(peer, relayedMost) = p
	e.relayed.mu.Unlock()
	return n
}

// countBad has a worker count a datagram without a header. Several are counted at once: they come as fast as the network brings them.
func (e *endpoint) countBad() {
	if e.relayed.bad.Add(1) > 1 {
		return
	}
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	if len(e.members) == 0 {
		e.relayed.bad.Store(0)
		return
	}
	w := e.members[0].w
	go func() {
		if !w.Loop.Do(func() { w.counters.headers.Add(e.relayed.bad.Swap(0)) }) {
			e.relayed.bad.Store(0)
		}
	}()
}
