package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// limit gives the only backend limits.
func (r *memRig) limit(l pool.Limits) {
	if err := r.to.Update(clock.Time(0), pool.Options{Name: "p"}, []pool.BackendOptions{{Name: "b", Address: memBackend, Limits: l}}); err != nil {
		r.t.Fatal(err)
	}
}

// waiting returns how many requests wait at the backend, were refused, and have waited for too long.
func (r *memRig) waiting() [3]int {
	b := r.to.Status(r.worker.Now).Backends[0]
	return [3]int{b.Pending, int(b.Refused), int(b.Expired)}
}

// The queue has the order of turns, also of those that come back to it, and any of them can leave.
func TestQueueAgainstAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var q queue
	var list, out []*waiter
	check := func() {
		t.Helper()
		if !slices.Equal(q.waiters, list) {
			t.Fatalf("%d waiters, want %d", len(q.waiters), len(list))
		}
	}
	turns := uint64(0)
	for range 2000 {
		switch n := rng.IntN(5); {
		case n < 2:
			turns++
			v := &waiter{turn: turns}
			list = append(list, v)
			q.insert(v)
		case n == 2 && len(out) > 0: // comes back to its place
			v := out[len(out)-1]
			out = out[:len(out)-1]
			at, _ := slices.BinarySearchFunc(list, v, func(a, b *waiter) int { return int(a.turn) - int(b.turn) })
			list = slices.Insert(list, at, v)
			q.insert(v)
		case len(list) > 0:
			at := rng.IntN(len(list))
			if n == 3 {
				at = 0
			}
			v := list[at]
			q.remove(v)
			if list = slices.Delete(list, at, at+1); rng.IntN(2) == 0 {
				out = append(out, v)
			}
		}
		check()
	}
}

// ask2 begins requests GET /from to /to-1 of HTTP/2 on one connection.
func (r *memRig) ask2(from, to int) (client *memtransport.Peer) {
	m := http2.NewMachine(http2.RoleClient, http2.Options{})
	client = r.connect(memHTTP2)
	out := m.AppendControl(nil)
	for i := from; i < to; i++ {
		s, err := m.Open()
		if err != nil {
			r.t.Fatal(err)
		}
		out, err = m.AppendRequest(out, s, &semantics.Message{Method: "GET", Scheme: "http", Authority: "a", Path: fmt.Sprint("/", i), ContentLength: -1}, true)
		if err != nil {
			r.t.Fatal(err)
		}
	}
	client.Write(out)
	r.run()
	return client
}

// Ten thousand requests wait for one connection. Those whose clients leave are gone at once, and the others are served in the order
// in which they came.
func TestTenThousandWait(t *testing.T) {
	const each, clients = 100, 100
	r := newMemRig(t, func(r *memRig, _ *Tree) { r.limit(pool.Limits{Connections: 1}); r.to.Wait, r.rule.Attempt = -1, 0 })
	var back *memtransport.Peer
	r.backend = func(p *memtransport.Peer) { back = p }
	var all []*memtransport.Peer
	for i := range clients {
		all = append(all, r.ask2(i*each, (i+1)*each))
	}
	if got := r.waiting(); got != [3]int{each*clients - 1, 0, 0} {
		t.Fatalf("%v wait", got)
	}
	r.pass(time.Minute) // many checks of the queue
	began := time.Now()
	for i := clients - 1; i > 0; i-- {
		if i%4 != 0 {
			all[i].Abort()
		}
	}
	r.run()
	if got := r.waiting()[0]; got != each*clients/4-1 {
		t.Errorf("%d wait after others have left", got)
	}
	line := regexp.MustCompile(`GET /(\d+) HTTP`)
	var order []int
	back.Handler = func(p *memtransport.Peer) {
		for _, m := range line.FindAllSubmatch(p.Take(), -1) {
			n, _ := strconv.Atoi(string(m[1]))
			order = append(order, n)
			p.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
		}
	}
	back.Handler(back)
	r.run()
	t.Logf("%d requests left and %d were served in %v", each*clients*3/4, len(order), time.Since(began))
	if len(order) != each*clients/4 || !slices.IsSorted(order) {
		t.Errorf("%d were served, in order %v", len(order), slices.IsSorted(order))
	}
	if n := r.worker.Stats().Status[2]; n != each*clients/4 {
		t.Errorf("%d have a response", n)
	}
	back.Handler = func(p *memtransport.Peer) {
		if p.Ended {
			p.Close()
		}
	}
	r.nothingLeft(all...)
}

