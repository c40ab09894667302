package cm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// site is one Manager of a test and the events that it has reported.
type site struct {
	m        *Manager
	addr     wire.Addr
	events   []string
	onReq    func(c *Conn) // nil leaves requests to the test
	last     *Conn         // of the last event
	data     string        // private data of the last event
	world    *world
	accepted uint32
	next     clock.Time
}

// world joins two Managers by a network in virtual time.
type world struct {
	t       testing.TB
	now     clock.Time
	a, b    *site
	drop    func(m *Message) bool
	twice   bool
	flight  []datagram
	history []string
	rng     *rand.Rand
}

type datagram struct {
	at  clock.Time
	src wire.Addr
	dst wire.Addr
	mad []byte
}

func newWorld(t testing.TB, seed uint64, cfg Config) *world {
	w := &world{t: t, now: 1, rng: rand.New(rand.NewPCG(seed, 1)), drop: func(*Message) bool { return false }}
	w.a, w.b = w.newSite(addrA, cfg), w.newSite(addrB, cfg)
	return w
}

func (w *world) newSite(addr wire.Addr, cfg Config) *site {
	s := &site{addr: addr, world: w}
	cfg.Addr, cfg.CAGUID, cfg.Draw = addr, uint64(addr[15]), w.rng.Uint64
	cfg.Notify = func(e Event) {
		s.events = append(s.events, e.Kind.String())
		s.last = e.Conn
		if e.Message != nil {
			s.data = string(e.Message.Private)
		}
		if e.Kind == Requested && s.onReq != nil {
			s.onReq(e.Conn)
		}
		if e.Kind == Replied && !e.Conn.Datagram() {
			if err := e.Conn.Ready(w.now, nil); err != nil {
				w.t.Error(err)
			}
		}
	}
	s.m = New(w.now, cfg)
	return s
}

// accept is an onReq that accepts with queue pairs from 200 on.
func (s *site) accept(c *Conn) {
	s.accepted++
	if err := c.Accept(s.world.now, &Reply{QPN: 199 + s.accepted, PSN: 9, ResponderResources: 1, InitiatorDepth: 1, Private: []byte("accepted")}); err != nil {
		s.world.t.Error(err)
	}
}

func (w *world) poll(s *site) {
	s.next = s.m.Poll(w.now, func(to *Peer, mad []byte) bool {
		var m Message
		if why := m.Parse(mad); why != Taken {
			w.t.Errorf("%v of an own message", why)
		}
		w.history = append(w.history, m.Kind.String())
		if w.drop(&m) {
			return true
		}
		for range 1 + map[bool]int{true: 1}[w.twice] {
			w.flight = append(w.flight, datagram{w.now.Add(50 * time.Microsecond), s.addr, to.Addr, append([]byte(nil), mad...)})
		}
		return true
	})
}

// run advances time by d, or less if done is true before.
func (w *world) run(d time.Duration, done func() bool) {
	end := w.now.Add(d)
	for w.now.Before(end) && (done == nil || !done()) {
		w.poll(w.a)
		w.poll(w.b)
		next := min(w.a.next, w.b.next, end)
		for _, f := range w.flight {
			next = min(next, f.at)
		}
		w.now = max(next, w.now+1)
		var later []datagram
		flight := w.flight
		w.flight = nil
		for _, f := range flight {
			if w.now.Before(f.at) {
				later = append(later, f)
				continue
			}
			to := w.a
			if f.dst == w.b.addr {
				to = w.b
			}
			to.m.Input(w.now, &Peer{Addr: f.src}, f.mad)
		}
		w.flight = append(w.flight, later...)
	}
}

