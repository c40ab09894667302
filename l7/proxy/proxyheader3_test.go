package proxy

import (
	"context"
	ctls "crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/proxyproto"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/socket"
)

// prefixingConn begins each datagram with a header.
type prefixingConn struct {
	net.PacketConn
	header []byte
}

func (c *prefixingConn) WriteTo(b []byte, to net.Addr) (int, error) {
	_, err := c.PacketConn.WriteTo(append(c.header[:len(c.header):len(c.header)], b...), to)
	return len(b), err
}

// headed returns a client of HTTP/3 that relays another one.
func (r *rig) headed(t *testing.T, header []byte) *http.Client {
	t.Helper()
	var pc net.PacketConn
	var err error
	if over.peers != nil {
		pc, err = over.peers.ListenPacketWith(t.Context(), &socket.ListenConfig{}, "udp4", "198.18.0.1:0")
	} else {
		pc, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	}
	must(t, err)
	tr, err := quic.NewTransport(&prefixingConn{pc, header}, quic.TransportConfig{})
	must(t, err)
	t.Cleanup(func() { _ = tr.Close() })
	h := &http3.Transport{TLS: &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"}}
	h.Dial = func(ctx context.Context, to string, tc *ctls.Config, c *quic.Config) (*quic.Conn, error) {
		addr, err := net.ResolveUDPAddr("udp", to)
		if err != nil {
			return nil, err
		}
		return tr.Dial(ctx, addr, tc, c)
	}
	t.Cleanup(func() { _ = h.Close() })
	return &http.Client{Transport: h, Timeout: patience}
}

// seen returns the client that the backend was given, and the error of the request.
func (r *rig) seen(c *http.Client) (string, error) {
	w, err := c.Get("https://" + r.secure + "/")
	if err != nil {
		return "", err
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	return string(b), err
}

// datagramHeader is a header for UDP.
func datagramHeader(t *testing.T, client string, change func(h *proxyproto.Header)) []byte {
	return header(t, 2, func(h *proxyproto.Header) {
		h.Transport, h.Source = proxyproto.Datagram, netip.MustParseAddrPort(client)
		if change != nil {
			change(h)
		}
	})
}

// Datagrams of peers that send headers have the addresses of their clients, which count for all that comes of them. Several clients have
// one peer address each.
func TestHeadersOfHTTP3(t *testing.T) {
	r := headedRig(t, netip.MustParsePrefix("0.0.0.0/0"))
	for _, client := range []string{"198.51.100.7:1234", "[2001:db8::7]:99"} {
		want := netip.MustParseAddrPort(client).Addr().String()
		c := r.headed(t, datagramHeader(t, client, func(h *proxyproto.Header) {
			if at := netip.MustParseAddrPort(client); at.Addr().Is6() {
				h.Family, h.Destination = proxyproto.IPv6, netip.MustParseAddrPort("[2001:db8::1]:443")
			}
		}))
		for range 2 {
			if got, err := r.seen(c); got != want || err != nil {
				t.Errorf("%s: %q, %v", client, got, err)
			}
		}
	}
	local := r.headed(t, header(t, 2, func(h *proxyproto.Header) { *h = proxyproto.Header{Version: 2, Local: true} }))
	if got, err := r.seen(local); err != nil || netip.MustParseAddr(got).Is6() || got == "198.51.100.7" {
		t.Errorf("LOCAL: %q, %v", got, err)
	}
}

// Datagrams without a valid header are dropped and counted where they must have one, and headers of others are no QUIC.
func TestWrongHeadersOfHTTP3(t *testing.T) {
	r := headedRig(t, netip.MustParsePrefix("0.0.0.0/0"))
	for name, h := range map[string][]byte{
		"none": {}, "version 1": header(t, 1, nil), "version 1, unknown": []byte("PROXY UNKNOWN\r\n"), "of TCP": header(t, 2, nil), "cut": datagramHeader(t, "198.51.100.7:1", nil)[:20], "no datagram": nil,
	} {
		c := r.headed(t, h)
		c.Timeout = 300 * time.Millisecond // only waiting shows that it has no answer
		if got, err := r.seen(c); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	r.eventually("datagrams to be counted", func() bool { return r.worker.Stats().Headers > 0 })
	other := headedRig(t, netip.MustParsePrefix("203.0.113.0/24"))
	c := other.headed(t, datagramHeader(t, "198.51.100.7:1", nil))
	c.Timeout = 300 * time.Millisecond
	if got, err := other.seen(c); err == nil {
		t.Errorf("a peer that is not trusted: %q", got)
	}
	if got, err := other.seen(other.headed(t, nil)); err != nil || got == "198.51.100.7" {
		t.Errorf("a peer without a header: %q, %v", got, err)
	}
}

// headedRig has a backend that answers with the client's address.
func headedRig(t *testing.T, from netip.Prefix) *rig {
	backend := served(t, func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, q.Header.Get("X-Forwarded-For")) })
	return http3Rig(t, backend.Listener.Addr().String(), func(r *rig) {
		ln := r.tree.Listeners[1]
		ln.ProxyProtocol, ln.ProxyDatagrams = []netip.Prefix{from}, true
	})
}
