package control_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/quic"
)

// stack3Config has HTTP/3 on the userspace stack, at clients and at one of two backends.
const stack3Config = `
devices:
  - {name: front, driver: %[1]s, queues: %[3]d, addresses: [198.18.0.9/24, "2001:db8::9/64"]}
  - {name: back1, driver: %[1]s, queues: %[3]d, addresses: [198.18.3.9/24, "2001:db8:3::9/64"]}
  - {name: back2, driver: %[1]s, queues: %[3]d, addresses: [198.18.4.9/24, "2001:db8:4::9/64"]}
stack: devices
listeners:
  - {name: plain, address: "198.18.0.9:80", protocol: HTTP}
  - name: safe
    address: ["198.18.0.9:443", "[2001:db8::9]:443"]
    protocol: HTTPS
    versions: ["1.1", "2", "3"]
    tls: {certificates: [{cert: %[2]s/gateway.pem}]}
routes:
  - name: all
    rules:
      - {matches: [{path: {value: /old}}], backend_refs: [{name: old}]}
      - {backend_refs: [{name: new}]}
pools:
  - {name: old, backends: [{name: b1, address: "198.18.3.2:8080"}]}
  - name: new
    protocol: H3
    tls: {server_name: backend.test, ca_file: %[2]s/backend.pem}
    backends: [{name: b2, address: "[2001:db8:4::2]:443"}]
`

// site3 is a site with HTTP/3.
type site3 struct {
	*site
	roots *x509.CertPool
}

func newSite3(t *testing.T, prefix, driver string, queues int) *site3 {
	t.Helper()
	s, _ := layOutQueues(t, prefix, queues)
	s.listen(0)
	dir := t.TempDir()
	front, roots := testcert.SelfSigned("gateway.test", net.ParseIP("198.18.0.9"), net.ParseIP("2001:db8::9"))
	s.must(writePair(filepath.Join(dir, "gateway.pem"), front))
	back, _ := testcert.SelfSigned("backend.test")
	s.must(writePair(filepath.Join(dir, "backend.pem"), back))
	server := &http3.Server{TLS: &tls.Config{Certificates: []tls.Certificate{back}}, Handler: http.HandlerFunc(answer3)}
	socket := s.packets(s.backends[1], "[2001:db8:4::2]:443")
	go func() { _ = server.Serve(socket) }()
	t.Cleanup(func() { _ = server.Close() })
	s.must(os.WriteFile(s.file, fmt.Appendf(nil, stack3Config, driver, dir, queues), 0o644))
	s.start("http://198.18.0.9/old")
	return &site3{s, roots}
}

// writePair writes a certificate and its key.
func writePair(file string, c tls.Certificate) error {
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
	return os.WriteFile(file, append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), 0o600)
}

// answer3 says who asks, and by what version, and returns the content.
func answer3(w http.ResponseWriter, req *http.Request) {
	at := netip.MustParseAddrPort(req.RemoteAddr)
	w.Header().Set("X-From", at.Addr().String()+" "+req.Proto)
	w.Header().Set("X-For", req.Header.Get("X-Forwarded-For"))
	_, _ = io.Copy(w, req.Body)
}

// packets opens a socket of the kernel in a namespace.
func (s *site) packets(ns *testnet.Namespace, at string) (pc *net.UDPConn) {
	s.t.Helper()
	s.must(ns.Do(func() error {
		l, err := net.ListenPacket("udp", at)
		if err == nil {
			pc = l.(*net.UDPConn)
		}
		return err
	}))
	return pc
}

// transport opens the socket of a client, with QUIC on it.
func (s *site3) transport(at string) *quic.Transport {
	s.t.Helper()
	t, err := quic.NewTransport(s.packets(s.client, at), quic.TransportConfig{})
	s.must(err)
	s.t.Cleanup(func() { _ = t.Close() })
	return t
}

