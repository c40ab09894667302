package health

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// once asks the address once, by the kernel's stack.
func once(t *testing.T, c *Check, address string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), c.Timeout)
	defer cancel()
	target := Target{At: netip.MustParseAddrPort(address), Backend: "b1", Service: "web"}
	return cause(ctx, newProbe(c, nil)(ctx, target), c.Timeout)
}

// expect compares the cause of a probe with the words it shall have; "" is a success.
func expect(t *testing.T, err error, words string) {
	t.Helper()
	if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
		t.Errorf("%v, want %q", err, words)
	}
}

// site answers as its paths say, and notes the last request. A request may still be answered when the
// probe that sent it has given up.
type site struct{ last atomic.Pointer[http.Request] }

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.last.Store(r)
	switch r.URL.Path {
	case "/503":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/moved":
		http.Redirect(w, r, "/503", http.StatusMovedPermanently)
	case "/early":
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
	case "/late":
		<-r.Context().Done()
	case "/deep": // the word begins at the last octet that counts, or one before
		fmt.Fprintf(w, "%sready", strings.Repeat(".", maxBody-len(r.URL.RawQuery)))
	case "/endless":
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	default:
		io.WriteString(w, "all is ready")
	}
}

func TestAnHTTPAnswerIsJudged(t *testing.T) {
	s := &site{}
	srv := httptest.NewServer(s)
	defer srv.Close()
	for _, c := range []struct {
		name   string
		change func(h *HTTP)
		want   string
	}{
		{"as it is", func(*HTTP) {}, ""},
		{"503", func(h *HTTP) { h.Path = "/503" }, "wrong answer: status 503, not 200-399"},
		{"503 is what is wanted", func(h *HTTP) { h.Path, h.Status = "/503", []StatusRange{{404, 404}, {500, 599}} }, ""},
		{"a redirect is not followed", func(h *HTTP) { h.Path = "/moved" }, ""},
		{"and not taken for its target", func(h *HTTP) { h.Path, h.Status = "/moved", []StatusRange{{200, 300}} }, "status 301, not 200-300"},
		{"early hints are not the answer", func(h *HTTP) { h.Path, h.Status = "/early", []StatusRange{{200, 200}} }, ""},
		{"no answer", func(h *HTTP) { h.Path = "/late" }, "no answer within 200ms"},
		{"the body has it", func(h *HTTP) { h.Body = "ready" }, ""},
		{"the body lacks it", func(h *HTTP) { h.Body = "Ready" }, `wrong answer: the body (12 bytes read) lacks "Ready"`},
		{"just within 64 KiB", func(h *HTTP) { h.Path, h.Body = "/deep?12345", "ready" }, ""},
		{"one octet beyond", func(h *HTTP) { h.Path, h.Body = "/deep?1234", "ready" }, "(65536 bytes read) lacks"},
		{"an endless body", func(h *HTTP) { h.Path, h.Body = "/endless", "ready" }, "(65536 bytes read) lacks"},
		{"an endless body that nobody reads", func(h *HTTP) { h.Path = "/endless" }, ""},
		{"HEAD", func(h *HTTP) { h.Method = "HEAD" }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := New()
			check.Type, check.Timeout = TypeHTTP, 200*time.Millisecond
			if c.want != "no answer within 200ms" {
				check.Timeout = 10 * time.Second
			}
			c.change(&check.HTTP)
			if p := check.Validate(); check.Timeout < check.Interval && len(p) > 0 {
				t.Fatal(p)
			}
			expect(t, once(t, check, srv.Listener.Addr().String()), c.want)
		})
	}
}

func TestAnHTTPRequestIsAsConfigured(t *testing.T) {
	s := &site{}
	srv := httptest.NewServer(s)
	defer srv.Close()
	c := New()
	c.Type = TypeHTTP
	expect(t, once(t, c, srv.Listener.Addr().String()), "")
	if r := s.last.Load(); r.Method != "GET" || r.RequestURI != "/" || r.Host != srv.Listener.Addr().String() || !r.Close {
		t.Errorf("%+v", r)
	}
	c.HTTP.Method, c.HTTP.Path, c.HTTP.Host = "POST", "/a%20b?c=d", "web.example:8080"
	expect(t, once(t, c, srv.Listener.Addr().String()), "")
	if r := s.last.Load(); r.Method != "POST" || r.RequestURI != "/a%20b?c=d" || r.Host != "web.example:8080" || r.ContentLength != 0 {
		t.Errorf("%+v", r)
	}
}

