package proxy

import (
	"bufio"
	"bytes"
	ctls "crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/internal/testkit/cut"
	"github.com/millrace/millrace/proxyproto"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// header returns a header that names 198.18.0.9:999 as the client.
func header(t *testing.T, version uint8, change func(h *proxyproto.Header)) []byte {
	t.Helper()
	h := proxyproto.TCP(version, netip.MustParseAddrPort("198.18.0.9:999"), netip.MustParseAddrPort("198.18.0.1:443"))
	if change != nil {
		change(&h)
	}
	b, err := h.Append(nil)
	must(t, err)
	return b
}

// headerConn sends a header before the first bytes, cut in some way.
type headerConn struct {
	net.Conn
	header []byte
	size   cut.Size
}

func (c *headerConn) Write(p []byte) (int, error) {
	if c.header == nil {
		return c.Conn.Write(p)
	}
	all := append(c.header, p...)
	c.header = nil
	for len(all) > 0 {
		n := c.size(len(all))
		if _, err := c.Conn.Write(all[:n]); err != nil {
			return 0, err
		}
		all = all[n:]
	}
	return len(p), nil
}

// The addresses of a header become the client's, on listeners of every kind and however the header is cut.
func TestTakesProxyHeaders(t *testing.T) {
	r := newRig(t, echoBackend(t, false), func(r *rig) {
		for _, ln := range r.tree.Listeners {
			ln.ProxyProtocol = loopback
		}
	})
	v2tls := header(t, 2, func(h *proxyproto.Header) {
		h.Checksum = true
		h.TLVs, _ = h.TLVs.Append(proxyproto.TypeAuthority, []byte("name.test"))
		h.TLVs, _ = h.TLVs.AppendSSL(proxyproto.SSL{Client: proxyproto.ClientSSL})
	})
	local := header(t, 2, func(h *proxyproto.Header) { h.Local = true })
	socket := header(t, 2, func(h *proxyproto.Header) {
		*h = proxyproto.Header{Version: 2, Family: proxyproto.Unix, Transport: proxyproto.Stream}
	})
	for _, h := range [][]byte{header(t, 1, nil), header(t, 2, nil), v2tls, local, socket, []byte("PROXY UNKNOWN\r\n")} {
		want := "198.18.0.9"
		if bytes.Equal(h, local) || bytes.Equal(h, socket) || h[6] == 'U' {
			want = "127.0.0.1"
		}
		for name, size := range map[string]cut.Size{"whole": cut.Whole, "bytewise": cut.Bytewise, "random": cut.Random(3)} {
			for _, secure := range []bool{false, true} {
				addr := r.addr
				if secure {
					addr = r.secure
				}
				c, err := net.Dial("tcp", addr)
				must(t, err)
				c.SetDeadline(time.Now().Add(time.Minute))
				var conn net.Conn = &headerConn{c, bytes.Clone(h), size}
				if secure {
					conn = ctls.Client(conn, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"})
				}
				io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Errorf("%.16q %s %v: %v", h, name, secure, err)
				} else if body, _ := io.ReadAll(resp.Body); resp.Header.Get("X-For") != want || string(body) != "abc" {
					t.Errorf("%.16q %s %v: %v %q", h, name, secure, resp.Header, body)
				}
				conn.Close()
			}
		}
	}
	r.settled()
}

// A peer that has to send a header is not served without one, and what others send is no header.
func TestProxyHeadersAreRequiredOfTrustedPeersOnly(t *testing.T) {
	r := newRig(t, echoBackend(t, false), func(r *rig) {
		r.tree.Listeners[0].ProxyProtocol = loopback
		r.tree.Listeners[0].Timeouts.Handshake = 300 * time.Millisecond
		r.tree.Listeners[1].ProxyProtocol = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}
	})
	late := header(t, 2, nil)
	bad := header(t, 2, func(h *proxyproto.Header) { h.Checksum = true })
	bad[len(bad)-1] ^= 1
	long := header(t, 2, func(h *proxyproto.Header) { h.TLVs, _ = h.TLVs.Append(proxyproto.TypeNoop, make([]byte, 5000)) })
	cases := [][]byte{[]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), bad, long, late[:20], []byte("PROXY TCP4 1.1.1.1\r\n"), nil}
	for _, in := range cases {
		c, err := net.Dial("tcp", r.addr)
		must(t, err)
		c.SetDeadline(time.Now().Add(time.Minute))
		c.Write(in)
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%.20q: %v", in, err)
		}
		c.Close()
	}
	c, err := net.Dial("tcp", r.addr) // the end in a header
	must(t, err)
	c.Write(late[:20])
	c.(*net.TCPConn).CloseWrite()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("cut: %v", err)
	}
	c.Close()
	if got := r.worker.Stats().Headers; got != uint64(len(cases)+1) {
		t.Errorf("%d connections without a header, want %d", got, len(cases)+1)
	}
	c, err = net.Dial("tcp", r.secure)
	must(t, err)
	defer c.Close()
	c.Write(late)
	if _, err := ctls.Client(c, &ctls.Config{InsecureSkipVerify: true}).Write([]byte("a")); err == nil {
		t.Error("the header of a peer that is not trusted is taken")
	}
}

