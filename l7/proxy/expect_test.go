package proxy

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
)

const (
	expecting = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	goOn      = "HTTP/1.1 100 Continue\r\n\r\n"
)

// expectRig is a rig whose backend answers when the test does.
func expectRig(t *testing.T, forward bool, to PoolProtocol) *memRig {
	r := newMemRig(t, func(r *memRig, _ *Tree) { r.rule.ForwardExpect, r.to.Protocol = forward, to })
	r.backend = func(p *memtransport.Peer) {}
	return r
}

// By the choice of the rule the backend is asked whether it wants the content, and the client hears of it. Otherwise the gateway asks
// for the content itself.
func TestExpectIsPassedOnByChoice(t *testing.T) {
	for _, forward := range []bool{false, true} {
		r := expectRig(t, forward, HTTP1)
		c := r.connect(memHTTP1)
		c.Write([]byte(expecting))
		r.run()
		back := r.backs[0]
		header := string(back.Take())
		if strings.Contains(header, "\r\nexpect: 100-continue\r\n") != forward {
			t.Errorf("forward %v: the backend got %q", forward, header)
		}
		if got := string(c.Take()); (got == goOn) == forward {
			t.Errorf("forward %v: the client got %q at first", forward, got)
		}
		back.Write([]byte(goOn))
		r.run()
		if got := string(c.Take()); (got == goOn) != forward {
			t.Errorf("forward %v: the client got %q when the backend asks for the content", forward, got)
		}
		c.Write([]byte("hello"))
		r.run()
		if got := string(back.Take()); got != "hello" {
			t.Errorf("forward %v: the backend got %q", forward, got)
		}
		back.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
		r.run()
		if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 200") || c.Ended {
			t.Errorf("forward %v: the client got %q, ended %v", forward, got, c.Ended)
		}
		r.nothingLeft(c)
	}
}

// A backend that refuses by its header gets no content, and neither connection carries another request: what would come next is not
// known (RFC 9110 10.1.1).
func TestABackendRefusesExpectedContent(t *testing.T) {
	r := expectRig(t, true, HTTP1)
	c := r.connect(memHTTP1)
	c.Write([]byte(expecting))
	r.run()
	back := r.backs[0]
	back.Take()
	back.Write([]byte("HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno"))
	r.run()
	got := string(c.Take())
	if !strings.HasPrefix(got, "HTTP/1.1 413") || !strings.Contains(got, "connection: close\r\n") {
		t.Errorf("the client got %q", got)
	}
	if rest := back.Take(); len(rest) > 0 || !back.Ended && !back.Reset {
		t.Errorf("the backend got %q, ended %v", rest, back.Ended)
	}
	r.nothingLeft(c)
}

// Interim 100 reaches no client that does not wait for it, and a request without content expects nothing.
func TestContinueWithoutExpect(t *testing.T) {
	for _, request := range []string{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
	} {
		r := expectRig(t, true, HTTP1)
		c := r.connect(memHTTP1)
		c.Write([]byte(request))
		r.run()
		back := r.backs[0]
		if got := string(back.Take()); strings.Contains(got, "expect") {
			t.Errorf("the backend got %q", got)
		}
		back.Write([]byte(goOn + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		r.run()
		if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("the client got %q", got)
		}
		r.nothingLeft(c)
	}
}

// Expect of HTTP/2 is passed on once, and 100 of a backend with HTTP/2 reaches a client with HTTP/1.1.
func TestExpectBetweenVersions(t *testing.T) {
	r := expectRig(t, true, HTTP1)
	c := r.connect(memHTTP2)
	c.Write([]byte(wrongcases.Preface + wrongcases.Frame(1, 4, 1, hpackLiterals(
		":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/", "expect", "100-continue", "content-length", "5"))))
	r.run()
	if got := string(r.backs[0].Take()); strings.Count(got, "expect: 100-continue") != 1 {
		t.Errorf("the backend got %q", got)
	}
	r.nothingLeft(c)

	r = expectRig(t, true, HTTP2)
	var expected string
	r.backend = func(p *memtransport.Peer) {
		serveHTTP2(p, http2.Options{}, func(_ *http2.Machine, ev http2.Event) {
			if ev.Kind != http2.Headers {
				return
			}
			for _, f := range ev.Stream.Message.Fields {
				if f.Name == "expect" {
					expected += f.Value
				}
			}
			p.Write([]byte(wrongcases.Frame(1, 4, ev.Stream.ID(), hpackLiterals(":status", "100"))))
		})
	}
	c = r.connect(memHTTP1)
	c.Write([]byte(expecting))
	r.run()
	if got := string(c.Take()); got != goOn || expected != "100-continue" {
		t.Errorf("the client got %q, the backend %q", got, expected)
	}
	c.Abort()
	r.nothingLeft(c)
}

// Names of fields reach a backend of HTTP/1.1 as the client wrote them, where the pool says so.
func TestFieldNamesKeepTheirCase(t *testing.T) {
	for _, keep := range []bool{false, true} {
		r := newMemRig(t, func(r *memRig, tree *Tree) {
			r.to.KeepCase = keep
			tree.Listeners[0].HTTP1 = &http1.Options{KeepCase: true}
		})
		got := &recorder{}
		r.backend = got.serve
		for range 2 {
			r.ask("POST / HTTP/1.1\r\nHOST: a\r\nSOAPAction: x\r\nplain: y\r\nContent-LENGTH: 0\r\n\r\n")
		}
		for _, name := range []string{"HOST: a", "SOAPAction: x", "plain: y", "X-Forwarded-For: ", "Content-LENGTH: 0"} {
			want := name
			if !keep {
				want = strings.ToLower(name)
			}
			if strings.Count(string(got.connections[0]), "\r\n"+want) != 2 {
				t.Errorf("keep %v: the backend got no %q: %q", keep, want, got.connections)
			}
		}
		c := newMemClient2(r)
		c.ask("GET", "/")
		if last := string(got.connections[0]); strings.Contains(last[strings.LastIndex(last, "GET"):], "\r\nX-Forwarded-For: ") != keep {
			t.Errorf("keep %v: of a client with HTTP/2 the backend got %q", keep, last)
		}
		r.nothingLeft(c.p)
	}
}
