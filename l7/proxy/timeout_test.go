package proxy

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/link"
)

// Each phase of a request has its time: a backend or client that stalls in one is cut off.
func TestStalledPhasesEnd(t *testing.T) {
	const d = 300 * time.Millisecond
	for _, c := range []struct {
		name    string
		request string
		backend string
		set     func(r *rig)
		want    string // what the answer begins with, and ends with
		end     string
	}{
		{"header of a request", "GET / HT", "", func(r *rig) { r.each(func(l *Listener) { l.Timeouts.Header = d }) }, "HTTP/1.1 408", ""},
		{"content of a request", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", "", func(r *rig) { r.each(func(l *Listener) { l.Timeouts.Body = d }) }, "HTTP/1.1 408", ""},
		{"header of a response", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1 2", func(r *rig) { r.rule.Attempt = d }, "HTTP/1.1 504", ""},
		{"content of a response", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", func(r *rig) { r.pool.Body = d }, "HTTP/1.1 200", "abc"},
		{"the whole request", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", func(r *rig) { r.rule.Request = d }, "HTTP/1.1 200", "abc"},
		{"between requests", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", func(r *rig) { r.each(func(l *Listener) { l.Timeouts.Idle = d }) }, "HTTP/1.1 200", "x"},
		{
			"a tunnel", "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
			"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nabc",
			func(r *rig) { r.each(func(l *Listener) { l.Timeouts.Tunnel = d }) }, "HTTP/1.1 101", "abc",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, script(t, func(conn net.Conn) {
				read(conn)
				io.WriteString(conn, c.backend)
				io.Copy(io.Discard, conn)
			}), c.set)
			conn, err := net.Dial("tcp", r.addr)
			must(t, err)
			defer conn.Close()
			io.WriteString(conn, c.request)
			began := time.Now()
			conn.SetReadDeadline(began.Add(20 * time.Second))
			all, err := io.ReadAll(conn)
			if now := time.Now(); now.Before(began.Add(d / 2)) {
				t.Errorf("after %v", now.Sub(began))
			}
			if ne, ok := err.(net.Error); ok && ne.Timeout() || !strings.HasPrefix(string(all), c.want) || !strings.HasSuffix(string(all), c.end) {
				t.Errorf("%q %v", all, err)
			}
			r.settled()
		})
	}
}

// each changes both listeners.
func (r *rig) each(f func(l *Listener)) {
	for _, l := range r.tree.Listeners {
		f(l)
	}
}

// A client of HTTP/1.1 that is not read, since the backend takes nothing, has not stopped: the time of the content is not over, but
// that of what is sent to the backend will be.
func TestSlowBackendIsNoSlowClient(t *testing.T) {
	for _, relays := range []bool{false, true} {
		r := newMemRig(t, func(r *memRig, _ *Tree) { r.rule.Attempt = 0 })
		r.loop.Relays = relays
		r.backend = func(p *memtransport.Peer) { p.Window = 1000 }
		client := r.connect(memHTTP1)
		client.Write([]byte("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n"))
		client.Write(make([]byte, 1<<20))
		r.run()
		r.pass(link.BackWrite - time.Second)
		if got := client.Take(); len(got) > 0 {
			t.Errorf("%.60q before the time of the backend is over", got)
		}
		r.pass(2 * time.Second)
		if got := string(client.Take()); !strings.HasPrefix(got, "HTTP/1.1 504 ") {
			t.Errorf("%.60q after it", got)
		}
		r.nothingLeft(client)
	}
}