// Requests beyond the bound are refused at once, and those that wait for too long are given up. Both say so.
func TestWaitingIsBounded(t *testing.T) {
	r := newMemRig(t, func(r *memRig, _ *Tree) {
		r.limit(pool.Limits{Connections: 1, Pending: 2})
		r.to.Wait, r.rule.Attempt = 3*time.Second, 0
	})
	r.backend = func(*memtransport.Peer) {}
	var clients []*memtransport.Peer
	for i := range 4 {
		c := r.connect(memHTTP1)
		c.Write([]byte(first1))
		clients = append(clients, c)
		if r.run(); i < 3 {
			r.pass(time.Second)
		}
	}
	refused := string(clients[3].Take())
	if !strings.HasPrefix(refused, "HTTP/1.1 503") || !strings.Contains(refused, "proxy-status: millrace; error=connection_limit_reached") {
		t.Errorf("%q", refused)
	}
	if got := r.waiting(); got[0] != 2 || got[1] == 0 || got[2] != 0 {
		t.Errorf("%v wait, were refused, expired", got)
	}
	r.pass(990 * time.Millisecond)
	if got := r.waiting(); got[0] != 2 {
		t.Errorf("%v wait, were refused, expired", got)
	}
	r.pass(30 * time.Millisecond)
	if got := r.waiting(); got[0] != 1 || got[2] != 1 {
		t.Errorf("%v wait, were refused, expired", got)
	}
	if got := string(clients[1].Take()); !strings.HasPrefix(got, "HTTP/1.1 503") || !strings.Contains(got, "connection_limit_reached") {
		t.Errorf("%q", got)
	}
	if got := clients[2].Take(); len(got) > 0 {
		t.Errorf("%q", got)
	}
	r.backend = func(p *memtransport.Peer) { p.Close() }
	r.backs[0].Close()
	r.nothingLeft(clients...)
}

// A request that comes later does not overtake those that wait, also where a connection has become possible meanwhile.
func TestNoneOvertakesThoseThatWait(t *testing.T) {
	r := newMemRig(t, func(r *memRig, _ *Tree) { r.limit(pool.Limits{Connections: 1}); r.rule.Attempt = 0 })
	r.backend = func(*memtransport.Peer) {}
	ask := func(path string) *memtransport.Peer {
		c := r.connect(memHTTP1)
		c.Write([]byte("GET /" + path + " HTTP/1.1\r\nHost: a\r\n\r\n"))
		r.run()
		return c
	}
	clients := []*memtransport.Peer{ask("a"), ask("b")}
	r.limit(pool.Limits{Connections: 2}) // the queue does not know yet
	clients = append(clients, ask("c"))
	r.pass(2 * queueCheck)
	if len(r.backs) != 2 || !strings.HasPrefix(string(r.backs[1].Take()), "GET /b ") {
		t.Errorf("%d connections; b was overtaken", len(r.backs))
	}
	r.backs[0].Close() // room for c
	r.run()
	if len(r.backs) != 3 || !strings.HasPrefix(string(r.backs[2].Take()), "GET /c ") {
		t.Errorf("%d connections at once after one has ended", len(r.backs))
	}
	for _, b := range r.backs {
		b.Close()
	}
	r.nothingLeft(clients...)
}

// A WebSocket waits like any request.
func TestWebSocketsWait(t *testing.T) {
	r := newMemRig(t, func(r *memRig, _ *Tree) { r.limit(pool.Limits{Connections: 1}) })
	r.backend = func(*memtransport.Peer) {}
	first, second := r.connect(memHTTP1), r.connect(memHTTP1)
	first.Write([]byte(socketRequest))
	r.run()
	second.Write([]byte(socketRequest))
	r.run()
	if got := r.waiting()[0]; got != 1 || len(second.Take()) != 0 {
		t.Errorf("%d wait", got)
	}
	r.backs[0].Close()
	r.run()
	if len(r.backs) != 2 {
		t.Fatalf("%d connections", len(r.backs))
	}
	r.backs[1].Write([]byte(socketResponse))
	r.run()
	if got := string(second.Take()); !strings.HasPrefix(got, "HTTP/1.1 101") {
		t.Errorf("%q", got)
	}
	r.backs[1].Close()
	r.nothingLeft(first, second)
}