// client3 is a client of HTTP/3 with a connection of its own.
func (s *site3) client3(q **quic.Conn) *http.Client {
	tr := &http3.Transport{
		TLS: &tls.Config{RootCAs: s.roots, ServerName: "gateway.test"},
		Dial: func(ctx context.Context, to string, tc *tls.Config, c *quic.Config) (*quic.Conn, error) {
			addr, err := net.ResolveUDPAddr("udp", to)
			if err != nil {
				return nil, err
			}
			conn, err := s.transport(":0").Dial(ctx, addr, tc, c)
			if q != nil {
				*q = conn
			}
			return conn, err
		},
	}
	s.t.Cleanup(func() { _ = tr.Close() })
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// post3 sends content and expects it back.
func post3(t *testing.T, c *http.Client, url string, n int) *http.Response {
	t.Helper()
	sent := &counting{left: n}
	resp, err := c.Post(url, "application/octet-stream", sent)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := &counting{left: n}
	if _, err := io.Copy(got, resp.Body); err != nil || resp.StatusCode != 200 || got.left != 0 || got.wrong {
		t.Fatalf("%s: %s, %d of %d bytes are missing, %v", url, resp.Status, got.left, n, err)
	}
	return resp
}

// counting is content of which each byte follows from its place: to be read, or to be compared.
type counting struct {
	at, left int
	wrong    bool
}

func (c *counting) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), c.left)]
	for i := range p {
		p[i] = byte((c.at + i) * 7 >> 3)
	}
	c.at, c.left = c.at+len(p), c.left-len(p)
	return len(p), nil
}

func (c *counting) Write(p []byte) (int, error) {
	for i := range p {
		c.wrong = c.wrong || p[i] != byte((c.at+i)*7>>3)
	}
	c.at, c.left = c.at+len(p), c.left-len(p)
	return len(p), nil
}

// With `stack: devices` HTTP/3 runs over UDP sockets of the userspace stack, to clients and to backends.
func TestHTTP3OnTheUserspaceStack(t *testing.T) {
	t.Parallel()
	for i, x := range stacks {
		t.Run(fmt.Sprint(x.driver, " ", x.queues), func(t *testing.T) {
			s := newSite3(t, fmt.Sprintf("mr-h3stack%d", i), x.driver, x.queues)
			for _, at := range []string{"198.18.0.9", "[2001:db8::9]"} {
				c := s.client3(nil)
				for _, n := range []int{0, 1, 5000, 1 << 20, 3} {
					resp := post3(t, c, "https://"+at+"/", n)
					if got := resp.Header.Get("X-From"); resp.ProtoMajor != 3 || got != "2001:db8:4::9 HTTP/3.0" {
						t.Errorf("%s: %s, from %q", at, resp.Proto, got)
					}
					if got := resp.Header.Get("X-For"); got != "198.18.0.2" && got != "2001:db8::2" {
						t.Errorf("the client is %q", got)
					}
				}
				resp, err := c.Get("https://" + at + "/old")
				s.must(err)
				body, err := io.ReadAll(resp.Body)
				if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != 200 {
					t.Errorf("%s: %q, %v", resp.Status, body, err)
				}
			}
		})
	}
}

// A reload keeps a connection of HTTP/3, also while its client moves to another port. The end of the gateway ends connections in
// order, and a port that nothing serves answers with ICMP.
func TestHTTP3OnTheUserspaceStackLives(t *testing.T) {
	t.Parallel()
	s := newSite3(t, "mr-h3life", "afxdp", 2)
	var q *quic.Conn
	c := s.client3(&q)
	post3(t, c, "https://198.18.0.9/", 1000)
	s.must(s.cmd.Process.Signal(syscall.SIGHUP))
	p, err := q.AddPath(s.transport("198.18.0.2:0"))
	s.must(err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s.must(p.Probe(ctx))
	s.must(p.Switch())
	post3(t, c, "https://198.18.0.9/", 100_000)
	if q.Context().Err() != nil {
		t.Error("the connection has ended")
	}
	var unreachable net.Conn
	s.must(s.client.Do(func() (err error) {
		unreachable, err = net.Dial("udp", "198.18.0.9:4443")
		return err
	}))
	defer unreachable.Close()
	s.must(unreachable.SetDeadline(time.Now().Add(time.Minute)))
	_, err = unreachable.Write([]byte("x"))
	s.must(err)
	if _, err := unreachable.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a closed port: %v", err)
	}
	s.must(s.cmd.Process.Signal(os.Interrupt))
	select {
	case <-q.Context().Done():
	case <-ctx.Done():
		t.Fatal("the connection stays")
	}
	var e *quic.ApplicationError
	if err := context.Cause(q.Context()); !errors.As(err, &e) || http3.ErrorCode(e.Code) != http3.NoError {
		t.Errorf("the connection ended with %v", err)
	}
	s.must(s.cmd.Wait())
}
