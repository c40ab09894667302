package proxy

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/semantics"
)

// lateClient is a client of HTTP/2 that sends a request in several steps.
type lateClient struct {
	*memClient2
	s *http2.Stream
}

// mustMem is must for a memRig.
func mustMem(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// beginLate sends the header of a request, whose stream goes on.
func (r *cachedRig) beginLate(method string, length int64, fields ...semantics.Field) *lateClient {
	r.t.Helper()
	c := &lateClient{memClient2: newMemClient2(r.memRig)}
	s, err := c.m.Open()
	mustMem(r.t, err)
	q := semantics.Message{Method: method, Scheme: "http", Authority: "a.example", Path: "/", ContentLength: length, Fields: fields}
	out, err := c.m.AppendRequest(c.m.AppendControl(nil), s, &q, false)
	mustMem(r.t, err)
	c.s = s
	c.p.Write(out)
	r.run()
	return c
}

// data sends content, perhaps with the end of the stream.
func (c *lateClient) data(p string, end bool) {
	c.r.t.Helper()
	out, _, err := c.m.AppendData(nil, c.s, []byte(p), end)
	mustMem(c.r.t, err)
	c.p.Write(out)
	c.r.run()
}

// got returns the content that has come, and Cache-Status; "" where no response has.
func (c *lateClient) got() (text string) {
	c.r.t.Helper()
	for in := c.p.Take(); ; {
		ev, n, err := c.m.Input(in)
		mustMem(c.r.t, err)
		switch in = in[n:]; ev.Kind {
		case http2.NeedInput:
			return strings.TrimSpace(text)
		case http2.Headers:
			text = strconv.Itoa(ev.Stream.Message.Status) + " " + text
			for _, f := range ev.Stream.Message.Fields {
				if f.Name == "cache-status" {
					text += strings.TrimPrefix(f.Value, "millrace; ") + " "
				}
			}
		case http2.Data:
			text += string(ev.Payload)
			c.m.Consumed(ev.Stream, len(ev.Payload))
		}
	}
}

// A request whose end comes behind its header is looked up as others are, once it has ended without content.
func TestRequestsThatEndLateAreLookedUp(t *testing.T) {
	for _, length := range []int64{-1, 0} {
		for _, method := range []string{"GET", "HEAD"} {
			r := newCachedRig(t, nil)
			r.numbered(cacheable)
			r.get("/")
			c := r.beginLate(method, length)
			if got := c.got(); got != "" || len(r.seen) != 1 {
				t.Fatalf("%s: %q before the end", method, got)
			}
			c.data("", false)
			if got := c.got(); got != "" || len(r.seen) != 1 {
				t.Fatalf("%s: %q before the end", method, got)
			}
			c.data("", true)
			want := "200 hit 1"
			if method == "HEAD" {
				want = "200 hit"
			}
			if got := c.got(); got != want || len(r.seen) != 1 {
				t.Errorf("%s: %q, want %q; %d requests", method, got, want, len(r.seen))
			}
			r.nothingLeft(c.p)
		}
	}
}

// What such a request brings is stored, and its backend gets it without content.
func TestResponsesToRequestsThatEndLateAreStored(t *testing.T) {
	r := newCachedRig(t, nil)
	r.numbered(cacheable)
	c := r.beginLate("GET", -1)
	c.data("", true)
	if got := c.got(); got != "200 fwd=uri-miss; stored 1" || strings.Contains(strings.ToLower(r.seen[0]), "transfer-encoding") {
		t.Errorf("%q, the backend has got %q", got, r.seen)
	}
	r.expect("the next", r.get("/"), "200 1 hit", 1)
	r.nothingLeft(c.p)
}

// In HTTP/1.1 such a request has chunks, of which only the last one comes.
func TestRequestsWithNoChunksAreLookedUp(t *testing.T) {
	r := newCachedRig(t, nil)
	r.numbered(cacheable)
	r.get("/")
	c := r.connect(memHTTP1)
	c.Write([]byte(requestOf("GET", "/", "Transfer-Encoding: chunked")))
	r.run()
	if got := c.Take(); len(got) > 0 || len(r.seen) != 1 {
		t.Errorf("%q before the end", got)
	}
	c.Write([]byte("0\r\n\r\n"))
	r.run()
	r.expect("after the end", string(c.Take()), "200 1 hit", 1)
	r.nothingLeft(c)
}

// Content, trailers, or the announcement of content make a GET one that no cache serves: it is no other's response, whenever its content
// comes.
func TestContentThatComesLatePoisonsNothing(t *testing.T) {
	echo := func(r *cachedRig) {
		r.reply = func(head string) string {
			if strings.Contains(strings.ToLower(head), "chunked") || headerOf(head, "content-length") != "" {
				return response("poison", cacheable)
			}
			return response("good", cacheable)
		}
	}
	for name, c := range map[string]struct {
		length int64
		fields []semantics.Field
		wait   time.Duration
		data   []string
	}{
		"at once":          {-1, nil, 0, []string{"x"}},
		"in pieces":        {-1, nil, 0, []string{"", "x", "y"}},
		"announced":        {1, nil, 0, []string{"x"}},
		"after the wait":   {-1, nil, endWait + time.Millisecond, []string{"x"}},
		"with expectation": {-1, []semantics.Field{{Name: "expect", Value: "100-continue"}}, 0, []string{"x"}},
		"none, too late":   {-1, nil, endWait + time.Millisecond, []string{""}},
	} {
		r := newCachedRig(t, nil)
		echo(r)
		client := r.beginLate("GET", c.length, c.fields...)
		if c.wait > 0 {
			r.pass(c.wait)
		}
		for _, p := range c.data {
			client.data(p, false)
		}
		client.data("", true)
		if got := client.got(); !strings.HasSuffix(got, "fwd=bypass poison") || len(r.seen) != 1 {
			t.Errorf("%s: %q; %d requests", name, got, len(r.seen))
		}
		if n := r.use.Store.Counts(); n[cache.CountBypass] != 1 {
			t.Errorf("%s: %v", name, n)
		}
		r.expect(name+": the next", r.get("/"), "200 good fwd=uri-miss; stored", 2)
		r.nothingLeft(client.p)
	}
}

// A client that waits to be asked for its content does not wait for the cache besides.
func TestRequestsThatExpectAreNotHeld(t *testing.T) {
	r := newCachedRig(t, nil)
	c := r.connect(memHTTP1)
	c.Write([]byte(requestOf("GET", "/", "Transfer-Encoding: chunked", "Expect: 100-continue")))
	r.run()
	if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 100 ") || len(r.seen) != 1 {
		t.Errorf("%q, the backend has got %d requests", got, len(r.seen))
	}
	r.nothingLeft(c)
}

