package tcp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/buffer"
	"github.com/millrace/millrace/wire"
)

// writer is an owner that writes a number of bytes, from its events alone.
type writer struct {
	c    *Conn
	now  *clock.Time
	left int
	runs int // events
}

var zeros [64 << 10]byte

func (w *writer) Ready(e Events) {
	w.runs++
	if e&(Connected|Writable) == 0 {
		return
	}
	for w.left > 0 {
		n := w.c.Write(*w.now, zeros[:min(w.left, len(zeros))])
		if n == 0 {
			return
		}
		w.left -= n
	}
	w.c.CloseWrite(*w.now)
}

// writers opens n connections from a to b, where all is read at once, and returns the bytes read.
func writers(t *testing.T, x *net, n, size int) (list []*writer, read func() int) {
	t.Helper()
	l, err := x.b.m.Listen(wire.Addr{}, testPort, n, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		w := &writer{now: &x.now, left: size}
		w.c, err = x.a.m.Connect(x.now, wire.Tuple{Local: addrA, Remote: addrB, RemotePort: testPort}, nil, w)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, w)
	}
	var conns []*Conn
	total := 0
	return list, func() int {
		for c := l.Accept(); c != nil; c = l.Accept() {
			conns = append(conns, c)
		}
		for _, c := range conns {
			k := c.Readable()
			c.Discard(x.now, k)
			total += k
		}
		return total
	}
}

// TestWritersWaitForMemory has more writers than the budget has minima: those that find no memory wait, each is
// woken when others free some, and all bytes come. It held for ever before: a queue that is empty gets no ACK.
func TestWritersWaitForMemory(t *testing.T) {
	x := newNet(t)
	x.a.m = NewMux(Config{Output: x.a, Now: x.now, Secret: [32]byte{1}, Seed: 1, Budget: 64 << 10})
	const n, size = 100, 100_000
	list, read := writers(t, x, n, size)
	waited, most, least := 0, 0, 0
	for end := x.now.Add(5 * time.Minute); read() < n*size; x.run(time.Millisecond) {
		if x.now > end {
			t.Fatalf("%d of %d bytes came", read(), n*size)
		}
		if x.a.m.buffers.Used() > 64<<10 {
			t.Fatalf("%d bytes are used", x.a.m.buffers.Used())
		}
		for id := x.a.m.writers.head; id != noConn; id = x.a.m.conn(id).following {
			waited++
		}
		if most == 0 && read() > n*size/2 {
			least = size
			for _, w := range list {
				most, least = max(most, size-w.left), min(least, size-w.left)
			}
		}
	}
	if waited == 0 {
		t.Error("no writer had to wait")
	}
	// First in, first out: at half-time none is far behind.
	if least < most/3 {
		t.Errorf("one writer has written %d bytes, another %d", most, least)
	}
	runs := 0
	for _, w := range list {
		runs += w.runs
	}
	if most := n * (4 + 2*size/4096); runs > most {
		t.Errorf("%d events for %d writers, want at most %d", runs, n, most)
	}
	x.run(2 * time.Second)
	if u := x.a.m.buffers.Used(); u != 0 || x.a.m.writers != (writerList{head: noConn, tail: noConn}) {
		t.Errorf("%d bytes are left, %+v", u, x.a.m.writers)
	}
}

