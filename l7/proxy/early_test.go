package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/side"

	h2 "golang.org/x/net/http2"
)

// A request may be answered before its content has been sent. The connection goes on, if what follows is not much: the client may
// have sent its next request by then. Otherwise it ends.
func TestEarlyAnswersKeepTheConnection(t *testing.T) {
	backend := script(t, func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly")
		}
	})
	r := newRig(t, backend, nil)
	for _, c := range []struct {
		name, header, first, rest string
		ends                      bool
	}{
		{"length", "Content-Length: 100000", "a", strings.Repeat("a", 99_999), false},
		{"chunked", "Transfer-Encoding: chunked", "1\r\na\r\n", "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", false},
		{"a large length", "Content-Length: 100000000", "a", "", true},
		{"chunked and large", "Transfer-Encoding: chunked", "1\r\na\r\n", strings.Repeat("100\r\n"+strings.Repeat("a", 256)+"\r\n", 1100), true},
		{"malformed", "Transfer-Encoding: chunked", "1\r\na\r\n", "g\r\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", r.addr)
			must(t, err)
			defer conn.Close()
			must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
			in := bufio.NewReader(conn)
			answer := func() error {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || string(body) != "early" {
					return fmt.Errorf("%d %q %v", resp.StatusCode, body, err)
				}
				return nil
			}
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n%s", c.header, c.first)
			must(t, answer())
			_, werr := io.WriteString(conn, c.rest+"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if err := answer(); (err != nil) != c.ends || !c.ends && werr != nil {
				t.Error(err, werr)
			}
		})
	}
	r.settled()
}

// A client of HTTP/2 that waits for 100 (Continue) gets it (RFC 9110 10.1.1), and none before a response of the gateway.
func TestContinueOverHTTP2(t *testing.T) {
	for backend, want := range map[string]string{echoBackend(t, false): "100", free(t).String(): "502"} {
		f := newRig(t, backend, nil).dialFrames()
		f.request(1, "POST", false, "expect", "100-Continue")
		if got := f.status(f.until(h2.FrameHeaders, 1).(*h2.HeadersFrame)); got != want {
			t.Errorf("%s in place of %s", got, want)
		}
		if want == "100" {
			must(t, f.WriteData(1, true, []byte("abc")))
			if got := f.status(f.until(h2.FrameHeaders, 1).(*h2.HeadersFrame)); got != "200" {
				t.Error(got)
			}
		}
	}
}

// Deadlines begin at the time of the event that sets them, however long the loop had nothing to do before.
func TestDeadlinesAfterSilence(t *testing.T) {
	backend := echoBackend(t, true)
	for _, to := range []PoolProtocol{HTTP1, HTTP2} {
		r := newRig(t, backend, func(r *rig) {
			r.pool.Protocol, r.pool.Connect, r.rule.Attempt = to, 500*time.Millisecond, 500*time.Millisecond
			for _, l := range r.tree.Listeners {
				l.Timeouts = side.Timeouts{Handshake: 500 * time.Millisecond, Header: 500 * time.Millisecond, Body: 500 * time.Millisecond, Write: 500 * time.Millisecond}
			}
		})
		time.Sleep(time.Second)
		post(t, r.client(to == HTTP2), "https://"+r.secure, []byte("abc"))
		r.settled()
	}
}

// A request without content that the gateway answers itself leaves the connection to the next one, also where the answer has none.
func TestAnswersOfTheGatewayKeepTheConnection(t *testing.T) {
	for _, body := range []string{"", "abc"} {
		r := newMemRig(t, func(r *memRig, _ *Tree) { r.rule.Response = &Response{Status: 200, Body: []byte(body)} })
		c := r.connect(memHTTP1)
		for n := range 3 {
			c.Write([]byte(getRoot))
			r.run()
			if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 200") || strings.Contains(got, "close") || c.Ended {
				t.Errorf("content %q, request %d: %q, ended %v", body, n, got, c.Ended)
			}
		}
		r.nothingLeft(c)
	}
}

// What follows a request that was answered early, and cannot be understood, gets no second answer.
func TestTheRestOfAnAnsweredRequestIsNotAnswered(t *testing.T) {
	r := newMemRig(t, func(r *memRig, _ *Tree) { r.rule.Response = &Response{Status: 200, Body: []byte("abc")} })
	c := r.connect(memHTTP1)
	c.Write([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"))
	r.run()
	if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Fatalf("%q", got)
	}
	c.Write([]byte("no chunk\r\n"))
	r.run()
	if got := string(c.Take()); got != "" || !c.Reset && !c.Ended {
		t.Errorf("%q, reset %v, ended %v", got, c.Reset, c.Ended)
	}
	r.nothingLeft(c)
}

// The access log distinguishes a response that is cut from a connection that ends before one.
func TestCutResponsesAreIncomplete(t *testing.T) {
	for part, want := range map[string]string{
		"": "connection_terminated", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc": "http_response_incomplete",
	} {
		r := newMemRig(t, nil)
		r.backend = func(p *memtransport.Peer) {
			p.Handler = func(p *memtransport.Peer) {
				if len(p.Take()) > 0 {
					p.Write([]byte(part))
					p.Close()
				}
			}
		}
		var failure string
		r.worker.OnRecord(func(rec *Record) { failure = rec.Error })
		r.ask(getRoot)
		if failure != want {
			t.Errorf("after %q: %s, want %s", part, failure, want)
		}
		r.nothingLeft()
	}
}
