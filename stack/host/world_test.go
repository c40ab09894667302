package host

import (
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// world is two hosts in virtual time, each of one or more loops, joined by a wire for each pair of loops.
//
//	host a: loop 0 --- wire 0 --- loop 0 :host b
//	        loop 1 --- wire 1 --- loop 1
type world struct {
	t     testing.TB
	now   clock.Time
	arena *ring.Arena
	a, b  *Group
	loops map[*Group][]*stack.Loop
	hold  []ring.Holder

	readers int // bytes of the buffers that readers wait with; 0 is none
}

// setting says what a world is like.
type setting struct {
	loops     int  // of each host; 0 is 1
	cross     bool // wire i ends at another loop of host b, which has to hand over what comes
	profile   string
	mtu       int // 0 is 1500
	frameSize int
	frames    int // of each loop; 0 is 4096
	wrap      func(pmd.Driver) pmd.Driver
	both      bool // wrap the drivers of host b too
	engine    gpukern.Config
	tcp       tcp.Config
	slots     int
}

var (
	addrA4 = netip.MustParsePrefix("198.18.0.1/24")
	addrB4 = netip.MustParsePrefix("198.18.0.2/24")
	addrA6 = netip.MustParsePrefix("2001:db8::1/64")
	addrB6 = netip.MustParsePrefix("2001:db8::2/64")
)

func newWorld(t testing.TB, s setting) *world {
	t.Helper()
	s.loops, s.frames = max(s.loops, 1), max(s.frames, 4096)
	w := &world{t: t, now: clock.Time(time.Hour)}
	var err error
	w.arena, err = ring.NewArena(ring.ArenaConfig{Frames: 2 * s.loops * s.frames, FrameSize: s.frameSize, Huge: ring.HugeOff})
	w.must(err)
	t.Cleanup(func() { w.arena.Close() })
	ends := [2][]stack.Config{make([]stack.Config, s.loops), make([]stack.Config, s.loops)}
	for i := range s.loops {
		pa, _ := w.arena.Cut(s.frames)
		pb, _ := w.arena.Cut(s.frames)
		da, db, err := pmd.NewMemory(pmd.MemoryConfig{A: pa, B: pb, MTU: s.mtu, Slots: s.slots})
		w.must(err)
		w.hold = append(w.hold, pa, pb, da, db)
		ends[0][i] = w.loop(w.worsen(da, pa, &s, i), pa, &s)
		if s.cross {
			i = (i + 1) % s.loops
		}
		if s.both {
			ends[1][i] = w.loop(s.wrap(db), pb, &s)
		} else {
			ends[1][i] = w.loop(db, pb, &s)
		}
	}
	w.a = w.host(ends[0], &s, 1)
	w.b = w.host(ends[1], &s, 2)
	w.must(w.a.AddAddr(0, addrA4, ip.Static, true))
	w.must(w.a.AddAddr(0, addrA6, ip.Static, true))
	w.must(w.b.AddAddr(0, addrB4, ip.Static, true))
	w.must(w.b.AddAddr(0, addrB6, ip.Static, true))
	w.poll()
	return w
}

// worsen puts a bad link before a driver.
func (w *world) worsen(d pmd.Driver, pool *ring.Pool, s *setting, i int) pmd.Driver {
	if s.profile != "" {
		p, err := pmd.ParseProfile(s.profile)
		w.must(err)
		p.Seed += uint64(i)
		bad, err := pmd.NewImpair(d, pmd.ImpairConfig{Profile: p, Pool: pool})
		w.must(err)
		w.hold = append(w.hold, bad)
		d = bad
	}
	if s.wrap != nil {
		d = s.wrap(d)
	}
	return d
}

func (w *world) loop(d pmd.Driver, pool *ring.Pool, s *setting) stack.Config {
	return stack.Config{
		Devices: []pmd.Driver{d}, Pool: pool, Engine: gpukern.NewCPU(s.engine),
		Now: func() clock.Time { return w.now },
	}
}

func (w *world) host(configs []stack.Config, s *setting, seed byte) *Group {
	loops, err := stack.NewLoops(configs...)
	w.must(err)
	w.t.Cleanup(func() { w.must(stack.CloseAll(loops...)) })
	g, err := New(Config{Loops: loops, Secret: [32]byte{seed}, Seed: uint64(seed), TCP: s.tcp})
	w.must(err)
	if w.loops == nil {
		w.loops = map[*Group][]*stack.Loop{}
	}
	w.loops[g] = loops
	for i, h := range g.Hosts {
		w.hold = append(w.hold, h, loops[i])
	}
	if m := loops[0].Mesh(); m != nil {
		w.hold = append(w.hold, m)
	}
	return g
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// poll runs one iteration of every loop, and returns what moved.
func (w *world) poll() (moved int) {
	for _, g := range []*Group{w.a, w.b} {
		for _, l := range w.loops[g] {
			moved += l.Poll(w.now)
		}
	}
	return moved
}

// run lets time pass until done is true, for limit at most.
func (w *world) run(limit time.Duration, done func() bool) bool {
	w.t.Helper()
	for end := w.now.Add(limit); w.now < end; {
		if done() {
			return true
		}
		if w.poll() == 0 {
			w.now += clock.Time(100 * time.Microsecond)
		} else {
			w.now += clock.Time(5 * time.Microsecond)
		}
	}
	return done()
}

// settle lets time pass and then holds all books against each other: packets and frames.
func (w *world) settle() (a, b stack.Stats) {
	w.t.Helper()
	w.run(2*time.Second, func() bool { return false })
	for _, g := range []*Group{w.a, w.b} {
		var s stack.Stats
		for i, l := range w.loops[g] {
			x := l.Stats()
			if l.Mesh() == nil && x.InFlight() != 0 {
				w.t.Errorf("host %d: %d in flight at rest: %+v", i, x.InFlight(), x)
			}
			s.Add(x)
		}
		if s.InFlight() != 0 || s.TakenOver != s.HandedOver {
			w.t.Errorf("%d in flight at rest: %+v", s.InFlight(), s)
		}
		a, b = b, s
	}
	w.must(ring.Audit(w.arena, w.hold...))
	return a, b
}

// sock is an end of a connection: what it has to send, and what has come.
type sock struct {
	w    *world
	h    *Host
	c    *tcp.Conn
	send []byte
	got  []byte
	shut bool // FIN after send
	fin  bool // the peer's
	echo bool
	evs  tcp.Events

	buf    []byte // of a reader that always waits; nil for none
	filled int
}

// ReadBuffer and Filled implement tcp.DirectReader.
func (s *sock) ReadBuffer() []byte { return s.buf[s.filled:] }
func (s *sock) Filled(n int)       { s.filled += n }

// Ready implements tcp.Owner.
func (s *sock) Ready(ev tcp.Events) {
	s.evs |= ev
	now := s.w.now
	if b := s.buf[:s.filled]; len(b) > 0 {
		s.got = append(s.got, b...)
		if s.echo {
			s.send = append(s.send, b...)
		}
		clear(b) // a stale byte must not pass for one that is received again
		s.filled = 0
	}
	for {
		var b [4096]byte
		n := s.c.Read(now, b[:])
		if n == 0 {
			break
		}
		s.got = append(s.got, b[:n]...)
		if s.echo {
			s.send = append(s.send, b[:n]...)
		}
	}
	if s.c.Finished() && !s.fin {
		s.fin = true
		s.shut = s.shut || s.echo
	}
	s.push(now)
}

// push writes what there is room for.
func (s *sock) push(now clock.Time) {
	n := s.c.Write(now, s.send)
	s.send = s.send[n:]
	if len(s.send) == 0 && s.shut {
		s.shut = false
		s.c.CloseWrite(now)
	}
}

// acceptor takes connections of all loops of a host.
type acceptor struct {
	w    *world
	h    *Host
	l    *tcp.Listener
	echo bool
	all  *[]*sock
}

// Ready implements tcp.Owner.
func (a *acceptor) Ready(tcp.Events) {
	for c := a.l.Accept(); c != nil; c = a.l.Accept() {
		s := &sock{w: a.w, h: a.h, c: c, echo: a.echo, buf: make([]byte, a.w.readers)}
		*a.all = append(*a.all, s)
		c.SetOwner(s)
	}
}

// listen has host g accept connections on port.
func (w *world) listen(g *Group, port uint16, echo bool) *[]*sock {
	all := new([]*sock)
	w.must(g.Each(func(now clock.Time, h *Host) error {
		a := &acceptor{w: w, h: h, echo: echo, all: all}
		var err error
		a.l, err = h.TCP.Listen(wire.Addr{}, port, 128, nil, a)
		return err
	}))
	return all
}

// dial connects loop i of host g.
func (w *world) dial(g *Group, i int, from, to netip.Prefix, port uint16) *sock {
	w.t.Helper()
	s := &sock{w: w, h: g.Hosts[i], buf: make([]byte, w.readers)}
	w.must(g.Hosts[i].locked(func(now clock.Time, h *Host) error {
		var err error
		t := wire.Tuple{Local: wire.AddrFrom(from.Addr()), Remote: wire.AddrFrom(to.Addr()), RemotePort: port}
		s.c, err = h.TCP.Connect(now, t, nil, s)
		return err
	}))
	return s
}