const (
	socketRequest = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	socketResponse = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)

// Connections that are passed through wait in order where the backend has as many as it may, up to the bound and for its time.
func TestPassesWait(t *testing.T) {
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		ln := r.stream(tree, StreamTCP)
		rule := *r.rule
		rule.Attempts, ln.Rules = 1, []*Rule{&rule}
		r.limit(pool.Limits{Connections: 1, Pending: 3})
		r.to.Wait = 3 * time.Second
	})
	r.backend = func(*memtransport.Peer) {}
	var clients []*memtransport.Peer
	for i := range 5 {
		c := r.connect(memStream)
		fmt.Fprint(peerWriter{c}, i)
		clients = append(clients, c)
		r.run()
		r.pass(100 * time.Millisecond)
	}
	if got := r.waiting(); got != [3]int{3, 1, 0} || !clients[4].Reset {
		t.Errorf("%v wait, were refused, expired; the last was refused: %v", got, clients[4].Reset)
	}
	clients[2].Abort() // it leaves
	r.run()
	if got := r.waiting()[0]; got != 2 {
		t.Errorf("%d wait", got)
	}
	r.backs[0].Abort()
	r.run()
	if len(r.backs) != 2 || string(r.backs[1].Take()) != "1" {
		t.Errorf("%d connections: the second client has not its turn", len(r.backs))
	}
	r.pass(2900 * time.Millisecond)
	if got := r.waiting(); got != [3]int{0, 1, 1} || !clients[3].Reset || clients[1].Reset {
		t.Errorf("%v wait, were refused, expired; the fourth was given up: %v", got, clients[3].Reset)
	}
	if s := r.worker.Stats().Stream; s.Failed != 2 || s.Retries != 0 {
		t.Errorf("%+v", s)
	}
	r.backs[1].Close()
	r.nothingLeft(clients...)
}

// peerWriter is a peer as an io.Writer.
type peerWriter struct{ *memtransport.Peer }

func (w peerWriter) Write(b []byte) (int, error) { w.Peer.Write(b); return len(b), nil }

// Workers take turns: a request at one that has no connection is served before those that came later to one that has them all.
func TestWorkersTakeTurns(t *testing.T) {
	for _, protocol := range []PoolProtocol{HTTP1, HTTP2} {
		t.Run(fmt.Sprint("protocol ", protocol), func(t *testing.T) {
			var all Endpoints
			busy := newMemRig(t, func(r *memRig, _ *Tree) {
				r.limit(pool.Limits{Connections: 1})
				r.to.Wait, r.to.Protocol, r.rule.Attempt = -1, protocol, 0
			})
			other := newMemRig(t, func(r *memRig, tree *Tree) {
				r.to, r.rule.Backends[0].Pool, r.rule.Attempt = busy.to, busy.to, 0
				tree.Pools[0] = busy.to
			})
			other.worker.id = 1
			busy.worker.Share(&all)
			other.worker.Share(&all)
			// Both backends answer a request in 10 ms, one at a time.
			var served []string
			for _, r := range []*memRig{busy, other} {
				name := map[*memRig]string{busy: "busy", other: "other"}[r]
				r.backend = stepBackend(protocol, func() { served = append(served, name) })
			}
			step := func(d time.Duration) {
				for ; d > 0; d -= 10 * time.Millisecond {
					for _, r := range []*memRig{busy, other} {
						r.pass(10 * time.Millisecond)
						for _, p := range r.backs {
							if f, ok := p.User.(func()); ok {
								f()
							}
						}
						r.run()
					}
				}
			}
			client := busy.ask2(0, 100)
			step(100 * time.Millisecond)
			late := other.ask2(0, 1)
			step(100 * time.Millisecond)
			more := busy.ask2(100, 200)
			step(4 * time.Second)
			at := slices.Index(served, "other")
			t.Logf("served %d, the other's as number %d", len(served), at)
			if len(served) != 201 || at < 0 || at > 150 || other.worker.Stats().Status[2] != 1 || busy.worker.Stats().Status[2] != 200 {
				t.Errorf("served %d, the other's as number %d", len(served), at)
			}
			for _, r := range []*memRig{busy, other} {
				for _, p := range r.backs {
					p.User = nil
				}
			}
			client.Close()
			late.Close()
			more.Close()
			busy.nothingLeft()
			other.nothingLeft()
		})
	}
}

