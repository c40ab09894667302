package proxy

import (
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/l7/side"
)

// Addresses of a memRig.
var (
	memHTTP1   = netip.MustParseAddrPort("192.0.2.1:80")
	memHTTP2   = netip.MustParseAddrPort("192.0.2.1:81")
	memBackend = netip.MustParseAddrPort("198.18.1.1:8080")
)

// memRig is a worker on a loop in memory, in virtual time. Its backend is a function of the test.
type memRig struct {
	t       testing.TB
	loop    *memtransport.Loop
	worker  *Worker
	rule    *Rule
	to      *Pool
	backend func(p *memtransport.Peer) // is called for each connection
	backs   []*memtransport.Peer       // connections to the backend so far
}

// memTimes are the time-outs of a memRig. They are all different, so that a test can tell which has passed.
var memTimes = side.Timeouts{Header: 10 * time.Second, Body: 11 * time.Second, Write: 12 * time.Second, Idle: 30 * time.Second, Tunnel: 40 * time.Second}

// newMemRig starts a worker. change may change the configuration first.
func newMemRig(t testing.TB, change func(r *memRig, tree *Tree)) *memRig {
	t.Helper()
	r := &memRig{t: t, loop: memtransport.New()}
	r.loop.Dialed = func(netip.AddrPort) (func(p *memtransport.Peer), error) {
		return func(p *memtransport.Peer) { r.backs = append(r.backs, p); r.backend(p) }, nil
	}
	r.backend = (&recorder{}).serve
	p, err := pool.New(pool.Options{Name: "p"}, []pool.BackendOptions{{Name: "b", Address: memBackend}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.to = &Pool{Pool: p}
	r.rule = &Rule{Name: "all", Backends: []Weighted{{Pool: r.to, Weight: 1}}, Attempts: 1, Attempt: 20 * time.Second}
	table, err := route.New([]route.Rule{{Name: "all"}})
	if err != nil {
		t.Fatal(err)
	}
	one := &Listener{Name: "one", Address: memHTTP1, HTTP1: &http1.Options{}, Table: table, Rules: []*Rule{r.rule}, Timeouts: memTimes}
	two := &Listener{Name: "two", Address: memHTTP2, HTTP2: &http2.Options{ExtendedConnect: true}, Table: table, Rules: one.Rules, Timeouts: memTimes}
	tree := &Tree{Listeners: []*Listener{one, two}, Pools: []*Pool{r.to}}
	if change != nil {
		change(r, tree)
	}
	r.worker = NewWorker(r.loop, 0)
	if err := r.worker.Apply(tree); err != nil {
		t.Fatal(err)
	}
	return r
}

// connect opens a connection of a client.
func (r *memRig) connect(addr netip.AddrPort) *memtransport.Peer {
	r.t.Helper()
	p, err := r.loop.Connect(addr)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// run runs until nothing is left to do now.
func (r *memRig) run() {
	r.t.Helper()
	if err := r.loop.Run(); err != nil {
		r.t.Fatal(err)
	}
}

// pass lets time pass.
func (r *memRig) pass(d time.Duration) {
	r.t.Helper()
	if err := r.loop.Advance(d); err != nil {
		r.t.Fatal(err)
	}
}

// ask sends bytes over a connection of their own and returns what comes back.
func (r *memRig) ask(bytes string) string {
	r.t.Helper()
	c := r.connect(memHTTP1)
	c.Write([]byte(bytes))
	r.run()
	defer r.run()
	defer c.Close()
	return string(c.Take())
}

// nothingLeft closes the peers, lets all time-outs pass, and checks that the worker has given everything back.
func (r *memRig) nothingLeft(clients ...*memtransport.Peer) {
	r.t.Helper()
	for _, c := range clients {
		c.Close()
	}
	r.run()
	for range 4 {
		r.pass(time.Minute)
	}
	w := r.worker
	if s := w.Stats(); s.Active != 0 || s.Open != 0 || len(w.fronts) != 0 {
		r.t.Errorf("%d exchanges and %d connections of clients are left", s.Active, s.Open)
	}
	for x := w.exchanges; x != nil; x = x.next {
		if x.phase != done {
			r.t.Errorf("an exchange was given back in phase %s", x.phase)
		}
	}
	if w.misfits != 0 {
		r.t.Errorf("%d events did not fit the phase of their exchange", w.misfits)
	}
	if n := r.loop.Open(); n != 0 {
		r.t.Errorf("%d connections are open", n)
	}
	if n := len(w.Timers) - len(w.FreeTimers); n != 0 {
		r.t.Errorf("%d timers are left", n)
	}
	for _, b := range w.backs {
		if len(b.idle)+len(b.shared)+len(b.opening) != 0 {
			r.t.Errorf("%d idle, %d shared, %d opening connections to a backend are left", len(b.idle), len(b.shared), len(b.opening))
		}
	}
	s := r.to.Status(w.Now)
	for _, b := range s.Backends {
		if b.Requests != 0 || b.Conns != 0 || b.Pending != 0 {
			r.t.Errorf("the pool counts %d requests and %d connections", b.Requests, b.Conns)
		}
	}
}

// recorder is a backend that keeps what it receives, by connection, and answers 200 to each request that is whole.
type recorder struct {
	connections [][]byte
	err         error // of what cannot be read in one way only
}

func (b *recorder) serve(p *memtransport.Peer) {
	i, answered := len(b.connections), 0
	b.connections = append(b.connections, nil)
	p.Handler = func(p *memtransport.Peer) {
		b.connections[i] = append(b.connections[i], p.Take()...)
		requests, err := wrongcases.Parse(b.connections[i])
		if err != nil {
			b.err = err
		}
		for ; answered < len(requests) && requests[answered].Whole; answered++ {
			p.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"))
			if requests[answered].Method != "HEAD" {
				p.Write([]byte("ok"))
			}
		}
		if p.Ended {
			p.Close()
		}
	}
}

// whole counts the requests that are.
func (b *recorder) whole() (n int) {
	for _, c := range b.connections {
		requests, _ := wrongcases.Parse(c)
		for i := range requests {
			if requests[i].Whole {
				n++
			}
		}
	}
	return n
}

// serveHTTP2 has a peer in memory be a server of HTTP/2, which calls f for each event, until its input ends.
func serveHTTP2(p *memtransport.Peer, o http2.Options, f func(m *http2.Machine, ev http2.Event)) *http2.Machine {
	m := http2.NewMachine(http2.RoleServer, o)
	p.Write(m.AppendControl(nil))
	var in []byte
	p.Handler = func(p *memtransport.Peer) {
		in = append(in, p.Take()...)
		for {
			ev, n, err := m.Input(in)
			if in = in[n:]; err != nil || ev.Kind == http2.NeedInput {
				break
			}
			f(m, ev)
		}
		if p.Ended {
			p.Close()
			return
		}
		p.Write(m.AppendControl(nil))
	}
	return m
}
