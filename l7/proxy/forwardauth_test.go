package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
)

// newAsking returns a rig whose rule asks a server, which is one of the same pool: it gets requests for /verify.
func newAsking(t *testing.T) *placed {
	t.Helper()
	p := newPlaced(t, PlacesOptions{Requests: 9})
	p.rule.Guard = &Guard{Counts: NewGuardCounts(1), Auth: &ForwardAuth{
		Rule: &Rule{Name: "auth", Backends: p.rule.Backends, Request: 3 * time.Second, Attempts: 2}, Path: "/verify", Copy: []string{"x-user"},
	}}
	return p
}

// TestAnInquiryEndsWithItsRequest whatever the server does, and leaves nothing behind.
func TestAnInquiryEndsWithItsRequest(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *placed, client *memtransport.Peer)
		want string // the beginning of the response, "" for none
	}{
		{"the client leaves", func(_ *placed, client *memtransport.Peer) { client.Abort() }, ""},
		{"the server says nothing", func(p *placed, _ *memtransport.Peer) { p.pass(3100 * time.Millisecond) }, "HTTP/1.1 504 "},
		{"the server closes", func(p *placed, _ *memtransport.Peer) { p.by["/verify"].Close() }, "HTTP/1.1 502 "},
		{"the server resets", func(p *placed, _ *memtransport.Peer) { p.by["/verify"].Abort() }, "HTTP/1.1 502 "},
		{"no HTTP", func(p *placed, _ *memtransport.Peer) { p.by["/verify"].Write([]byte("220 hello\r\n\r\n")) }, "HTTP/1.1 502 "},
		{"it refuses", func(p *placed, _ *memtransport.Peer) {
			p.by["/verify"].Write([]byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nX-A: b\r\n\r\nno"))
		}, "HTTP/1.1 403 "},
		{"the rest of a refusal is missing", func(p *placed, _ *memtransport.Peer) {
			p.by["/verify"].Write([]byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno"))
			p.run()
			p.by["/verify"].Abort()
		}, "HTTP/1.1 502 "},
		{"the client leaves within it", func(p *placed, client *memtransport.Peer) {
			p.by["/verify"].Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nyes"))
			p.run()
			client.Abort()
		}, ""},
	} {
		p := newAsking(t)
		client := p.askAll("/a")[0]
		if len(p.reached) == 0 || p.reached[0] != "/verify" {
			t.Fatalf("%s: %v", c.name, p.reached)
		}
		got := ""
		for range 3 { // a server that fails is asked once more
			if c.do(p, client); got == "" {
				p.run()
				got = string(client.Take())
			}
			if got != "" || c.want == "" {
				break
			}
		}
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		for _, path := range p.reached {
			if path != "/verify" {
				t.Errorf("%s: the request went on", c.name)
			}
		}
		for _, b := range p.backs {
			b.Close()
		}
		p.nothingLeft(client)
	}
}

// TestARequestGoesOnAfterAnInquiry on the connection that the server has left idle.
func TestARequestGoesOnAfterAnInquiry(t *testing.T) {
	p := newAsking(t)
	client := p.askAll("/a")[0]
	p.answer("/verify")
	if len(p.reached) != 2 || p.reached[1] != "/a" || len(p.backs) != 1 {
		t.Fatalf("%v over %d connections", p.reached, len(p.backs))
	}
	p.answer("/a")
	if got := string(client.Take()); !strings.HasSuffix(got, "\r\n\r\nok") {
		t.Errorf("%q", got)
	}
	if s := p.worker.Stats(); s.Requests != 1 || s.Status[2] != 1 {
		t.Errorf("%d requests, %d responses", s.Requests, s.Status[2])
	}
	p.nothingLeft(client)
}
