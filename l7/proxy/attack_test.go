package proxy

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/memtransport"
)

const getRoot = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// answers is a backend that answers each read by the next text, and then no more.
func answers(texts ...string) func(p *memtransport.Peer) {
	return func(p *memtransport.Peer) {
		left := texts
		p.Handler = func(p *memtransport.Peer) {
			p.Take()
			if len(left) > 0 {
				p.Write([]byte(left[0]))
				left = left[1:]
			}
		}
	}
}

// Backends that refuse, do not answer or stop in the middle cost a request its time and nothing else.
func TestSilentBackends(t *testing.T) {
	good := (&recorder{}).serve
	for _, test := range []struct {
		name   string
		dialed func(netip.AddrPort) (func(p *memtransport.Peer), error)
		serve  func(p *memtransport.Peer)
		after  time.Duration
		want   string // of the answer: status and error of Proxy-Status
	}{
		{"refused", func(netip.AddrPort) (func(p *memtransport.Peer), error) { return nil, unix.ECONNREFUSED }, nil, 0, "502 connection_refused"},
		{"no route", func(netip.AddrPort) (func(p *memtransport.Peer), error) { return nil, unix.EHOSTUNREACH }, nil, 0, "502 destination_ip_unroutable"},
		{"never established", func(netip.AddrPort) (func(p *memtransport.Peer), error) { return nil, nil }, nil, DefaultConnect, "504 connection_timeout"},
		{"no answer", nil, func(*memtransport.Peer) {}, 20 * time.Second, "504 http_response_timeout"},
		{"half of a header", nil, answers("HTTP/1.1 200 OK\r\nContent-"), 20 * time.Second, "504 http_response_timeout"},
		{"interim responses without end", nil, answers("HTTP/1.1 103 Early Hints\r\n\r\n"), 20 * time.Second, "504 http_response_timeout"},
		{"closed at once", nil, func(p *memtransport.Peer) { p.Close() }, 0, "502 connection_terminated"},
		{"reset", nil, func(p *memtransport.Peer) { p.Handler = func(p *memtransport.Peer) { p.Abort() } }, 0, "502 connection_terminated"},
	} {
		r := newMemRig(t, nil)
		if test.dialed != nil {
			r.loop.Dialed = test.dialed
		}
		r.backend = test.serve
		c := r.connect(memHTTP1)
		c.Write([]byte(getRoot))
		r.run()
		if test.after > 0 {
			r.pass(test.after - time.Second)
			if got := string(c.Take()); strings.Contains(got, "HTTP/1.1 5") {
				t.Errorf("%s: answered too early: %q", test.name, got)
			}
			r.pass(2 * time.Second)
		}
		status, name, _ := strings.Cut(test.want, " ")
		if got := string(c.Take()); !strings.Contains(got, "HTTP/1.1 "+status) || !strings.Contains(got, "proxy-status: millrace; error="+name+"\r\n") {
			t.Errorf("%s: %q, want %s", test.name, got, test.want)
		}
		r.loop.Dialed = func(netip.AddrPort) (func(p *memtransport.Peer), error) { return good, nil }
		c.Write([]byte(getRoot))
		r.run()
		if got := string(c.Take()); !strings.HasSuffix(got, "ok") && !c.Ended {
			t.Errorf("%s: the connection of the client is of no use: %q", test.name, got)
		}
		r.nothingLeft(c)
	}
}

// A backend that has closed an idle connection, or closes it at the moment of a request, costs no client a request (RFC 9112
// 9.5). One that may have processed the request is not asked twice.
func TestKeepAliveRace(t *testing.T) {
	for _, test := range []struct {
		method string
		end    func(p *memtransport.Peer)
		want   string
	}{
		{"GET", (*memtransport.Peer).Close, "ok"},
		{"GET", (*memtransport.Peer).Abort, "ok"},
		{"POST", (*memtransport.Peer).Close, "502 Bad Gateway\n"},
		{"POST", (*memtransport.Peer).Abort, "502 Bad Gateway\n"},
		{"GET", func(p *memtransport.Peer) { p.Write([]byte("garbage\r\n\r\n")) }, "502 Bad Gateway\n"}, // no end: the backend has answered
		{"GET", func(*memtransport.Peer) {}, "504 Gateway Timeout\n"},
	} {
		r := newMemRig(t, nil)
		again := &recorder{}
		r.backend = func(p *memtransport.Peer) {
			if len(r.backs) > 1 {
				again.serve(p)
				return
			}
			n := 0
			p.Handler = func(p *memtransport.Peer) {
				switch p.Take(); {
				case n == 0:
					p.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"))
				case n == 1:
					test.end(p)
				}
				n++
			}
		}
		c := r.connect(memHTTP1)
		c.Write([]byte(getRoot))
		r.run()
		if got := string(c.Take()); !strings.HasSuffix(got, "first") {
			t.Fatalf("first: %q", got)
		}
		c.Write([]byte(test.method + " / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"))
		r.pass(21 * time.Second) // longer than an attempt, shorter than two
		if got := string(c.Take()); !strings.HasSuffix(got, test.want) {
			t.Errorf("%s: %q, want %q", test.method, got, test.want)
		}
		r.nothingLeft(c)
	}
}

// What a backend sends behind its response, at once or later, reaches no client, and the connection is closed.
func TestSurplusBytesReachNoClient(t *testing.T) {
	const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	for _, late := range []time.Duration{0, time.Millisecond, time.Second} {
		r := newMemRig(t, nil)
		r.backend = answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		c := r.connect(memHTTP1)
		c.Write([]byte(getRoot))
		r.run()
		r.pass(late)
		c.Take()
		r.backend = (&recorder{}).serve
		r.backs[0].Write([]byte(poison))
		c.Write([]byte(getRoot)) // in the same batch of events, and before them
		r.run()
		if got := string(c.Take()); !strings.HasSuffix(got, "ok") || strings.Contains(got, "poison") {
			t.Errorf("after %v: %q", late, got)
		}
		if !r.backs[0].Ended {
			t.Errorf("after %v: the connection is still open", late)
		}
		r.nothingLeft(c)
	}
}

