package proxy

import (
	ctls "crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
)

// cutConn ends the output after a number of bytes: by the end of the stream or a reset.
type cutConn struct {
	net.Conn
	left  int
	reset bool
}

func (c *cutConn) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	if _, err := c.Conn.Write(p[:n]); err != nil {
		return 0, err
	}
	if c.left > 0 || n == len(p) {
		return n, nil
	}
	if c.reset {
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
		_ = c.Conn.Close()
	} else {
		_ = c.Conn.(*net.TCPConn).CloseWrite()
	}
	return n, io.ErrClosedPipe
}

// Connections with TLS that end anywhere, within the handshake, a record or a request, leave nothing and disturb nobody.
func TestTLSCutAnywhere(t *testing.T) {
	r := newRig(t, echoBackend(t, false), nil)
	for at := 0; at < 1400; at += 23 {
		conn, err := net.Dial("tcp", r.secure)
		must(t, err)
		must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		tc := ctls.Client(&cutConn{conn, at, at%2 == 1}, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{"http/1.1"}})
		if tc.Handshake() == nil {
			_, _ = fmt.Fprintf(tc, "POST /cut HTTP/1.1\r\nHost: gateway.test\r\nContent-Length: %d\r\n\r\n%s", 1000, strings.Repeat("x", 1000))
			_, _ = io.Copy(io.Discard, conn)
		}
		_ = conn.Close()
	}
	post(t, r.client(false), "https://"+r.secure+"/", []byte("hello"))
	post(t, r.client(true), "https://"+r.secure+"/", []byte("hello"))
	r.settled()
}

// A backend that does not know how to begin a WebSocket gets none, and its client an error.
func TestWrongHandshakesOfBackends(t *testing.T) {
	const good = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
	ask := "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	for response, want := range map[string]string{
		good:                                     "101",
		strings.Replace(good, "s3pP", "S3pP", 1): "502",
		strings.Replace(good, "Sec-WebSocket-Accept", "X", 1):              "502",
		strings.Replace(good, "Upgrade: websocket", "Upgrade: h2c", 1):     "502",
		strings.Replace(good, "Upgrade: websocket\r\n", "", 1):             "502",
		strings.Replace(good, "Connection: upgrade\r\n", "", 1):            "502",
		"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n":       "426",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok":                   "200",
		"HTTP/1.1 200 OK\r\n" + strings.TrimPrefix(good, good[:34]) + "ok": "200",
	} {
		r := newMemRig(t, nil)
		r.rule.Backends[0].Pool.Body = 20 * time.Second
		r.backend = answers(response)
		c := r.connect(memHTTP1)
		c.Write([]byte(ask))
		r.run()
		if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%q: %q, want %s", response, got, want)
		}
		// What follows is a frame to a tunnel, and the next request to all else.
		back := ""
		r.backs[0].Handler = func(p *memtransport.Peer) { back += string(p.Take()) }
		c.Write([]byte("\x81\x85aaaahello"))
		r.run()
		if tunnel := strings.Contains(back, "\x81\x85"); tunnel != (want == "101") {
			t.Errorf("%q: the backend got %q", response, back)
		}
		r.nothingLeft(c)
	}
}