// connect begins a connection from a to b's service 7.
func (w *world) connect(qpn uint32) *Conn {
	w.t.Helper()
	c, err := w.a.m.Connect(w.now, Peer{Addr: w.b.addr}, &Request{Service: 7, QPN: qpn, PSN: 5, MTU: 1024, Private: []byte("hello")})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) listen(backlog int) *Listener {
	w.t.Helper()
	l, err := w.b.m.Listen(7, backlog, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *world) expect(s *site, want ...string) {
	w.t.Helper()
	if fmt.Sprint(s.events) != fmt.Sprint(want) {
		w.t.Errorf("events of %v: %q, want %q; %v", s.addr, s.events, want, w.history)
	}
}

// idle requires that no connection and no half-open count is left.
func (w *world) idle() {
	w.t.Helper()
	for _, s := range []*site{w.a, w.b} {
		m := s.m
		if m.Conns() != 0 || m.HalfOpen() != 0 || len(m.bySource) != 0 || len(m.byRemote) != 0 || len(m.byQPN) != 0 || m.wheel.Armed() != 0 {
			w.t.Errorf("%v: %d connections, %d half-open, %v %v %v, %d timers", s.addr, m.Conns(), m.HalfOpen(), m.bySource, m.byRemote, m.byQPN, m.wheel.Armed())
		}
	}
}

// TestConnection runs a connection from REQ to the end of TimeWait.
func TestConnection(t *testing.T) {
	w := newWorld(t, 1, Config{})
	w.listen(1)
	w.b.onReq = w.b.accept
	c := w.connect(100)
	w.run(time.Second, func() bool { return w.b.last != nil && w.b.last.State() == Established })
	if c.State() != Established || c.RemoteQPN() != 200 || w.b.last.RemoteQPN() != 100 {
		t.Fatal(c.State(), c.RemoteQPN())
	}
	if w.a.data[:8] != "accepted" || len(w.a.data) != 196 {
		t.Errorf("%q", w.a.data)
	}
	if err := w.b.last.Disconnect(w.now, nil); err != nil {
		t.Fatal(err)
	}
	w.run(3*time.Second, nil)
	w.expect(w.a, "replied", "disconnected", "released")
	w.expect(w.b, "requested", "opened", "disconnected", "released")
	if got := fmt.Sprint(w.history); got != "[REQ REP RTU DREQ DREP]" {
		t.Error(got)
	}
	w.idle()
}

// TestCommunicated loses every RTU: the queue pair of the passive side has got a packet.
func TestCommunicated(t *testing.T) {
	w := newWorld(t, 1, Config{})
	w.drop = func(m *Message) bool { return m.Kind == RTU }
	w.listen(1)
	w.b.onReq = w.b.accept
	c := w.connect(100)
	w.run(time.Second, func() bool { return c.State() == Established })
	if err := c.Communicated(w.now); !errors.Is(err, ErrState) {
		t.Errorf("on the active side: %v", err)
	}
	p := w.b.last
	if err := p.Communicated(w.now); err != nil || p.State() != Established {
		t.Errorf("%v, %v", err, p.State())
	}
	sent := len(w.history)
	w.run(20*time.Second, nil)
	if p.State() != Established || len(w.history) > sent+2 { // what was under way
		t.Errorf("REP is repeated until %v: %v", p.State(), w.history[sent:])
	}
	w.expect(w.b, "requested", "opened")
}

// TestEveryMessageLost loses each message of a connection once, and all messages twice as often as they are sent.
func TestEveryMessageLost(t *testing.T) {
	for _, kind := range []Kind{REQ, REP, RTU, DREQ, DREP} {
		for _, twice := range []bool{false, true} {
			w := newWorld(t, 2, Config{})
			w.twice = twice
			lost := 0
			w.drop = func(m *Message) bool {
				if m.Kind == kind && lost == 0 {
					lost++
					return true
				}
				return false
			}
			w.listen(1)
			w.b.onReq = w.b.accept
			c := w.connect(100)
			w.run(20*time.Second, func() bool { return c.State() == Established && w.b.last.State() == Established })
			if err := c.Disconnect(w.now, nil); err != nil {
				t.Fatalf("%v: %v %v", kind, err, w.history)
			}
			w.run(20*time.Second, nil)
			w.expect(w.a, "replied", "disconnected", "released")
			w.expect(w.b, "requested", "opened", "disconnected", "released")
			w.idle()
		}
	}
}

// TestManyConnectionsOnABadNetwork opens and closes 300 connections at 30 % loss with duplicates: both sides agree about each, and
// nothing is left.
func TestManyConnectionsOnABadNetwork(t *testing.T) {
	w := newWorld(t, 3, Config{MaxBySource: 1000})
	w.twice = true
	w.drop = func(*Message) bool { return w.rng.IntN(100) < 30 }
	w.listen(1000)
	w.b.onReq = w.b.accept
	var conns []*Conn
	for i := range 300 {
		conns = append(conns, w.connect(uint32(1000+i)))
	}
	open := func() bool {
		for _, c := range conns {
			if c.State() != Established {
				return false
			}
		}
		return w.b.m.HalfOpen() == 0
	}
	if w.run(time.Minute, open); !open() {
		t.Fatalf("%+v %+v", w.a.m.Counters(), w.b.m.Counters())
	}
	for _, c := range conns {
		if err := c.Disconnect(w.now, nil); err != nil {
			t.Fatal(err)
		}
	}
	w.run(time.Minute, nil)
	w.idle()
}

// TestRejections has each way in which a connection does not come about.
func TestRejections(t *testing.T) {
	t.Run("nothing listens", func(t *testing.T) {
		w := newWorld(t, 4, Config{})
		w.connect(100)
		w.run(10*time.Second, nil)
		w.expect(w.a, "rejected")
		w.idle()
	})
	t.Run("by the program", func(t *testing.T) {
		w := newWorld(t, 4, Config{})
		w.listen(1)
		w.b.onReq = func(c *Conn) {
			if err := c.Reject(w.now, RejConsumer, []byte{1}, []byte("full")); err != nil {
				t.Error(err)
			}
			if err := c.Accept(w.now, &Reply{QPN: 5}); !errors.Is(err, ErrState) {
				t.Error(err)
			}
		}
		w.connect(100)
		w.run(10*time.Second, nil)
		w.expect(w.a, "rejected")
		if w.a.data[:4] != "full" {
			t.Errorf("%q", w.a.data)
		}
		w.idle()
	})
	t.Run("nothing answers", func(t *testing.T) {
		w := newWorld(t, 4, Config{})
		w.drop = func(m *Message) bool { return true }
		w.connect(100)
		w.run(10*time.Second, nil)
		w.expect(w.a, "unreachable")
		if n := len(w.history); n != 17 { // 16 REQ, REJ
			t.Error(n, w.history)
		}
		w.idle()
	})
	t.Run("the program decides late", func(t *testing.T) {
		w := newWorld(t, 4, Config{})
		w.listen(1)
		c := w.connect(100)
		w.run(30*time.Second, nil)
		if c.State() != MraReceived || w.b.last.State() != ReqReceived {
			t.Fatal(c.State(), w.history)
		}
		w.b.accept(w.b.last)
		w.run(time.Second, nil)
		w.expect(w.a, "replied")
		w.expect(w.b, "requested", "opened")
	})
	t.Run("the program never decides", func(t *testing.T) {
		w := newWorld(t, 4, Config{AcceptTimeout: 3 * time.Second})
		w.listen(1)
		w.connect(100)
		w.run(30*time.Second, nil)
		w.expect(w.a, "rejected")
		w.expect(w.b, "requested", "unreachable")
		w.idle()
	})
	t.Run("the peer gives up", func(t *testing.T) {
		w := newWorld(t, 4, Config{})
		w.listen(1)
		c := w.connect(100)
		w.run(time.Millisecond, nil)
		if err := c.Reject(w.now, RejTimeout, nil, nil); err != nil {
			t.Fatal(err)
		}
		w.run(time.Second, nil)
		w.expect(w.b, "requested", "rejected")
		w.idle()
	})
	t.Run("RTU never comes", func(t *testing.T) {
		w := newWorld(t, 4, Config{})
		w.listen(1)
		w.b.onReq = w.b.accept
		w.drop = func(m *Message) bool { return m.Kind == RTU }
		w.connect(100)
		w.run(30*time.Second, nil)
		w.expect(w.a, "replied", "disconnected", "released")
		w.expect(w.b, "requested", "unreachable")
		w.idle()
	})
	t.Run("DREQ is never answered", func(t *testing.T) {
		w := newWorld(t, 4, Config{})
		w.listen(1)
		w.b.onReq = w.b.accept
		c := w.connect(100)
		w.run(time.Second, nil)
		w.drop = func(m *Message) bool { return true }
		if err := c.Disconnect(w.now, nil); err != nil {
			t.Fatal(err)
		}
		w.run(30*time.Second, nil)
		w.expect(w.a, "replied", "disconnected", "released")
	})
}

// TestStaleConnection has a peer that was started again connect with the queue pair of its former connection: that one ends, and the next
// attempt succeeds.
func TestStaleConnection(t *testing.T) {
	w := newWorld(t, 5, Config{})
	w.listen(1)
	w.b.onReq = w.b.accept
	w.connect(100)
	w.run(time.Second, nil)
	w.a = w.newSite(addrA, Config{}) // forgets all
	w.connect(100)
	w.run(time.Second, nil)
	w.expect(w.a, "rejected")
	w.expect(w.b, "requested", "opened", "disconnected")
	w.connect(100)
	w.run(10*time.Second, nil)
	w.expect(w.a, "rejected", "replied")
	w.expect(w.b, "requested", "opened", "disconnected", "requested", "opened", "released")
}

// TestFloods sends requests that nothing follows, from one address and from many: the half-open connections stay within the limits,
// each datagram is counted, and a peer with another address gets through.
func TestFloods(t *testing.T) {
	w := newWorld(t, 6, Config{MaxHalfOpen: 50, MaxBySource: 10, AcceptTimeout: 2 * time.Second})
	w.listen(1000)
	m := w.b.m
	flood := func(src wire.Addr, n int) {
		for i := range n {
			r := exemplar(REQ)
			r.Service, r.LocalID, r.QPN, r.Transport = 7, uint32(i+1), uint32(i+2), 0
			m.Input(w.now, &Peer{Addr: src}, r.Append(nil))
		}
	}
	flood(wire.AddrFrom4([4]byte{198, 18, 9, 9}), 1000)
	c := m.Counters()
	if m.HalfOpen() != 10 || c.Received[Taken] != 10 || c.Received[SourceFull] != 990 {
		t.Fatalf("%d half-open, %v", m.HalfOpen(), c.Received)
	}
	w.b.onReq = w.b.accept
	w.connect(100)
	w.run(time.Second, nil)
	w.expect(w.a, "replied")
	w.b.onReq = nil
	for i := range 100 {
		flood(wire.AddrFrom4([4]byte{198, 18, 8, byte(i)}), 20)
	}
	c = m.Counters()
	if m.HalfOpen() != 50 || c.Received[HalfOpenFull] != 2000-40-30 || c.Received[SourceFull] != 990+30 {
		t.Fatalf("%d half-open, %v", m.HalfOpen(), c.Received)
	}
	w.run(3*time.Second, nil)
	if m.HalfOpen() != 0 || m.Conns() != 1 {
		t.Errorf("%d half-open, %d connections", m.HalfOpen(), m.Conns())
	}
	// Datagrams that would be answered: no more than mostStray answers wait.
	for i := range 1000 {
		r := Message{Kind: DREQ, LocalID: uint32(i + 1), RemoteID: 77, QPN: 4}
		m.Input(w.now, &Peer{Addr: addrA}, r.Append(nil))
	}
	if len(m.stray) != mostStray || m.Counters().Received[RepliesFull] != 1000-mostStray {
		t.Errorf("%d answers wait, %d dropped", len(m.stray), m.Counters().Received[RepliesFull])
	}
}

// TestBacklog drops requests beyond what the program takes; they are repeated and served later.
func TestBacklog(t *testing.T) {
	w := newWorld(t, 7, Config{})
	l := w.listen(1)
	if _, err := w.b.m.Listen(7, 1, nil); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	w.connect(100)
	w.run(time.Millisecond, nil)
	first := w.b.last
	second := w.connect(101)
	w.run(time.Second, nil)
	if w.b.m.Counters().Received[BacklogFull] == 0 || second.State() != ReqSent {
		t.Fatal(second.State())
	}
	w.b.onReq = w.b.accept
	w.b.accept(first)
	w.run(2*time.Second, nil)
	if second.State() != Established {
		t.Error(second.State())
	}
	l.Close()
	w.connect(103)
	w.run(time.Second, nil)
	w.expect(w.a, "replied", "replied", "rejected")
}

// TestThirdParties sends each message with one value that is wrong: none changes a connection.
func TestThirdParties(t *testing.T) {
	w := newWorld(t, 8, Config{})
	w.listen(1)
	a := w.connect(100)
	w.run(time.Millisecond, nil)
	b := w.b.last
	other := wire.AddrFrom4([4]byte{198, 18, 0, 9})
	try := func(s *site, c *Conn, from wire.Addr, r Message) {
		t.Helper()
		before := c.State()
		if why := s.m.Input(w.now, &Peer{Addr: from}, r.Append(nil)); why == Taken || c.State() != before {
			t.Errorf("%v from %v: %v, now %v", r.Kind, from, why, c.State())
		}
	}
	rep := exemplar(REP)
	rep.TID, rep.LocalID, rep.RemoteID = a.tid, 5, a.localID
	try(w.a, a, other, rep)
	rep.TID++
	try(w.a, a, addrB, rep)
	rej := Message{Kind: REJ, TID: a.tid + 1, LocalID: 5, RemoteID: a.localID}
	try(w.a, a, addrB, rej)
	try(w.a, a, addrB, Message{Kind: MRA, TID: a.tid + 1, LocalID: 5, RemoteID: a.localID})
	try(w.a, a, addrB, Message{Kind: MRA, TID: a.tid, LocalID: 5, RemoteID: a.localID, Of: 1})
	try(w.b, b, addrA, Message{Kind: RTU, TID: a.tid, LocalID: a.localID, RemoteID: b.localID}) // no REP was sent
	w.b.accept(b)
	w.run(time.Second, nil)
	if a.State() != Established || b.State() != Established {
		t.Fatal(a.State(), b.State())
	}
	try(w.b, b, other, Message{Kind: DREQ, LocalID: a.localID, RemoteID: b.localID, QPN: 200})
	try(w.b, b, addrA, Message{Kind: DREQ, LocalID: a.localID + 1, RemoteID: b.localID, QPN: 200})
	try(w.b, b, addrA, Message{Kind: DREQ, LocalID: a.localID, RemoteID: b.localID, QPN: 201})
	try(w.b, b, addrA, Message{Kind: DREP, LocalID: a.localID, RemoteID: b.localID})
	try(w.b, b, other, Message{Kind: REJ, LocalID: a.localID, RemoteID: b.localID})
	req := exemplar(REQ)
	req.Service, req.LocalID, req.Transport = 7, a.localID, 0
	try(w.b, b, addrA, req) // the ID with another transaction
	if w.b.m.Counters().Received[DuplicateID] != 1 {
		t.Error("not counted")
	}
}

// TestArguments has calls refused whose values no message can carry.
func TestArguments(t *testing.T) {
	w := newWorld(t, 9, Config{MaxConns: 1})
	for _, r := range []Request{
		{QPN: 1, MTU: 1024},
		{QPN: 1 << 24, MTU: 1024},
		{QPN: 5, PSN: 1 << 24, MTU: 1024},
		{QPN: 5, MTU: 128},
		{QPN: 5, MTU: 8192},
		{QPN: 5, MTU: 1024, Transport: 2},
		{QPN: 5, MTU: 1024, Private: make([]byte, 93)},
		{QPN: 5, MTU: 1024, MaxCMRetries: 16},
	} {
		if _, err := w.a.m.Connect(w.now, Peer{Addr: addrB}, &r); !errors.Is(err, ErrMessage) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	c := w.connect(100)
	if _, err := w.a.m.Connect(w.now, Peer{Addr: addrB}, &Request{QPN: 5, MTU: 1024}); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	for i, err := range []error{c.Ready(w.now, nil), c.Disconnect(w.now, nil), c.Accept(w.now, &Reply{QPN: 5})} {
		if !errors.Is(err, ErrState) {
			t.Error(i, err)
		}
	}
	for i, err := range []error{
		c.Reject(w.now, 28, make([]byte, 73), nil), c.Reject(w.now, 28, nil, make([]byte, 149)), c.Accept(w.now, &Reply{QPN: 1}),
		c.Accept(w.now, &Reply{QPN: 5, RNRRetries: 8}), c.Ready(w.now, make([]byte, 225)), c.Disconnect(w.now, make([]byte, 221)),
	} {
		if !errors.Is(err, ErrMessage) {
			t.Error(i, err)
		}
	}
	if _, err := w.a.m.Listen(9, 0, nil); !errors.Is(err, ErrMessage) {
		t.Error(err)
	}
}

// TestNoRoom has a layer below that sends nothing at first.
func TestNoRoom(t *testing.T) {
	w := newWorld(t, 10, Config{})
	w.connect(100)
	full := func(*Peer, []byte) bool { return false }
	if next := w.a.m.Poll(w.now, full); next != w.now {
		t.Error(next)
	}
	w.b.m.answer(&Peer{Addr: addrA}, &Message{Kind: DREP})
	if next := w.b.m.Poll(w.now, full); next != w.now || w.b.m.Counters().Sent != 0 {
		t.Error(next)
	}
	w.run(time.Millisecond, nil)
	if fmt.Sprint(w.history) != "[REQ DREP REJ]" {
		t.Error(w.history)
	}
}

// FuzzInput feeds a Manager messages of the fuzzer's choice, from two peers, with calls between them: its tables stay consistent, and all
// is released in the end.
func FuzzInput(f *testing.F) {
	f.Add([]byte{0, 0x10, 1, 0, 1, 0x13, 1, 1, 2, 0x14, 1, 0, 3, 0x15, 1, 0})
	f.Add([]byte{0x40, 0x10, 1, 0, 0x41, 0x10, 1, 0, 0, 0x12, 1, 0, 0x80, 0x10, 3, 9})
	f.Fuzz(func(t *testing.T, script []byte) {
		w := newWorld(t, 11, Config{MaxHalfOpen: 8, MaxBySource: 5, AcceptTimeout: time.Second})
		w.listen(4)
		s := w.b
		var known []*Conn
		s.onReq = func(c *Conn) { known = append(known, c) }
		if c, err := s.m.Connect(w.now, Peer{Addr: addrA}, &Request{Service: 7, QPN: 300, MTU: 256}); err == nil {
			known = append(known, c)
		}
		for ; len(script) >= 4; script = script[4:] {
			op, kind, x, y := script[0], script[1], script[2], script[3]
			src := addrA
			if op&0x40 != 0 {
				src = wire.AddrFrom4([4]byte{198, 18, 0, 7})
			}
			c := known[int(x)%len(known)]
			switch {
			case op&0x80 == 0: // a message
				r := exemplar(REQ + Kind(kind)%9)
				r.Service, r.Transport, r.LocalID, r.RemoteID, r.TID, r.QPN = 7, 0, uint32(y), c.localID, c.tid, uint32(y)+2
				if op&1 != 0 {
					r.QPN, r.LocalID = c.localQPN, c.remoteID
				}
				r.Of, r.Info = y&3, nil
				mad := r.Append(nil)
				if op&2 != 0 {
					mad[headerLen+int(x)%(MADLen-headerLen)] ^= y
				}
				s.m.Input(w.now, &Peer{Addr: src}, mad)
			case op&7 == 0:
				_ = c.Accept(w.now, &Reply{QPN: uint32(y) + 2})
			case op&7 == 1:
				_ = c.Disconnect(w.now, nil)
			case op&7 == 2:
				_ = c.Reject(w.now, RejConsumer, nil, nil)
			case op&7 == 3:
				w.now = w.now.Add(time.Duration(y) * 10 * time.Millisecond)
			default:
				w.poll(s)
				w.flight = nil
			}
			checkTables(t, s.m)
		}
		for _, c := range known {
			_ = c.Disconnect(w.now, nil)
		}
		for range 40 { // each time-out of a state that waits
			w.now = w.now.Add(70 * time.Second)
			w.poll(s)
			w.flight = nil
		}
		for _, c := range s.m.conns {
			if c.state != Established { // those have no time-out
				t.Fatalf("%v is left", c.state)
			}
		}
	})
}

// checkTables compares the counts with the connections.
func checkTables(t *testing.T, m *Manager) {
	half, bySource := 0, map[wire.Addr]int{}
	for id, c := range m.conns {
		if c.localID != id || c.state == Idle {
			t.Fatalf("%v has ID %d", c.state, id)
		}
		if c.state.halfOpen() && !c.active {
			half++
			bySource[c.peer.Addr]++
		}
	}
	if half != m.halfOpen || half > 8 || fmt.Sprint(bySource) != fmt.Sprint(m.bySource) {
		t.Fatalf("%d half-open, counted %d; %v, counted %v", half, m.halfOpen, bySource, m.bySource)
	}
	for _, table := range []map[remoteKey]*Conn{m.byRemote, m.byQPN} {
		for k, c := range table {
			if m.conns[c.localID] != c || k.addr != c.peer.Addr {
				t.Fatalf("%v leads to %v", k, c.state)
			}
		}
	}
	for l := range m.listeners {
		n := 0
		for _, c := range m.conns {
			if c.listener == m.listeners[l] {
				n++
			}
		}
		if n != m.listeners[l].waiting {
			t.Fatalf("%d wait, counted %d", n, m.listeners[l].waiting)
		}
	}
}
