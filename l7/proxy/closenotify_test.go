package proxy

import (
	"bytes"
	ctls "crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// tapped is a connection that keeps what it reads. crypto/tls takes the end of a connection between two records for that of the
// stream, so that a test has to look for close_notify itself.
type tapped struct {
	net.Conn
	read bytes.Buffer
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Write(p[:n])
	return n, err
}

// notified reports whether the last record is an alert: encrypted ones of TLS 1.3 are known by their length (RFC 8446 5.2).
func (c *tapped) notified() bool {
	kind, size := byte(0), 0
	for p := c.read.Bytes(); len(p) >= 5; {
		kind, size = p[0], int(p[3])<<8|int(p[4])
		p = p[min(len(p), 5+size):]
	}
	return kind == 21 || kind == 23 && size == 2+1+16
}

// dialTapped opens a connection with TLS.
func (r *rig) dialTapped(protocol string, version uint16) (*ctls.Conn, *tapped) {
	r.t.Helper()
	raw, err := net.Dial("tcp", r.secure)
	must(r.t, err)
	r.t.Cleanup(func() { _ = raw.Close() })
	must(r.t, raw.SetDeadline(time.Now().Add(patience)))
	tap := &tapped{Conn: raw}
	return ctls.Client(tap, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{protocol}, MaxVersion: version}), tap
}

// read1 sends bytes over TLS and returns what comes back, and whether close_notify ends it.
func (r *rig) read1(bytes string, version uint16) (answer string, notified bool) {
	r.t.Helper()
	c, tap := r.dialTapped("http/1.1", version)
	_, err := io.WriteString(c, bytes)
	must(r.t, err)
	all, _ := io.ReadAll(c)
	return string(all), tap.notified()
}

var bothTLS = []uint16{ctls.VersionTLS12, ctls.VersionTLS13}

// The last response of a connection is followed by close_notify: without it a client cannot tell that the response is whole.
func TestTheLastResponseIsFollowedByCloseNotify(t *testing.T) {
	r := newRig(t, echoBackend(t, false), func(r *rig) { r.tree.Listeners[1].Limits.Requests = 2 })
	const get = "GET / HTTP/1.1\r\nHost: gateway.test\r\n"
	for name, c := range map[string]struct {
		send, want string
	}{
		"Connection: close":    {get + "Connection: close\r\n\r\n", "HTTP/1.1 200"},
		"HTTP/1.0":             {"GET / HTTP/1.0\r\nHost: gateway.test\r\n\r\n", "HTTP/1.1 200"},
		"a long response":      {"POST / HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 300000), "HTTP/1.1 200"},
		"400":                  {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
		"the last one allowed": {get + "\r\n" + get + "\r\n", "HTTP/1.1 200"},
	} {
		for _, version := range bothTLS {
			if got, notified := r.read1(c.send, version); !notified || !strings.HasPrefix(got, c.want) {
				t.Errorf("%s, TLS %x: %.60q without close_notify", name, version, got)
			}
		}
	}
	c, tap := r.dialTapped("h2", ctls.VersionTLS13)
	_, err := io.WriteString(c, http2.ClientPreface)
	must(t, err)
	f := http2.NewFramer(c, c)
	must(t, f.WriteSettings())
	must(t, f.WriteData(1, true, nil)) // of a stream that is idle: an error of the connection
	goAway := false
	for err == nil {
		var frame http2.Frame
		if frame, err = f.ReadFrame(); err == nil {
			_, is := frame.(*http2.GoAwayFrame)
			goAway = goAway || is
		}
	}
	if !tap.notified() || !goAway {
		t.Errorf("after GOAWAY (%v): %v, without close_notify", goAway, err)
	}
}

// A response that is cut has no close_notify behind it: to a client of HTTP/1.0, and to one that reads up to the end, it would look whole.
func TestACutResponseIsNotFollowedByCloseNotify(t *testing.T) {
	for name, response := range map[string]string{
		"chunked":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"a length":   "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
		"in a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhello",
	} {
		backend := script(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, response)
			time.Sleep(50 * time.Millisecond) // the client has what there is
		})
		r := newRig(t, backend, nil)
		for _, version := range []string{"1.0", "1.1"} {
			for _, v := range bothTLS {
				if got, notified := r.read1(fmt.Sprintf("GET / HTTP/%s\r\nHost: gateway.test\r\n\r\n", version), v); notified || !strings.Contains(got, "hello") {
					t.Errorf("%s to HTTP/%s, TLS %x: %.100q, and then close_notify (%v)", name, version, v, got, notified)
				}
			}
		}
	}
}
