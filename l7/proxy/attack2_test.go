package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
)

// Frames of HTTP/2 (RFC 9113 6), as attackers send them.
const (
	frameHeaders, framePriority, frameReset, frameSettings, framePing, frameWindow, frameContinuation = 1, 2, 3, 4, 6, 8, 9

	endStream, endHeaders = 1, 4
)

var get2 = []wrongcases.Field{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}}

// get2On returns a request on a stream.
func get2On(stream int) string { return wrongcases.Section(uint32(stream), endStream, get2) }

// Attacks by frames end their connection before they cost more than the limits, and no other client notices.
func TestHTTP2Attacks(t *testing.T) {
	frame := wrongcases.Frame
	each := func(n int, f func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(f(i))
		}
		return b.String()
	}
	// Each field of the bomb is one byte that stands for 4 kB of the dynamic table.
	bomb := "\x40" + "\x01x" + hpackString(strings.Repeat("y", 3900)) + strings.Repeat("\xbe", 8000)
	for _, test := range []struct {
		name, bytes string
		requests    int // that backends may get
	}{
		{"rapid reset (CVE-2023-44487)", each(5000, func(i int) string { return get2On(2*i+1) + frame(frameReset, 0, uint32(2*i+1), "\x00\x00\x00\x08") }), 400},
		{"resets by the server (CVE-2025-8671)", each(5000, func(i int) string { return get2On(2*i+1) + frame(frameWindow, 0, uint32(2*i+1), "\x00\x00\x00\x00") }), 400},
		{"CONTINUATION (CVE-2024-27316)", frame(frameHeaders, endStream, 1, wrongcases.HPACK(get2)) + each(20000, func(int) string {
			return frame(frameContinuation, 0, 1, wrongcases.HPACK([]wrongcases.Field{{"x", "y"}}))
		}), 0},
		{"empty CONTINUATION", frame(frameHeaders, endStream, 1, wrongcases.HPACK(get2)) + each(50000, func(int) string { return frame(frameContinuation, 0, 1, "") }), 0},
		{"SETTINGS (CVE-2019-9515)", each(50000, func(int) string { return frame(frameSettings, 0, 0, "") }), 0},
		{"PING (CVE-2019-9512)", each(50000, func(int) string { return frame(framePing, 0, 0, "12345678") }), 0},
		{"PRIORITY (CVE-2019-9513)", each(50000, func(i int) string { return frame(framePriority, 0, uint32(2*i+1), "\x00\x00\x00\x00\x10") }), 0},
		{"empty DATA (CVE-2019-9518)", wrongcases.Section(1, 0, get2) + each(50000, func(int) string { return frame(0, 0, 1, "") }), 0},
		{"padding alone", wrongcases.Section(1, 0, get2) + each(50000, func(int) string { return frame(0, 8, 1, "\x00") }), 0},
		{"empty HEADERS (CVE-2019-9516)", each(5000, func(i int) string { return wrongcases.Section(uint32(2*i+1), endStream, nil) }), 0},
		{"WINDOW_UPDATE of 1", each(50000, func(int) string { return frame(frameWindow, 0, 0, "\x00\x00\x00\x01") }), 0},
		{"HPACK bomb (CVE-2016-6581)", frame(frameHeaders, endStream|endHeaders, 1, wrongcases.HPACK(get2)+bomb), 0},
		{"unknown frames", each(50000, func(int) string { return frame(0xbe, 0, 0, "") }), 0},
	} {
		r := newMemRig(t, nil)
		backend := &recorder{}
		r.backend = backend.serve
		c := r.connect(memHTTP2)
		rest := wrongcases.Preface + test.bytes
		for len(rest) > 0 && !c.Ended {
			n := min(len(rest), 16<<10)
			c.Write([]byte(rest[:n]))
			rest = rest[n:]
			r.run()
			if held := r.heldBytes(); held > 4<<20 {
				t.Fatalf("%s: %d bytes are held", test.name, held)
			}
			if len(rest)%3 == 0 {
				c.Take()
			}
		}
		if n := backend.whole(); n > test.requests {
			t.Errorf("%s: %d requests reached the backend", test.name, n)
		}
		if len(r.backs) > max(1, test.requests) {
			t.Errorf("%s: %d connections to the backend", test.name, len(r.backs))
		}
		if !c.Ended && !strings.Contains(test.name, "bomb") {
			t.Errorf("%s: the connection has not ended", test.name)
		}
		if got := r.ask(getRoot); !strings.HasSuffix(got, "ok") {
			t.Errorf("%s: another client got %q", test.name, got)
		}
		r.nothingLeft(c)
	}
}

