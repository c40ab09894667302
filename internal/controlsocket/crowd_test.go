package controlsocket

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// crowd is a server on a control socket, and clients that send the same bytes again whenever they are closed, and read nothing.
type crowd struct {
	path   string
	client *Client
}

func newCrowd(t *testing.T, h http.HandlerFunc, clients int, text string, await func(context.Context, net.Conn)) crowd {
	t.Helper()
	path := t.TempDir() + "/control.sock"
	l, err := Listen(path, errors.New("in use"))
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(h, maxRequests, slog.New(slog.DiscardHandler))
	srv.ReadHeaderTimeout, srv.ReadTimeout = time.Hour, time.Hour // which alone would let others in
	served := make(chan error, 1)
	go func() { served <- srv.Serve(LimitConns(l)) }()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		stop()
		srv.Close()
		<-served
		wg.Wait()
	})
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				c, err := net.Dial("unix", path)
				if err != nil {
					continue
				}
				ended := context.AfterFunc(ctx, func() { c.Close() })
				_, _ = io.WriteString(c, text)
				await(ctx, c)
				ended()
				c.Close()
			}
		})
	}
	return crowd{path, NewClient(path, Server{NotRunning: errors.New("not running")})}
}

// readToEnd waits until the server closes c.
func readToEnd(_ context.Context, c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// writeToEnd does so without reading: a write fails then.
func writeToEnd(ctx context.Context, c net.Conn) {
	for ctx.Err() == nil {
		if _, err := c.Write([]byte("x")); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// asks sends n requests, of which none may fail.
func (c crowd) asks(t *testing.T, n int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	for i := range n {
		if err := c.client.Call(ctx, http.MethodGet, "/v1/status", nil, nil); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
}

// TestReconnectingHalves: clients that send half a request, and connect anew as soon as they are closed, stop no whole one.
func TestReconnectingHalves(t *testing.T) {
	c := newCrowd(t, func(w http.ResponseWriter, _ *http.Request) { Reply(w, struct{}{}) }, 300, "GET /v1/status HTTP/1.1\r\nHost: x\r\nX: ", readToEnd)
	c.asks(t, 50)
}

// TestClientsThatDoNotRead: clients with whole requests that read no answer, and more than fit in their sockets, stop no other.
func TestClientsThatDoNotRead(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	c := newCrowd(t, func(w http.ResponseWriter, _ *http.Request) { Reply(w, long) }, maxConns, "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", writeToEnd)
	c.asks(t, 3)
}
