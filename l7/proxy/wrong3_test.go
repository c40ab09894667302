package proxy

import (
	"bytes"
	"context"
	ctls "crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/quic"
)

// recording is what a backend over the kernel's sockets gets, by connection.
type recording struct {
	mu          sync.Mutex
	connections []*bytes.Buffer
}

// recordingBackend answers each request that is whole, and closes the connection.
func recordingBackend(t *testing.T) (addr string, got *recording) {
	got = &recording{}
	return script(t, func(c net.Conn) {
		got.mu.Lock()
		kept := new(bytes.Buffer)
		got.connections = append(got.connections, kept)
		got.mu.Unlock()
		buf := make([]byte, 64<<10)
		for {
			n, err := c.Read(buf)
			got.mu.Lock()
			kept.Write(buf[:n])
			requests, _ := wrongcases.Parse(kept.Bytes())
			got.mu.Unlock()
			if len(requests) > 0 && requests[0].Whole {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
				return
			}
			if err != nil {
				return
			}
		}
	}), got
}

// take returns what was received since the call before: a connection that was opened for a request that is refused may serve the
// next.
func (r *recording) take() (all [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.connections {
		if b.Len() > 0 {
			all = append(all, bytes.Clone(b.Bytes()))
			b.Reset()
		}
	}
	return all
}

// The requests of the corpus that are fields, over HTTP/3.
func TestWrongInputHTTP3(t *testing.T) {
	backend, got := recordingBackend(t)
	r := http3Rig(t, backend, nil)
	tr := quicSocket(t)
	addr, err := net.ResolveUDPAddr("udp", r.secure)
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var conn *quic.Conn
	for _, c := range wrongcases.Downgrades() {
		if conn == nil {
			conn, err = tr.Dial(ctx, addr, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{"h3"}}, nil)
			must(t, err)
			control, err := conn.OpenUniStream(ctx)
			must(t, err)
			_, err = io.WriteString(control, "\x00\x04\x00") // its type, and SETTINGS without any
			must(t, err)
		}
		s, err := conn.OpenStream(ctx)
		must(t, err)
		_, err = io.WriteString(s, c.HTTP3())
		if err != nil && !errors.As(err, new(*quic.StreamError)) {
			t.Fatalf("%s: %v", c.Name, err)
		}
		wait := 20 * time.Second
		if c.Open {
			wait = 100 * time.Millisecond
		} else {
			_ = s.Close()
		}
		_ = s.SetReadDeadline(time.Now().Add(wait))
		answer, err := io.ReadAll(s)
		if err != nil && errors.As(err, new(net.Error)) && !c.Open {
			t.Errorf("%s: no answer: %v", c.Name, err)
		}
		s.CancelRead(0x10c)
		if conn.Context().Err() != nil {
			conn = nil // refused as a whole
		}
		all := got.take()
		if err := c.Check(all...); err != nil {
			t.Errorf("%s (%s): %v\nsent %q %.200q %q\nreceived %.300q, answered %.100q", c.Name, c.Origin, err, c.Fields, c.Data, c.Trailers, all, answer)
		}
	}
}