// seen is what a backend knows of a connection.
type seen struct {
	header proxyproto.Header
	serial int // of the connection
}

// headed is a backend whose connections begin with headers. It answers requests with what they said, or passes bytes back.
func headed(t *testing.T, h2 bool, tls *ctls.Config) string {
	var mu sync.Mutex
	serial := 0
	s := &http.Server{ConnContext: nil}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		x := req.Context().Value(seenKey{}).(*seen)
		alpn, _ := x.header.TLVs.Find(proxyproto.TypeALPN)
		name, _ := x.header.TLVs.Find(proxyproto.TypeAuthority)
		ssl, _ := x.header.TLVs.SSL()
		version, _ := ssl.TLVs.Find(proxyproto.SubtypeVersion)
		fmt.Fprintf(w, "%d v%d %v %v %s %s %s", x.serial, x.header.Version, x.header.Source, x.header.Destination, alpn, name, version)
	})
	s.ConnContext = contextOfConn
	if h2 {
		s.Protocols = new(http.Protocols)
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ready := &headedListener{Listener: l, t: t, tls: tls, wrap: func(h proxyproto.Header) *seen {
		mu.Lock()
		defer mu.Unlock()
		serial++
		return &seen{h, serial}
	}}
	go s.Serve(ready)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// Each client's requests come on connections with the header of that client, and connections end with it.
func TestSendsProxyHeaders(t *testing.T) {
	for _, c := range []struct {
		name    string
		version uint8
		tlvs    bool
		h2, tls bool
	}{
		{"v1", 1, false, false, false}, {"v2", 2, true, false, false}, {"v2 h2", 2, false, true, false}, {"v1 tls", 1, true, false, true}, {"v2 tls", 2, true, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var config *ctls.Config
			r := newRig(t, "127.0.0.1:1", func(r *rig) {
				r.pool.ProxyHeader = ProxyHeader{Version: c.version, TLVs: c.tlvs}
				if c.tls {
					config = r.tree.Listeners[1].TLS.Clone()
					config.NextProtos = nil
					r.pool.TLS = &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"}
				}
				if c.h2 {
					r.pool.Protocol = HTTP2
				}
				r.repoint(headed(t, c.h2, config))
			})
			serials := map[string]string{}
			var conns []net.Conn
			for i := range 3 {
				conn, err := ctls.Dial("tcp", r.secure, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{"http/1.1"}})
				must(t, err)
				conn.SetDeadline(time.Now().Add(time.Minute))
				conns = append(conns, conn)
				in := bufio.NewReader(conn)
				for range 3 { // on the same connection of the backend
					io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
					resp, err := http.ReadResponse(in, nil)
					must(t, err)
					body, err := io.ReadAll(resp.Body)
					must(t, err)
					serial, rest, _ := strings.Cut(string(body), " ")
					want := fmt.Sprintf("v%d %v %v", c.version, conn.LocalAddr(), conn.RemoteAddr())
					if c.tlvs && c.version == 2 {
						want += " http/1.1 gateway.test TLSv1.3"
					}
					if strings.TrimSpace(rest) != want {
						t.Fatalf("client %d: %q, want %q", i, rest, want)
					}
					if was := serials[want]; was != "" && was != serial {
						t.Errorf("client %d: connection %s of the backend after %s", i, serial, was)
					}
					serials[want] = serial
				}
			}
			if len(serials) != 3 {
				t.Errorf("%v", serials)
			}
			for _, c := range conns {
				c.Close()
			}
			r.abandoned()
		})
	}
}