// hpackString encodes a string literal.
func hpackString(s string) string {
	full := wrongcases.HPACK([]wrongcases.Field{{"", s}})
	return full[2:] // without the type and the empty name
}

// Clients of HTTP/2 that stop in the middle have no longer than those of HTTP/1.1.
func TestSlowHTTP2(t *testing.T) {
	big := strings.Repeat("x", 300<<10)
	respond := func(p *memtransport.Peer) {
		p.Handler = func(p *memtransport.Peer) {
			if len(p.Take()) > 0 {
				p.Write(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(big), big))
			}
		}
	}
	post := []wrongcases.Field{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}}
	zero := wrongcases.Frame(frameSettings, 0, 0, "\x00\x04\x00\x00\x00\x00")
	for _, test := range []struct {
		name, bytes, more string
		serve             func(p *memtransport.Peer)
		within            time.Duration
		connection        bool // must end, and not only the stream
	}{
		{"half of a preface", "PRI * HT", "", nil, memTimes.Idle, true},
		{"nothing but PING", wrongcases.Preface, wrongcases.Frame(framePing, 0, 0, "12345678"), nil, memTimes.Idle, true},
		{"half of a frame", wrongcases.Preface + get2On(1)[:20], "", nil, memTimes.Idle, true},
		{"a header without an end", wrongcases.Preface + wrongcases.Frame(frameHeaders, 0, 1, wrongcases.HPACK(get2)), "", nil, memTimes.Header, true},
		{"a header by CONTINUATION of a byte", wrongcases.Preface + wrongcases.Frame(frameHeaders, 0, 1, ""), wrongcases.Frame(frameContinuation, 0, 1, "\x82"), nil, memTimes.Header, true},
		{"content that stops", wrongcases.Preface + wrongcases.Section(1, 0, post) + wrongcases.Frame(0, 0, 1, "abc"), "", nil, memTimes.Body, false},
		{"content that stops, and PING", wrongcases.Preface + wrongcases.Section(1, 0, post), wrongcases.Frame(framePing, 0, 0, "12345678"), nil, memTimes.Body, false},
		{"a window of nothing", wrongcases.Preface + zero + get2On(1), "", respond, memTimes.Write, false},
	} {
		r := newMemRig(t, nil)
		r.rule.Attempt = 0
		if r.backend = func(p *memtransport.Peer) { p.Handler = func(p *memtransport.Peer) { p.Take() } }; test.serve != nil {
			r.backend = test.serve
		}
		c := r.connect(memHTTP2)
		c.Write([]byte(test.bytes))
		for at := time.Duration(0); at < test.within+3*time.Second; at += time.Second {
			r.pass(time.Second)
			c.Write([]byte(test.more))
		}
		if active := r.worker.Stats().Active; active != 0 || test.connection && !c.Ended {
			t.Errorf("%s: %d requests are left after %v, ended: %v", test.name, active, test.within+3*time.Second, c.Ended)
		}
		if slow := r.worker.Stats().WriteTimeouts; (slow == 1) != (test.within == memTimes.Write) {
			t.Errorf("%s: %d time-outs of writes", test.name, slow)
		}
		r.nothingLeft(c)
	}
}

// A backend of HTTP/2 that never sends its settings costs a WebSocket its time, and its connection is not kept for ever.
func TestSettingsThatDoNotCome(t *testing.T) {
	r := newMemRig(t, nil)
	r.to.Protocol = HTTP2
	r.rule.Attempt = 5 * time.Second
	r.backend = func(p *memtransport.Peer) { p.Handler = func(p *memtransport.Peer) { p.Take() } }
	c := r.connect(memHTTP1)
	c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"))
	r.pass(6 * time.Second)
	if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 504") {
		t.Errorf("answered %q", got)
	}
	r.nothingLeft(c)
}