// Content that comes in pieces behind the first passes on, once.
func TestContentThatComesLatePassesOnOnce(t *testing.T) {
	r := newCachedRig(t, nil)
	c := r.beginLate("GET", -1)
	for _, p := range []string{"one", "two", "three"} {
		c.data(p, false)
	}
	c.data("", true)
	r.pass(endWait)
	r.peers[0].Write([]byte(response("answer", cacheable)))
	r.run()
	if got := c.got(); got != "200 fwd=bypass answer" {
		t.Errorf("%q", got)
	}
	r.nothingLeft(c.p)
}

// Trailers of a request without content may select what the backend answers, as content may.
func TestTrailersOfRequestsPassTheCache(t *testing.T) {
	r := newCachedRig(t, nil)
	r.numbered(cacheable)
	r.get("/")
	c := r.connect(memHTTP1)
	c.Write([]byte(requestOf("GET", "/", "Transfer-Encoding: chunked")))
	r.run()
	c.Write([]byte("0\r\nX-A: b\r\n\r\n"))
	r.run()
	if got := brief(string(c.Take())); got != "200 2 fwd=bypass" {
		t.Errorf("%q", got)
	}
	r.nothingLeft(c)
}

// A client that leaves before the end of its request leaves nothing behind.
func TestClientsThatLeaveBeforeTheEnd(t *testing.T) {
	r := newCachedRig(t, nil)
	c := r.beginLate("GET", -1)
	c.p.Abort()
	r.run()
	r.pass(endWait)
	if len(r.seen) != 0 {
		t.Errorf("%q", r.seen)
	}
	r.nothingLeft(c.p)
}

// FIN of a client of HTTP/3 comes in a later packet than HEADERS.
func TestRequestsOfHTTP3ThatEndLateAreLookedUp(t *testing.T) {
	b := served(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = w.Write([]byte("content"))
	})
	r := http3Rig(t, strings.TrimPrefix(b.URL, "http://"), func(r *rig) {
		r.rule.Cache = &cache.Rule{Store: cache.NewNamed("c", cache.Options{Memory: 1 << 24}, 1, time.Now), Name: "r", Policy: cache.Policy{MaxObject: 1 << 20}}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := r.dial3(ctx, quicSocket(t), nil)
	m := http3.NewMachine(http3.RoleClient, http3.MachineOptions{})
	get := func() {
		s, err := conn.OpenStream(ctx)
		must(t, err)
		_, err = s.Write(m.AppendRequest(nil, uint64(s.ID()), &semantics.Message{
			Method: "GET", Scheme: "https", Authority: "gateway.test", Path: "/", ContentLength: -1,
		}))
		must(t, err)
		r.eventually("the header of the request", func() bool { return r.worker.Stats().Active == 1 })
		must(t, s.Close())
		_, err = io.Copy(io.Discard, s)
		must(t, err)
		r.settled()
	}
	for r.rule.Cache.Store.Counts()[cache.CountHit] == 0 { // on a busy machine FIN may come too late
		if get(); ctx.Err() != nil {
			t.Fatalf("%v: no request is answered from the cache", r.rule.Cache.Store.Counts())
		}
	}
}
