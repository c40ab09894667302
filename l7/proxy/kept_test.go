package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/semantics"
)

// closer1 is a backend of HTTP/1.1 that answers one request on its first connection, and to the next, of which it takes all,
// sends part and closes. Other connections are a recorder's.
type closer1 struct {
	recorder
	part string
}

func (b *closer1) serve(p *memtransport.Peer) {
	b.recorder.serve(p)
	if len(b.connections) > 1 {
		return
	}
	p.Handler = func(p *memtransport.Peer) {
		b.connections[0] = append(b.connections[0], p.Take()...)
		requests, _ := wrongcases.Parse(b.connections[0])
		if p.Ended {
			p.Close()
			return
		}
		if len(requests) == 1 && requests[0].Whole {
			p.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
		}
		if len(requests) == 2 && requests[1].Whole {
			p.Write([]byte(b.part))
			p.Close()
		}
	}
}

// content2 is what a backend gets of the last request.
func (b *closer1) content() (text string) {
	requests, _ := wrongcases.Parse(b.connections[len(b.connections)-1])
	return string(requests[len(requests)-1].Content)
}

const first1 = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// A request whose connection turns out to be closed goes to another one with its content, if it may be repeated and is small.
func TestContentIsSentAgain(t *testing.T) {
	small, large := strings.Repeat("0123456789abcdef", 512), strings.Repeat("0123456789abcdef", 1025)
	length := func(method, content string) string {
		return fmt.Sprintf("%s / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", method, len(content), content)
	}
	chunked := func(content string) string {
		return fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nsum: 7\r\n\r\n", len(content), content)
	}
	for _, c := range []struct {
		name, request, part string
		content             string // of the request, as the second connection gets it; "" where it is refused
		change              func(r *memRig)
	}{
		{"PUT", length("PUT", small), "", small, nil},
		{"at the bound", length("PUT", large[:DefaultReplay]), "", large[:DefaultReplay], nil},
		{"above the bound", length("PUT", large[:DefaultReplay+1]), "", "", nil},
		{"chunks", chunked(small), "", small, nil},
		{"chunks above the bound", chunked(large), "", "", nil},
		{"chunks of a byte more", chunked(large[:DefaultReplay+1]), "", "", nil},
		{"POST", length("POST", small), "", "", nil},
		{"a part of the response", length("PUT", small), "HTTP/1.1 2", "", nil},
		{"an interim response", length("PUT", small), "HTTP/1.1 103 Early Hints\r\n\r\n", "", nil},
		{"kept is nothing", length("PUT", small), "", "", func(r *memRig) { r.to.Replay = -1 }},
		{"kept is little", length("PUT", small), "", "", func(r *memRig) { r.to.Replay = len(small) - 1 }},
		{"no budget", length("PUT", small), "", "", func(r *memRig) { r.budget(-1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &closer1{part: c.part}
			r := newMemRig(t, func(r *memRig, _ *Tree) {
				if c.change != nil {
					c.change(r)
				}
			})
			r.backend = b.serve
			client := r.connect(memHTTP1)
			client.Write([]byte(first1))
			r.run()
			client.Take()
			half := strings.Index(c.request, "\r\n\r\n") + 500
			client.Write([]byte(c.request[:half]))
			r.run()
			if kept := r.worker.Stats().Kept; kept > 0 != (c.content != "" || strings.HasPrefix(c.name, "chunks") || c.part != "" || c.name == "no budget" || c.name == "POST") {
				t.Errorf("%d bytes are kept", kept)
			}
			client.Write([]byte(c.request[half:]))
			r.run()
			got := string(client.Take())
			if c.content == "" {
				if !strings.Contains(got, "HTTP/1.1 502") || len(b.connections) != 1 {
					t.Errorf("%.200q by %d connections", got, len(b.connections))
				}
			} else if !strings.HasPrefix(got, "HTTP/1.1 200") || len(b.connections) != 2 || b.content() != c.content || b.err != nil {
				t.Errorf("%.200q by %d connections, %d bytes of content, %v", got, len(b.connections), len(b.content()), b.err)
			}
			if n := r.worker.Stats().Kept; n != 0 {
				t.Errorf("%d bytes are kept at the end", n)
			}
			r.nothingLeft(client)
		})
	}
}

// budget has the pool allow so many retries each second, and no share of the requests.
func (r *memRig) budget(perSecond int) {
	o := *r.to.Options()
	o.RetryBudget = pool.RetryBudget{Percent: -1, MinPerSecond: perSecond}
	if err := r.to.Update(clock.Time(0), o, []pool.BackendOptions{{Name: "b", Address: memBackend}}); err != nil {
		r.t.Fatal(err)
	}
}

// Content is given back as soon as the header of the response comes, however long the response is.
func TestKeptContentIsGivenBack(t *testing.T) {
	r := newMemRig(t, nil)
	var back *memtransport.Peer
	r.backend = func(p *memtransport.Peer) { back = p }
	client := r.connect(memHTTP1)
	client.Write([]byte("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123"))
	r.run()
	if n := r.worker.Stats().Kept; n != 3 {
		t.Errorf("%d bytes are kept", n)
	}
	back.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"))
	r.run()
	client.Write([]byte("456"))
	r.run()
	if n := r.worker.Stats().Kept; n != 0 {
		t.Errorf("%d bytes are kept once the response has begun", n)
	}
	r.nothingLeft(client, back)
}

// Nothing of a request has left where the connection fails at the first write: even POST goes to another one.
func TestUnsentRequestsAreSentAgain(t *testing.T) {
	r := newMemRig(t, nil)
	b := &recorder{}
	r.backend = b.serve
	client := r.connect(memHTTP1)
	client.Write([]byte(first1))
	r.run()
	client.Take()
	client.Write([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"))
	reset := false
	r.loop.SetTick(func(now clock.Time) clock.Time { // the loop has no event of it yet
		if !reset && len(r.worker.Run.Lists[link.Start]) > 0 {
			reset = true
			r.backs[0].Abort()
		}
		return r.worker.tick(now)
	})
	r.run()
	if got := string(client.Take()); !reset || !strings.HasPrefix(got, "HTTP/1.1 200") || len(b.connections) != 2 {
		t.Errorf("reset %v: %.100q by %d connections", reset, got, len(b.connections))
	}
	r.nothingLeft(client)
}

// refuser2 is a backend of HTTP/2 that does not process the first requests, and answers others with their content.
type refuser2 struct {
	goAway   bool // by GOAWAY, in place of RST_STREAM with REFUSED_STREAM
	refuses  int
	requests int
	trailers int
}

func (b *refuser2) serve(p *memtransport.Peer) {
	contents := map[*http2.Stream][]byte{}
	serveHTTP2(p, http2.Options{}, func(m *http2.Machine, ev http2.Event) {
		switch ev.Kind {
		case http2.Failed:
			m.Release(ev.Stream)
		case http2.Data:
			contents[ev.Stream] = append(contents[ev.Stream], ev.Payload...)
			m.Consumed(ev.Stream, len(ev.Payload))
		case http2.End:
			b.trailers += len(ev.Stream.Trailers)
			content := contents[ev.Stream]
			delete(contents, ev.Stream) // the machine uses streams again
			b.end(p, m, ev.Stream, content)
		}
	})
}

// end refuses a request, or answers it.
func (b *refuser2) end(p *memtransport.Peer, m *http2.Machine, s *http2.Stream, content []byte) {
	switch b.requests++; {
	case b.requests <= b.refuses && b.goAway:
		p.Write([]byte{0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // last stream 0, NO_ERROR
		return
	case b.requests <= b.refuses:
		m.Reset(s, http2.RefusedStream)
	default:
		out, _ := m.AppendResponse(m.AppendControl(nil), s, &semantics.Message{Status: 200, ContentLength: int64(len(content))}, len(content) == 0)
		out, _, _ = m.AppendData(out, s, content, true)
		p.Write(out)
	}
	m.Release(s)
}

// What a backend has not processed is sent again with its content, whatever the method, from each version of the client.
func TestUnprocessedContentIsSentAgain(t *testing.T) {
	content := strings.Repeat("m", 5000)
	for _, goAway := range []bool{false, true} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("GOAWAY %v, HTTP/2 client %v", goAway, h2), func(t *testing.T) {
				b := &refuser2{goAway: goAway, refuses: 2}
				r := newMemRig(t, func(r *memRig, _ *Tree) { r.to.Protocol = HTTP2 })
				r.backend = b.serve
				var client *memtransport.Peer
				var got string
				if h2 {
					client, got = r.call(content)
				} else {
					client = r.connect(memHTTP1)
					client.Write(fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nsum: 1\r\n\r\n", len(content), content))
					r.run()
					_, got, _ = strings.Cut(string(client.Take()), "\r\n\r\n")
				}
				if got != content || b.requests != 3 {
					t.Errorf("%d bytes after %d requests", len(got), b.requests)
				}
				if b.trailers != 3 {
					t.Errorf("%d trailers of 3 requests", b.trailers)
				}
				r.nothingLeft(client)
			})
		}
	}
}

// call sends a request like one of gRPC, and returns the content of the response.
func (r *memRig) call(content string) (client *memtransport.Peer, got string) {
	r.t.Helper()
	m := http2.NewMachine(http2.RoleClient, http2.Options{})
	client = r.connect(memHTTP2)
	s, err := m.Open()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := m.AppendRequest(m.AppendControl(nil), s, &semantics.Message{
		Method: "POST", Scheme: "http", Authority: "a", Path: "/s/m", ContentLength: -1,
		Fields: []semantics.Field{{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}},
	}, false)
	if err != nil {
		r.t.Fatal(err)
	}
	out, _, _ = m.AppendData(out, s, []byte(content), false)
	out, _ = m.AppendTrailers(out, s, []semantics.Field{{Name: "sum", Value: "1"}})
	client.Write(out)
	r.run()
	in := client.Take()
	for {
		ev, n, err := m.Input(in)
		if in = in[n:]; err != nil {
			r.t.Fatal(err)
		}
		switch ev.Kind {
		case http2.NeedInput:
			return client, got
		case http2.Data:
			got += string(ev.Payload)
			m.Consumed(ev.Stream, len(ev.Payload))
		}
	}
}

// Content of all requests together is bounded.
func TestKeptContentIsBounded(t *testing.T) {
	w := newMemRig(t, nil).worker
	r := relay{keep: 100}
	w.counters.kept.Store(maxKept - 10)
	r.remember(w, bytes.Repeat([]byte("x"), 10))
	if len(r.kept) != 10 {
		t.Errorf("%d bytes are kept below the bound", len(r.kept))
	}
	r.remember(w, []byte("y"))
	if r.kept != nil || r.keep != 0 || w.counters.kept.Load() != maxKept-10 {
		t.Errorf("%d bytes are kept above the bound, counted %d", len(r.kept), w.counters.kept.Load())
	}
}

// A backend of HTTP/2 that has sent an interim response has begun to serve: the end of its connection is no reason to repeat.
func TestInterimResponsesAreABeginning(t *testing.T) {
	for _, interim := range []bool{false, true} {
		r := newMemRig(t, func(r *memRig, _ *Tree) { r.to.Protocol = HTTP2 })
		requests := 0
		r.backend = func(p *memtransport.Peer) {
			m := http2.NewMachine(http2.RoleServer, http2.Options{})
			p.Write(m.AppendControl(nil))
			var in []byte
			p.Handler = func(p *memtransport.Peer) {
				for in = append(in, p.Take()...); !p.Ended; {
					ev, n, err := m.Input(in)
					if in = in[n:]; err != nil || ev.Kind == http2.NeedInput {
						p.Write(m.AppendControl(nil))
						return
					}
					if ev.Kind != http2.End {
						continue
					}
					if requests++; requests == 2 {
						if interim {
							out, _ := m.AppendResponse(nil, ev.Stream, &semantics.Message{Status: 103, ContentLength: -1}, false)
							p.Write(out)
						}
						p.Close()
						return
					}
					out, _ := m.AppendResponse(m.AppendControl(nil), ev.Stream, &semantics.Message{Status: 204, ContentLength: -1}, true)
					m.Release(ev.Stream)
					p.Write(out)
				}
				p.Close()
			}
		}
		client := r.connect(memHTTP1)
		for i := range 2 {
			client.Write([]byte(first1))
			r.run()
			want := "HTTP/1.1 204"
			if i == 1 && interim {
				want = "HTTP/1.1 103"
			}
			got := string(client.Take())
			if !strings.HasPrefix(got, want) || interim && i == 1 && !strings.Contains(got, "HTTP/1.1 502") {
				t.Errorf("request %d, interim response %v: %.200q", i, interim, got)
			}
		}
		if want := map[bool]int{false: 3, true: 2}[interim]; requests != want {
			t.Errorf("interim response %v: %d requests, want %d", interim, requests, want)
		}
		r.nothingLeft(client)
	}
}

// Content that is kept goes through the relay, however long it is: what moves past it could not be sent again.
func TestLongContentIsSentAgain(t *testing.T) {
	const size = 600 << 10
	requests := make(chan int64, 10)
	var n atomic.Int64
	backend := script(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			got, _ := io.Copy(io.Discard, req.Body)
			requests <- got
			if n.Add(1) == 2 {
				return
			}
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	r := newRig(t, backend, func(r *rig) { r.pool.Replay = 1 << 20 })
	client := r.client(false)
	for i := range 2 {
		req, err := http.NewRequest("PUT", "http://"+r.addr, bytes.NewReader(make([]byte, size*i)))
		must(t, err)
		resp, err := client.Do(req)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != 204 {
			t.Errorf("request %d: %s", i, resp.Status)
		}
	}
	for i, want := range []int64{0, size, size} {
		if got := <-requests; got != want {
			t.Errorf("attempt %d has %d bytes of content, want %d", i, got, want)
		}
	}
	r.settled()
}