// abandoned waits until no connection to a backend is open or remembered.
func (r *rig) abandoned() {
	r.t.Helper()
	left := -1
	for end := time.Now().Add(20 * time.Second); left != 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		r.do(func() {
			left = 0
			for k := range r.worker.backs {
				if k.owner != nil {
					left++
				}
			}
			for _, b := range r.pool.Backends() {
				left += b.Connections()
			}
		})
	}
	if left != 0 {
		r.t.Errorf("%d connections to backends are left", left)
	}
}

// Streams carry the header too, before what the client has sent.
func TestStreamsSendProxyHeaders(t *testing.T) {
	got := make(chan string, 1)
	backend := script(t, func(c net.Conn) {
		all, _ := io.ReadAll(c)
		got <- string(all)
	})
	for _, mode := range []StreamMode{StreamTCP, StreamTLS} {
		var ln *Listener
		r := newRig(t, "127.0.0.1:1", func(r *rig) {
			ln = r.streams(mode, streamRule{backends: []string{backend}})
			ln.Rules[0].Backends[0].Pool.ProxyHeader = ProxyHeader{Version: 2, TLVs: true}
			ln.ProxyProtocol = loopback
		})
		hello := rawHello(t, &ctls.Config{ServerName: "a.test", NextProtos: []string{"h2"}})
		c := dial(t, ln)
		c.Write(header(t, 1, nil))
		c.Write(hello)
		c.CloseWrite()
		all := <-got
		h, n, err := proxyproto.Parse([]byte(all), 0)
		must(t, err)
		name, _ := h.TLVs.Find(proxyproto.TypeAuthority)
		wantName := ""
		if mode == StreamTLS {
			wantName = "a.test"
		}
		if h.Source.String() != "198.18.0.9:999" || h.Destination.String() != "198.18.0.1:443" || string(name) != wantName || all[n:] != string(hello) {
			t.Errorf("%+v %q %d bytes", h, name, len(all)-n)
		}
		c.Close()
		r.passed()
	}
}

// curl sends headers as HAProxy does.
func TestTakesHeadersOfCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	r := newRig(t, echoBackend(t, false), func(r *rig) {
		for _, ln := range r.tree.Listeners {
			ln.ProxyProtocol = loopback
		}
		r.tree.Listeners[0].HTTP2, r.tree.Listeners[0].HTTP1 = nil, &http1.Options{}
	})
	for _, url := range []string{"http://" + r.addr, "https://" + r.secure} {
		out, err := exec.Command(curl, "-sSki", "-m", "20", "--haproxy-protocol", url).CombinedOutput()
		if err != nil || !strings.Contains(strings.ToLower(string(out)), "x-for: 127.0.0.1\r\n") {
			t.Errorf("%s: %s %v", url, out, err)
		}
		out, err = exec.Command(curl, "-sSki", "-m", "20", url).CombinedOutput()
		if err == nil {
			t.Errorf("without a header: %s", out)
		}
	}
}
