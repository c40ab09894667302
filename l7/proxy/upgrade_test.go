package proxy

//lint:file-ignore SA1019 x/net's HTTP/2 is a peer here: net/http has no extended CONNECT and no Upgrade to h2c

import (
	"context"
	ctls "crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/millrace/millrace/l7/pool"

	"github.com/millrace/millrace/websocket"
)

// socketBackend echoes messages over WebSockets.
func socketBackend(t *testing.T) string {
	t.Helper()
	s := served(t, func(w http.ResponseWriter, req *http.Request) { echoMessages(t, w, req) })
	return strings.TrimPrefix(s.URL, "http://")
}

// h2Stream is a stream of HTTP/2 as a connection.
type h2Stream struct {
	io.Reader
	io.WriteCloser
}

// connect2 opens a WebSocket by extended CONNECT, with x/net's client.
func (r *rig) connect2(ctx context.Context, path string) (*websocket.Conn, int) {
	r.t.Helper()
	tr := &http2.Transport{DialTLSContext: func(ctx context.Context, network, _ string, c *ctls.Config) (net.Conn, error) {
		c.RootCAs, c.ServerName = r.roots, "gateway.test"
		return (&ctls.Dialer{Config: c}).DialContext(ctx, network, r.secure)
	}}
	pr, pw := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, "CONNECT", "https://"+r.secure+path, pr)
	must(r.t, err)
	req.Header[":protocol"] = []string{"websocket"}
	req.Header.Set("Sec-WebSocket-Version", "13")
	resp, err := tr.RoundTrip(req)
	must(r.t, err)
	if resp.StatusCode != 200 {
		resp.Body.Close()
		return nil, resp.StatusCode
	}
	return websocket.NewConn(h2Stream{resp.Body, pw}, websocket.Client, websocket.ConnOptions{}), 200
}

// WebSockets pass between HTTP/1.1 and HTTP/2, and both ends see the other's Close.
func TestWebSockets(t *testing.T) {
	for _, back2 := range []bool{false, true} {
		backend := socketBackend(t)
		if back2 { // net/http refuses extended CONNECT: another gateway is the backend
			backend = newRig(t, backend, nil).addr
		}
		r := newRig(t, backend, func(r *rig) {
			if back2 {
				r.pool.Protocol = HTTP2
			}
		})
		for _, front2 := range []bool{false, true} {
			t.Run(map[bool]string{false: "h1", true: "h2"}[front2]+" to "+map[bool]string{false: "h1", true: "h2"}[back2], func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				var c *websocket.Conn
				if front2 {
					if _, status := r.connect2(ctx, "/no"); status != 403 {
						t.Errorf("status %d where the backend refuses", status)
					}
					c, _ = r.connect2(ctx, "/")
				} else {
					var err error
					if _, err = websocket.Dial(ctx, "ws://"+r.addr+"/no", nil); err == nil || !strings.Contains(err.Error(), "403") {
						t.Errorf("%v where the backend refuses", err)
					}
					c, err = websocket.Dial(ctx, "ws://"+r.addr+"/", nil)
					must(t, err)
				}
				for i := range 60 {
					want := strings.Repeat("x", i*i*7)
					must(t, c.WriteMessage(websocket.Text, []byte(want)))
					_, got, err := c.ReadMessage(nil)
					if err != nil || string(got) != want {
						t.Fatalf("message %d: %d bytes, %v", i, len(got), err)
					}
				}
				must(t, c.Close(websocket.CloseNormal, ""))
			})
		}
		r.settled()
	}
}

// A backend that ends its direction of a tunnel still gets what the client sends, and has not failed.
func TestTunnelsEndByDirections(t *testing.T) {
	got := make(chan string, 1)
	r := newRig(t, script(t, func(c net.Conn) {
		read(c)
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nbye")
		c.(*net.TCPConn).CloseWrite()
		all, _ := io.ReadAll(c)
		got <- string(all)
	}), nil)
	c, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	all, err := io.ReadAll(c)
	if err != nil || !strings.HasSuffix(string(all), "bye") {
		t.Errorf("%q %v", all, err)
	}
	io.WriteString(c, "late")
	c.(*net.TCPConn).CloseWrite()
	if s := <-got; s != "late" {
		t.Errorf("the backend got %q", s)
	}
	r.settled()
	if b := r.pool.Status(0).Backends[0]; b.Failures != [pool.Failures]uint64{} {
		t.Errorf("failures of the backend: %v", b.Failures)
	}
}

// A client that ends its direction first still gets what the backend sends.
func TestTunnelsOutliveTheClientsEnd(t *testing.T) {
	r := newRig(t, script(t, func(c net.Conn) {
		read(c)
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
		all, _ := io.ReadAll(c)
		io.WriteString(c, "after "+string(all))
	}), nil)
	c, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	head := make([]byte, 12)
	_, err = io.ReadFull(c, head)
	must(t, err)
	io.WriteString(c, "hello")
	c.(*net.TCPConn).CloseWrite()
	if all, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(all), "after hello") {
		t.Errorf("%q %v", all, err)
	}
	r.settled()
}