// A backend may answer before it has read the request. The rest of the request reaches no other backend.
func TestEarlyAnswers(t *testing.T) {
	for _, response := range []string{
		"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	} {
		for _, head := range []string{"Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"} {
			r := newMemRig(t, nil)
			r.backend = answers(response)
			c := r.connect(memHTTP1)
			c.Write([]byte("POST / HTTP/1.1\r\nHost: a\r\n" + head + "\r\n5\r\nhello\r\n"))
			r.run()
			got := string(c.Take())
			if !strings.HasPrefix(got, response[:12]) {
				t.Errorf("%q with %q: %q", response, head, got)
			}
			other := &recorder{}
			r.backend = other.serve
			c.Write([]byte("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"))
			r.run()
			if got := r.ask(getRoot); !strings.HasSuffix(got, "ok") || other.whole() != 1 || other.err != nil {
				t.Errorf("%q with %q: another client got %q, and the backend %q", response, head, got, other.connections)
			}
			r.nothingLeft(c)
		}
	}
}

// heldBytes counts what the worker holds for connections and exchanges.
func (r *memRig) heldBytes() (n int) {
	for l, info := range r.worker.fronts {
		n += cap(l.In) + cap(l.Out) + cap(l.Raw) + cap(l.Sealed)
		if info.conn != nil {
			info.conn.Each(func(user any) {
				x := user.(*exchange)
				n += cap(x.up.held) + cap(x.down.held)
			})
		}
	}
	return n
}

// A client that does not read, in front of a backend that sends without end, costs a bounded amount of memory, and no longer
// than its time-out.
func TestSlowReaders(t *testing.T) {
	block := strings.Repeat("x", 64<<10)
	for name, endless := range map[string]string{
		"content": block, "interim responses": strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 1000),
	} {
		r := newMemRig(t, nil)
		var back *memtransport.Peer
		r.backend = func(p *memtransport.Peer) {
			back = p
			p.Handler = func(p *memtransport.Peer) {
				if len(p.Take()) > 0 && name == "content" {
					p.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
				}
			}
		}
		c := r.connect(memHTTP1)
		c.Window = 1000
		c.Write([]byte(getRoot))
		r.run()
		most := 0
		for range 200 {
			if back.Unread() < len(endless) {
				back.Write([]byte(endless))
			}
			r.run()
			most = max(most, r.heldBytes())
		}
		if t.Logf("%s: at most %d bytes", name, most); most > 256<<10 {
			t.Errorf("%s: %d bytes are held", name, most)
		}
		r.pass(memTimes.Write + time.Second)
		if !c.Ended && name == "content" {
			t.Errorf("%s: the client that does not read is still there", name)
		}
		if n := r.worker.Stats().WriteTimeouts; name == "content" && n != 1 {
			t.Errorf("%s: %d time-outs of writes", name, n)
		}
		r.nothingLeft(c)
	}
}

// Clients that send a byte now and then have no longer than the time-outs, however many bytes come.
func TestSlowClients(t *testing.T) {
	for _, test := range []struct {
		name, begin, more string
		every             time.Duration
		within            time.Duration
	}{
		{"header", "GET / HTTP/1.1\r\n", "X: y\r\n", time.Second, memTimes.Header},
		{"bytes of a header", "G", "E", time.Second, memTimes.Header},
		{"nothing", "", "", time.Second, memTimes.Header},
		{"empty lines", "\r\n", "", time.Second, memTimes.Header},
		{"content that stops", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc", "", time.Second, memTimes.Body},
		{"chunk that stops", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc", "", time.Second, memTimes.Body},
	} {
		r := newMemRig(t, nil)
		c := r.connect(memHTTP1)
		c.Write([]byte(test.begin))
		for at := time.Duration(0); at < test.within+2*time.Second; at += test.every {
			r.pass(test.every)
			c.Write([]byte(test.more))
		}
		if !c.Ended {
			t.Errorf("%s: still open after %v", test.name, test.within+2*time.Second)
		}
		if got := string(c.Take()); test.begin != "" && !strings.HasPrefix(got, "HTTP/1.1 408") {
			t.Errorf("%s: answered %q", test.name, got)
		}
		r.nothingLeft(c)
	}
}

// An attempt that ends while its connection is being established has no part in it any more: the exchange may be another
// request's by then.
func TestAttemptEndsWhileConnecting(t *testing.T) {
	for _, protocol := range []PoolProtocol{HTTP1, HTTP2} {
		r := newMemRig(t, nil)
		r.rule.Attempt = 2 * time.Second
		r.to.Protocol = protocol
		r.loop.Dialed = func(netip.AddrPort) (func(p *memtransport.Peer), error) { return nil, nil }
		c := r.connect(memHTTP1)
		c.Write([]byte(getRoot))
		r.pass(3 * time.Second)
		if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 504") {
			t.Fatalf("the first got %q", got)
		}
		r.rule.Attempt = 20 * time.Second
		c.Write([]byte(getRoot))                                     // waits for a connection that is opened now
		r.pass(3 * time.Second)                                      // the first connection fails after 5 s
		if got := string(c.Take()); got != "" && protocol == HTTP1 { // one of HTTP/2 may wait for the same connection
			t.Errorf("the second got %q, by the connection of the first", got)
		}
		r.nothingLeft(c)
	}
}