// TestReadWakesWriter frees memory by reading, with nothing in flight: the Mux is not idle then, and the next Poll
// reports Writable.
func TestReadWakesWriter(t *testing.T) {
	x := newNet(t)
	const budget = 32 << 10
	x.a.m = NewMux(Config{Output: x.a, Now: x.now, Secret: [32]byte{1}, Seed: 1, Budget: budget})
	ca, cb, aa, _ := x.open(t, nil, nil)
	// What is received on a takes the memory, in as many connections as that needs.
	var full []*Conn
	for port := uint16(2000); x.a.m.buffers.RingsMayGrow(); port++ {
		ab := &app{}
		l, err := x.a.m.Listen(wire.Addr{}, port, 16, nil, ab)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x.b.m.Connect(x.now, wire.Tuple{Local: addrB, Remote: addrA, RemotePort: port}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Write(x.now, zeros[:8192])
		x.run(2 * time.Second)
		full = append(full, l.Accept())
	}
	x.a.m.buffers.Budget = x.a.m.buffers.Used() + 100
	if n := ca.Write(x.now, zeros[:100]); n != 0 || ca.Writable() != 0 {
		t.Fatalf("%d bytes written, room for %d", n, ca.Writable())
	}
	x.run(10 * time.Second)
	aa.events = 0
	x.a.m.Poll(x.now)
	if !x.a.m.Idle() || aa.events != 0 {
		t.Fatalf("idle %v, events %b", x.a.m.Idle(), aa.events)
	}
	x.a.m.buffers.Budget += 8 << 10 // as if a read that needs no window update had freed it
	if x.a.m.Idle() {
		t.Error("there is memory for a writer that waits, and the Mux is idle")
	}
	x.a.m.Poll(x.now)
	if aa.events&Writable == 0 || ca.Write(x.now, zeros[:100]) != 100 {
		t.Errorf("events %b, room for %d", aa.events, ca.Writable())
	}
	for _, c := range full {
		c.Discard(x.now, c.Readable())
	}
	x.run(time.Second)
	if cb.Readable() != 100 {
		t.Errorf("%d bytes came", cb.Readable())
	}
}

// TestWaitingWriterEnds takes a connection from the middle of the list in each way that it can end.
func TestWaitingWriterEnds(t *testing.T) {
	for name, end := range map[string]func(x *net, c *Conn){
		"close":       func(x *net, c *Conn) { c.Close(x.now) },
		"close write": func(x *net, c *Conn) { c.CloseWrite(x.now) },
		"abort":       func(x *net, c *Conn) { c.Abort(x.now) },
		"reset": func(x *net, c *Conn) {
			x.b.m.Each(func(d *Conn) {
				if d.tuple == c.tuple.Reverse() {
					d.Abort(x.now)
				}
			})
			x.run(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newNet(t)
			list, _ := writers(t, x, 6, 0)
			x.run(time.Second)
			x.a.m.buffers.Budget = 1 // as if others had it
			for _, w := range list {
				w.left = 1
				w.c.flags &^= flagFIN
				w.c.state = StateEstablished
				if w.c.Write(x.now, zeros[:1]) != 0 {
					t.Fatal("written")
				}
			}
			for _, i := range []int{2, 0, 5} {
				end(x, list[i].c)
			}
			var got []uint32
			for id := x.a.m.writers.head; id != noConn; id = x.a.m.conn(id).following {
				got = append(got, id)
			}
			want := []uint32{list[1].c.id, list[3].c.id, list[4].c.id}
			if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || x.a.m.writers.tail != want[2] {
				t.Errorf("%v wait, want %v", got, want)
			}
		})
	}
}

// TestOneByteFarAhead has 1000 connections send one byte each at the end of their window, five times a second, so that a ring of
// 128 KiB would be needed for each. An honest echo keeps its pace, and no data in order is refused.
func TestOneByteFarAhead(t *testing.T) {
	for name, kind := range map[string]struct {
		budget int64
		more   int // segments behind the first, which make the ring worth more
	}{"default": {0, 0}, "small": {siegeBudget, 0}, "dense": {siegeBudget, 12}} {
		t.Run(name, func(t *testing.T) {
			s := newAttackTest(t, 2000, func(c *Config, o *Options) { c.Budget, o.ReceiveBuffer = kind.budget, initialReceiveBuffer })
			type peer struct {
				tuple    wire.Tuple
				seq, ack uint32
			}
			var peers []peer
			for i := range 1000 {
				tuple, seq, ack := s.open(i, 1000, nil)
				peers = append(peers, peer{tuple, seq, ack})
			}
			s.onReply = func(reply) {}
			n := 0
			full := make([]byte, 1400)
			attack := func() {
				for range 50 {
					p := peers[n%len(peers)]
					at, round := uint32(60000), uint32(n/len(peers))
					if kind.more > 0 {
						at, round = 1400, round%uint32(kind.more)
						s.attack(p.tuple, wire.TCPHeader{Seq: p.seq + at + 1400*round, Ack: p.ack, Flags: wire.FlagACK, Window: 1000}, full)
					} else {
						s.attack(p.tuple, wire.TCPHeader{Seq: p.seq + at + 2*round, Ack: p.ack, Flags: wire.FlagACK, Window: 1000}, []byte("x"))
					}
					n++
				}
			}
			s.run(5*time.Second, 10*time.Millisecond, attack)
			s.connect()
			s.run(5*time.Second, 10*time.Millisecond, attack)
			s.progress()
			budget := s.server.buffers.Budget
			if s.worst > budget/2 {
				t.Errorf("%d bytes were held, of a budget of %d", s.worst, budget)
			}
			if st := s.server.Stats(); st.OutOfOrder == 0 || st.StalledPeers != 0 {
				t.Errorf("%d arrived out of order, %d connections were reset", st.OutOfOrder, st.StalledPeers)
			}
			for _, c := range s.accepted {
				c.Abort(s.now)
			}
			s.honest.Abort(s.now)
			s.run(2*time.Second, time.Second, nil)
			for _, c := range s.echoes {
				c.Close(s.now)
			}
			s.run(2*time.Second, time.Second, nil)
			if u := s.server.buffers.Used(); u != 0 {
				t.Errorf("%d bytes are left", u)
			}
		})
	}
}

// TestStaleGapsMakeWay fills the part of the budget for data out of order with gaps that nobody closes. A second later a
// gap of another connection gets its place, and its data comes whole.
func TestStaleGapsMakeWay(t *testing.T) {
	s := newAttackTest(t, 64, func(c *Config, o *Options) { c.Budget, o.ReceiveBuffer = siegeBudget, initialReceiveBuffer })
	gap := func(n int, at uint32, data []byte) *Conn {
		tuple, seq, ack := s.open(n, 65535, nil)
		s.onReply = func(reply) {}
		s.act()
		s.attack(tuple, wire.TCPHeader{Seq: seq + at, Ack: ack, Flags: wire.FlagACK, Window: 1000}, data)
		s.onReply = nil
		return s.accepted[len(s.accepted)-1]
	}
	held := func(c *Conn) bool { return c.active != nil && c.rcv != nil && len(c.rcv.OutOfOrder()) > 0 }
	var stale []*Conn
	for i := range 16 {
		stale = append(stale, gap(i, 65000, []byte("x")))
	}
	if late := gap(16, 65000, []byte("x")); held(late) || !held(stale[15]) {
		t.Errorf("data far ahead is held without memory for it: %v, %v", held(late), held(stale[15]))
	}
	if small := gap(17, 1400, make([]byte, 1400)); !held(small) {
		t.Error("a single lost segment's successor is not held")
	}
	s.run(2*staleOutOfOrder, time.Second, nil)
	if late := gap(18, 65000, []byte("x")); !held(late) || held(stale[0]) {
		t.Errorf("held: the new one %v, the oldest %v", held(late), held(stale[0]))
	}
	if p := s.server.stats.Pruned; p < 2 {
		t.Errorf("%d bytes pruned", p)
	}
}

// TestPressureLevels looks at what a connection gets at each level of pressure.
func TestPressureLevels(t *testing.T) {
	x := newNet(t)
	_, cb, _, _ := x.open(t, nil, nil)
	p := &x.b.m.buffers
	send := func(at uint32, n, packets int) {
		x.b.m.Input(x.now, &cb.tuple, &Segment{
			Seq: cb.rcvNxt + at, Ack: cb.nxt, Window: 65535, Flags: wire.FlagACK, Packets: uint16(packets), Len: uint32(n), Payload: [][]byte{zeros[:n]},
			Options: wire.TCPOptions{HasTimestamps: true, TSVal: cb.tsRecent},
		})
	}
	p.Budget = 1 << 20
	cb.Write(x.now, zeros[:]) // 64 KiB of the budget
	for level, want := range map[string]struct {
		budget       int64
		limit, queue int
		outOfOrder   bool
	}{
		"none":     {1 << 20, initialReceiveBuffer, 1 << 17, true},
		"tight":    {110 << 10, minReceiveFloor, 110 << 10 / 8, true},
		"critical": {70 << 10, minReceiveFloor, minBuffer, false},
		"spent":    {64 << 10, minReceiveFloor, minBuffer, false},
	} {
		p.Budget = want.budget
		if got := int(cb.receiveLimit()); got != want.limit {
			t.Errorf("%s: a receive buffer of %d, want %d", level, got, want.limit)
		}
		if got := cb.sendLimit(); got != want.queue {
			t.Errorf("%s: a send queue of %d, want %d", level, got, want.queue)
		}
		send(3000, 100, 1)
		if got := cb.rcv != nil && len(cb.rcv.OutOfOrder()) > 0; got != want.outOfOrder {
			t.Errorf("%s: data out of order is held: %v", level, got)
		}
		if cb.rcv != nil {
			cb.prune()
		}
		before := cb.rcvNxt
		send(0, 20000, 14)
		got := int(cb.rcvNxt - before)
		switch {
		case level == "spent" && got != 0, level == "critical" && got != 4096, level == "none" && got != 20000:
			t.Errorf("%s: %d of 20000 bytes in order were taken", level, got)
		}
		cb.Discard(x.now, cb.Readable())
	}
}

// promised is what the windows of all connections promise, counted anew.
func promised(m *Mux) (sum int64) {
	m.Each(func(c *Conn) {
		if c.active != nil && !c.has(flagPeerFIN) {
			sum += int64(buffer.RingSize(int(c.rcvAdv - c.readNext())))
		}
	})
	return sum
}

// TestWindowsAreBoundedTogether has many connections receive as fast as they can. Their buffers grow, each by need, by no more
// than half the budget together, no data in order is refused, and all is given back.
func TestWindowsAreBoundedTogether(t *testing.T) {
	x := newNet(t)
	const budget = 16 << 20
	x.b.m = NewMux(Config{Output: x.b, Now: x.now, Secret: [32]byte{2}, Seed: 2, Budget: budget})
	list, read := writers(t, x, 40, 3<<20)
	most := int64(0)
	for end := x.now.Add(time.Minute); read() < 40*(3<<20); x.run(time.Millisecond) {
		if x.now > end {
			t.Fatalf("only %d bytes came", read())
		}
		p := x.b.m.buffers.Promised
		if g := promised(x.b.m); g > p || p > budget/2 {
			t.Fatalf("windows promise %d, counted are %d", g, p)
		}
		most = max(most, p)
	}
	if most < budget/4 {
		t.Errorf("windows promised %d only", most)
	}
	if st := x.b.m.Stats(); st.Pruned > 0 {
		t.Errorf("%d bytes were refused", st.Pruned)
	}
	for _, w := range list {
		w.c.Close(x.now)
	}
	x.run(5 * time.Second)
	x.b.m.Each(func(c *Conn) { c.Abort(x.now) })
	x.run(5 * time.Second)
	if p := x.b.m.buffers.Promised; p != 0 {
		t.Errorf("%d bytes are still counted", p)
	}
}

// TestRefusedDataIsAnnounced has data in order find no memory. As soon as there is some, whether the application
// frees it or another connection does, an ACK announces the window.
func TestRefusedDataIsAnnounced(t *testing.T) {
	for name, own := range map[string]bool{"own": true, "another's": false} {
		t.Run(name, func(t *testing.T) {
			x := newNet(t)
			_, cb, _, _ := x.open(t, nil, nil)
			p := &x.b.m.buffers
			var acks int
			x.b.rewrite = func(s wire.TCP) {
				if s.Flags() == wire.FlagACK {
					acks++
				}
			}
			input := func(n int) {
				x.b.m.Input(x.now, &cb.tuple, &Segment{
					Seq: cb.rcvNxt, Ack: cb.nxt, Window: 65535, Flags: wire.FlagACK, Packets: 1, Len: uint32(n), Payload: [][]byte{zeros[:n]},
					Options: wire.TCPOptions{HasTimestamps: true, TSVal: cb.tsRecent},
				})
			}
			input(1000)
			x.b.m.Poll(x.now)
			budget := p.Budget
			p.Budget = p.Used() + 100
			before := cb.rcvNxt
			input(1400)
			x.b.m.Poll(x.now)
			x.now = x.now.Add(time.Second)
			x.b.m.Poll(x.now)
			if !x.b.m.Idle() || cb.rcvNxt-before > 24 || x.b.m.refusedReady() {
				t.Fatalf("idle %v, %d bytes taken", x.b.m.Idle(), cb.rcvNxt-before)
			}
			acks = 0
			p.Budget = budget
			if own {
				cb.Discard(x.now, cb.Readable())
			} else if x.b.m.Idle() {
				t.Error("there is memory for data that was refused, and the Mux is idle")
			}
			for range 3 {
				x.b.m.Poll(x.now)
			}
			if acks != 1 || !x.b.m.Idle() || cb.has(flagRefused) {
				t.Errorf("%d ACKs, idle %v, refused %v", acks, x.b.m.Idle(), cb.has(flagRefused))
			}
		})
	}
}

// TestInitialWindowsAreShares opens connections that nobody uses. New ones get less and less, down to the floor; all promises together
// stay below the half of the budget and the floors, and there is something left for one that grows.
func TestInitialWindowsAreShares(t *testing.T) {
	s := newAttackTest(t, 2000)
	var windows []uint32
	for i := range 1000 {
		tuple, _, _ := s.open(i, 1000, nil)
		s.act()
		c := s.accepted[len(s.accepted)-1]
		if c.tuple != tuple {
			t.Fatal("another connection")
		}
		windows = append(windows, c.rcvLimit)
		if w, want := c.rcvAdv-c.rcvNxt, min(c.rcvLimit, 0xffff); i > 600 && w > smallSYNWindow || i < 100 && w>>7 != want>>7 {
			t.Fatalf("connection %d: a window of %d with a buffer of %d", i, w, c.rcvLimit)
		}
	}
	b := &s.server.buffers
	if windows[0] != initialReceiveBuffer || windows[999] > 2*maxReceiveFloor || !slices.IsSortedFunc(windows, func(a, b uint32) int { return int(b) - int(a) }) {
		t.Errorf("buffers from %d to %d", windows[0], windows[999])
	}
	if got := promised(s.server); got != b.Promised || got > b.Budget/promisePart {
		t.Errorf("%d bytes are promised, counted are %d", got, b.Promised)
	}
	if left := s.server.unpromised(); left < 1<<20 {
		t.Errorf("%d bytes are left", left)
	}
	// One that the peer has reset promises nothing, before the application gives it back, and neither do idle ones.
	c := s.accepted[0]
	s.attack(c.tuple, wire.TCPHeader{Seq: c.rcvNxt, Flags: wire.FlagRST}, nil)
	if got := promised(s.server); c.state != StateClosed || got != b.Promised {
		t.Errorf("%v: %d bytes are promised, counted are %d", c.state, got, b.Promised)
	}
	s.onReply = func(reply) {}
	s.run(3*time.Second, time.Second, nil)
	if b.Promised != 0 {
		t.Errorf("idle connections promise %d bytes", b.Promised)
	}
}

// TestSilentPeersAndOrphans fills the budget with data for peers that acknowledge nothing, and for one whose connection the
// application has closed. The orphan goes at the first check; the others may be in the backoff of their timers, and go when
// that has lasted too long.
func TestSilentPeersAndOrphans(t *testing.T) {
	s := newAttackTest(t, 64, func(c *Config, o *Options) { c.Budget = 1 << 20 })
	s.onReply = nil
	for i := range 200 {
		s.open(i, 65535, nil)
		s.act()
	}
	s.onReply = func(reply) {}
	s.serve()
	s.server.Poll(s.now)
	if !s.server.buffers.Critical() {
		t.Fatalf("%d bytes used", s.server.buffers.Used())
	}
	orphan := s.accepted[7]
	s.accepted = slices.Delete(s.accepted, 7, 8)
	orphan.Close(s.now)
	s.run(stalledSilence-2*time.Second, time.Second, s.serve)
	if st := s.server.Stats(); st.StalledPeers != 1 || orphan.state != StateClosed {
		t.Errorf("%d connections were reset, the orphan is %v", st.StalledPeers, orphan.state)
	}
	s.run(4*time.Second, time.Second, s.serve)
	if st := s.server.Stats(); st.StalledPeers < 2 || st.StalledPeers > 190 {
		t.Errorf("%d connections were reset", st.StalledPeers)
	}
}

// TestPromisesAreOfTheWindow compares the promise after each change of the window and of what
// ends it with the one that is computed anew.
func TestPromisesAreOfTheWindow(t *testing.T) {
	p := newDirectPair(t, Options{})
	c, r := p.b, rand.New(rand.NewPCG(1, 1))
	old := c.flags
	for i := range 20_000 {
		if r.IntN(2) == 0 {
			c.rcvAdv = c.rcvNxt + r.Uint32()>>(8+r.IntN(20))
		} else {
			c.rcvAdv = c.rcvNxt + c.promised>>r.IntN(3) + r.Uint32N(3) - 1
		}
		c.state = StateEstablished
		if c.flags = old; r.IntN(4) == 0 {
			c.flags |= []flags{flagPeerFIN, flagReadShutdown, flagOrphaned}[r.IntN(3)]
		} else if r.IntN(8) == 0 {
			c.state = []State{StateClosed, StateCloseWait}[r.IntN(2)]
		}
		c.promise()
		got, sum := c.promised, c.m.buffers.Promised
		c.changePromise()
		if got != c.promised || sum != int64(got) {
			t.Fatalf("%d: a window of %d in state %v with flags %x promises %d, counted are %d, want %d", i, c.rcvAdv-c.rcvNxt, c.state, c.flags, got, sum, c.promised)
		}
	}
}

// TestRoomForLittleIsRoom compares what writesLittle says in all kinds of shortage with
// Writable.
func TestRoomForLittleIsRoom(t *testing.T) {
	p := newDirectPair(t, Options{})
	filled := p.a
	p.connect(t)
	filled.Write(p.now, make([]byte, 100_000)) // memory is in use
	used := int(p.ma.buffers.Used())
	c, o, said := p.a, *p.a.opt, 0
	c.opt = &o
	if used < 100_000 || c.snd != nil {
		t.Fatalf("%d bytes in use", used)
	}
	check := func(what string) {
		t.Helper()
		for _, n := range []int{1, minBuffer - 1, minBuffer, minBuffer + 1, 1 << 20} {
			if !c.writesLittle(n) {
				continue
			}
			if said++; c.Writable() < n {
				t.Errorf("%s: %d bytes have no room but in %d", what, n, c.Writable())
			}
		}
	}
	edge := c.sndEdge
	c.sndEdge = c.una // so that a queue is short where memory is
	for budget := used / 2; budget < 8*used; budget += 509 {
		p.ma.buffers.Budget = int64(budget)
		check(fmt.Sprint("budget ", budget))
	}
	c.sndEdge = edge
	if said == 0 {
		t.Error("there never was room")
	}
	for _, s := range []State{StateClosed, StateSynSent, StateFinWait1, StateCloseWait, StateEstablished} {
		c.state = s
		check(s.String())
	}
	for _, f := range []flags{flagFIN, flagOrphaned, flagStarved} {
		c.flags |= f
		check(fmt.Sprintf("flag %x", f))
		c.flags &^= f
	}
	o.SendBuffer = 100
	check("a small send buffer")
	o.SendBuffer, o.NotSentLowat = 0, 1
	check("a low watermark")
	o.NotSentLowat = 0
	p.ma.writers.head = filled.id
	c.sndEdge = c.una // whoever waits has a claim to the memory
	check("a writer waits")
	p.ma.writers.head = noConn
	c.Write(p.now, make([]byte, 250_000))
	check("with a queue")
}

// TestStalledPeersAreForgotten: what was seen in one shortage says nothing about the next.
func TestStalledPeersAreForgotten(t *testing.T) {
	p := newDirectPair(t, Options{})
	h := &p.ma.passive.stalled
	h.seen = map[uint32]uint32{p.a.id: p.a.una}
	if p.turn(); h.seen != nil {
		t.Error("remembered with memory free")
	}
}

// TestOutgoingsAreWithinTheOffload sends a window that is larger than what the Output cuts.
func TestOutgoingsAreWithinTheOffload(t *testing.T) {
	p := newDirectPair(t, Options{})
	buf := make([]byte, 1<<20)
	for range 10 {
		p.bulk(t, buf)
	}
	p.a.Write(p.now, buf)
	p.ma.Poll(p.now)
	sent, most := 0, 0
	for _, x := range p.da.queue[p.da.head:] {
		sent += int(x.seg.Len)
		most = max(most, int(x.seg.Len))
	}
	if limit := p.da.Offload(); most > limit || most < limit/2 || sent < 2*limit {
		t.Errorf("%d bytes in Outgoings of %d at most", sent, most)
	}
}