// listen serves each connection by f, until the test ends.
func listen(t *testing.T, f func(c *net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().String()
}

// request reads a request, up to its empty line.
func request(c net.Conn) {
	buf := make([]byte, 4096)
	for n := 0; n < len(buf) && !strings.Contains(string(buf[:n]), "\r\n\r\n"); {
		m, err := c.Read(buf[n:])
		if err != nil {
			return
		}
		n += m
	}
}

func TestServersThatAreNoneAreUnhealthy(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer string
		times  int
		reset  bool
		want   string
	}{
		{"closes", "", 0, false, "http: unexpected EOF"},
		{"resets", "", 0, true, "connection reset by peer"},
		{"speaks ssh", "SSH-2.0-x\r\n", 1, false, `malformed HTTP`},
		{"never ends its header", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 1000), 100, false, "wrong answer: more than 65536 bytes of header"},
		{"continues for ever", "HTTP/1.1 100 Continue\r\n\r\n", 10000, false, "wrong answer: more than 65536 bytes of header"},
		{"lies about its length", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab", 1, false, "http: body: unexpected EOF"},
		{"has no reason phrase", "HTTP/1.0 200\r\n\r\nxyz", 1, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := listen(t, func(conn *net.TCPConn) {
				request(conn)
				for range c.times {
					io.WriteString(conn, c.answer)
				}
				if c.reset {
					conn.SetLinger(0)
				}
			})
			check := New()
			check.Type, check.Timeout = TypeHTTP, 10*time.Second
			if check.HTTP.Body = "xyz"; c.times == 100 {
				check.HTTP.Body = ""
			}
			expect(t, once(t, check, at), c.want)
		})
	}
}

// hello starts a TLS server with httptest's certificate (example.com, 127.0.0.1, ::1) and returns
// its address, and where the name that the client sent appears.
func hello(t *testing.T) (*httptest.Server, chan string) {
	t.Helper()
	names := make(chan string, 1)
	srv := httptest.NewUnstartedServer(&site{})
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		names <- h.ServerName
		return nil, nil
	}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv, names
}

func TestACertificateIsCompared(t *testing.T) {
	srv, names := hello(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		http HTTP
		sni  string
		want string
	}{
		{"nobody vouches for it", HTTP{}, "", "handshake: tls: failed to verify certificate"},
		{"any will do", HTTP{Insecure: true}, "", ""},
		{"any will do for a name", HTTP{Insecure: true, Host: "web.example:443"}, "web.example", ""},
		{"the address is in it", HTTP{CAFile: ca}, "", ""},
		{"the host is in it", HTTP{CAFile: ca, Host: "example.com:8443"}, "example.com", ""},
		{"the host is not", HTTP{CAFile: ca, Host: "web.example"}, "web.example", "not web.example"},
		{"the server name counts before the host", HTTP{CAFile: ca, Host: "web.example", ServerName: "example.com"}, "example.com", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := New()
			check.Type, check.Interval, check.Timeout = TypeHTTPS, time.Minute, 10*time.Second
			c.http.Method, c.http.Path, c.http.Status = "GET", "/", check.HTTP.Status
			check.HTTP = c.http
			if p := check.Validate(); len(p) > 0 {
				t.Fatal(p)
			}
			expect(t, once(t, check, srv.Listener.Addr().String()), c.want)
			if got := <-names; got != c.sni {
				t.Errorf("SNI is %q, want %q", got, c.sni)
			}
		})
	}
}

func TestAHandshakeThatHangsTimesOut(t *testing.T) {
	at := listen(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	for _, typ := range []Type{TypeHTTP, TypeHTTPS} {
		c := New()
		c.Type, c.Timeout = typ, 50*time.Millisecond
		if err := once(t, c, at); !errors.Is(err, ErrTimeout) {
			t.Errorf("%s: %v", typ, err)
		}
	}
	c := New()
	c.Type = TypeHTTPS
	c.Timeout = 10 * time.Second
	expect(t, once(t, c, listen(t, func(c *net.TCPConn) { io.WriteString(c, "220 mail ready\r\n") })), "handshake: tls: first record does not look like a TLS handshake")
}

func TestAnAuthorityFileIsRead(t *testing.T) {
	c := New()
	c.Type, c.HTTP.CAFile = TypeHTTPS, filepath.Join(t.TempDir(), "ca.pem")
	has := func(words string) {
		t.Helper()
		p := c.Validate()
		if (len(p) == 0) != (words == "") || len(p) > 0 && (p[0].Key != "http.ca_file" || !strings.Contains(p[0].Message, words)) {
			t.Errorf("%v, want %q", p, words)
		}
	}
	has("no such file")
	os.WriteFile(c.HTTP.CAFile, []byte("not PEM"), 0o600)
	has("has no certificate")
	srv, _ := hello(t)
	os.WriteFile(c.HTTP.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600)
	has("")
	if !strings.Contains(c.settings(), "BEGIN CERTIFICATE") {
		t.Error("other authorities are the same check")
	}
}

// canned is a connection that answers with given bytes, however it is asked.
type canned struct {
	net.Conn
	io.Reader
}

func (c canned) Read(b []byte) (int, error)  { return c.Reader.Read(b) }
func (c canned) Write(b []byte) (int, error) { return len(b), nil }

func FuzzHTTPAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\n\r\nready", "HTTP/1.1 503 No\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 No\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nready\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nre", "SSH-2.0-x\r\n",
	} {
		f.Add([]byte(s))
	}
	check := New()
	check.Type, check.HTTP.Body = TypeHTTP, "ready"
	p := newHTTPProbe(check, nil)
	f.Fuzz(func(t *testing.T, answer []byte) {
		err := p.exchange(canned{Reader: strings.NewReader(string(answer))}, Target{At: netip.MustParseAddrPort(first)})
		if err == nil && !(strings.HasPrefix(string(answer), "HTTP/") && strings.Contains(string(answer), "y")) {
			t.Errorf("%q is a success", answer)
		}
	})
}