// stepBackend returns a backend whose connections answer one request for each call of the function in Peer.User.
func stepBackend(protocol PoolProtocol, served func()) func(p *memtransport.Peer) {
	if protocol == HTTP1 {
		return func(p *memtransport.Peer) {
			requests := 0
			p.Handler = func(p *memtransport.Peer) {
				if requests += strings.Count(string(p.Take()), "\r\n\r\n"); p.Ended {
					p.Close()
				}
			}
			p.User = func() {
				if requests > 0 {
					requests--
					served()
					p.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
				}
			}
		}
	}
	return func(p *memtransport.Peer) {
		var open []*http2.Stream
		m := serveHTTP2(p, http2.Options{MaxStreams: 1}, func(_ *http2.Machine, ev http2.Event) {
			if ev.Kind == http2.End {
				open = append(open, ev.Stream)
			}
		})
		p.User = func() {
			if len(open) == 0 {
				return
			}
			out, _ := m.AppendResponse(m.AppendControl(nil), open[0], &semantics.Message{Status: 204, ContentLength: -1}, true)
			m.Release(open[0])
			open = open[1:]
			served()
			p.Write(out)
		}
	}
}

// A worker lets another have a connection whose request has waited for longer by more than waitSlack, unless that takes none; and a
// request that has just come takes none that others wait for.
func TestYields(t *testing.T) {
	r := newMemRig(t, func(r *memRig, _ *Tree) { r.limit(pool.Limits{Connections: 1}) })
	r.backend = func(*memtransport.Peer) {}
	w, b := r.worker, r.to.Backends()[0]
	for _, c := range []struct {
		loop        int
		other, here time.Duration // ago
		want        bool
	}{
		{1, waitSlack + 1, 0, true},
		{1, waitSlack, 0, false},
		{1, time.Second, 990 * time.Millisecond, false},
		{1, 0, time.Second, false},
		{1, maxYield - 1, 0, true},
		{1, maxYield, 0, false},
		{0, time.Second, 0, false},
	} {
		b.SetWait(c.loop, w.Now.Add(-c.other))
		if got := w.yields(b, w.Now.Add(-c.here)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		b.SetWait(c.loop, clock.Never)
	}
	b.SetWait(1, w.Now.Add(-2*waitSlack))
	client := r.connect(memHTTP1)
	client.Write([]byte(first1))
	r.run()
	if got := r.waiting()[0]; got != 1 || len(r.backs) != 0 {
		t.Errorf("%d wait, %d connections, while another worker's request waits", got, len(r.backs))
	}
	r.pass(2 * queueCheck)
	if len(r.backs) != 0 {
		t.Errorf("%d connections, while another worker's request waits", len(r.backs))
	}
	b.SetWait(1, clock.Never)
	r.pass(2 * queueCheck)
	if len(r.backs) != 1 {
		t.Errorf("%d connections", len(r.backs))
	}
	r.backs[0].Close()
	r.backend = func(p *memtransport.Peer) { p.Close() }
	r.nothingLeft(client)
}

// A request that waits begins as soon as the backend permits more requests on the connection.
func TestSettingsBeginRequestsThatWait(t *testing.T) {
	r := newMemRig(t, func(r *memRig, _ *Tree) {
		r.limit(pool.Limits{Connections: 1})
		r.to.Protocol, r.rule.Attempt = HTTP2, 0
	})
	opened := 0
	r.backend = func(p *memtransport.Peer) {
		m := http2.NewMachine(http2.RoleServer, http2.Options{MaxStreams: 1})
		p.Write(m.AppendControl(nil))
		var in []byte
		p.Handler = func(p *memtransport.Peer) {
			for in = append(in, p.Take()...); ; {
				ev, n, err := m.Input(in)
				if in = in[n:]; err != nil || ev.Kind == http2.NeedInput {
					break
				}
				if ev.Kind == http2.Headers {
					opened++
				}
			}
			if p.Ended {
				p.Close()
			}
		}
	}
	client := r.ask2(0, 2)
	if got := r.waiting()[0]; got != 1 || opened != 1 {
		t.Errorf("%d wait, %d are open", got, opened)
	}
	r.backs[0].Write([]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2})
	r.run()
	if got := r.waiting()[0]; got != 0 {
		t.Errorf("%d wait", got)
	}
	r.backs[0].Close()
	r.nothingLeft(client)
}

// A connection that has waited, and is refused then, does not wait once more.
func TestPassesWaitOnce(t *testing.T) {
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		r.stream(tree, StreamTCP)
		r.limit(pool.Limits{Connections: 1})
	})
	r.backend = func(*memtransport.Peer) {}
	first, second := r.connect(memStream), r.connect(memStream)
	r.run()
	r.loop.Dialed = nil // refuses
	r.backs[0].Abort()
	r.run()
	if got := r.waiting(); got != [3]int{} || !second.Reset {
		t.Errorf("%v wait, were refused, expired; it was reset: %v", got, second.Reset)
	}
	r.nothingLeft(first, second)
}

// Requests wait for streams of a backend with HTTP/3 that may have no further connection.
func TestRequestsWaitForStreamsOfHTTP3(t *testing.T) {
	backend, roots := echoBackend3(t, &quic.Config{MaxStreams: 2})
	r := http3Rig(t, backend, func(r *rig) {
		r.over3(roots)
		o := []pool.BackendOptions{{Name: "b", Address: netip.MustParseAddrPort(backend), Limits: pool.Limits{Connections: 1}}}
		must(t, r.pool.Update(clock.Time(0), pool.Options{Name: "p"}, o))
		r.pool.Wait = -1
	})
	client := r.client(false)
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() { post(t, client, "http://"+r.addr, []byte("content")) })
	}
	all.Wait()
	r.settled()
	if got := r.pool.Status(0).Backends[0]; got.Pending != 0 || got.Conns > 1 {
		t.Errorf("%d wait, %d connections", got.Pending, got.Conns)
	}
}

// A request that comes in the batch in which a connection becomes free does not get it: one waits.
func TestNoneOvertakesInABatch(t *testing.T) {
	for name, free := range map[string]func(back *memtransport.Peer){
		"idle":   func(back *memtransport.Peer) { back.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n")) },
		"closed": func(back *memtransport.Peer) { back.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newMemRig(t, func(r *memRig, _ *Tree) { r.limit(pool.Limits{Connections: 1}); r.rule.Attempt = 0 })
			r.backend = func(*memtransport.Peer) {}
			var clients []*memtransport.Peer // before the backend's connection: their events come first
			for range 4 {
				clients = append(clients, r.connect(memHTTP1))
			}
			ask := func(i int) { clients[i].Write([]byte(fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i))) }
			for i := range 3 {
				ask(i)
				r.run()
			}
			r.backs[0].Take()
			ask(3)
			free(r.backs[0])
			r.run()
			back := r.backs[len(r.backs)-1]
			if got := string(back.Take()); !strings.HasPrefix(got, "GET /1 ") || strings.Count(got, "GET") != 1 {
				t.Errorf("%q: 1 was overtaken", got)
			}
			if got := r.waiting(); got != [3]int{2, 0, 0} {
				t.Errorf("%v wait", got)
			}
			for i := 2; i < 4; i++ {
				back.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
				r.run()
				if got := string(back.Take()); !strings.HasPrefix(got, fmt.Sprintf("GET /%d ", i)) {
					t.Errorf("%q in place of %d", got, i)
				}
			}
			back.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
			r.nothingLeft(clients...)
		})
	}
}
