package virtio

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio/vhostuser"
	"github.com/millrace/millrace/pmd/virtio/vring"
	"github.com/millrace/millrace/ring"
)

// Addresses of a test's guest.
const (
	testGuest = 0x8000_0000
	testUser  = 0x5500_0000_0000
	testSize  = 64 // of its rings
	testMem   = 1 << 18
	testBufs  = 1 << 16 // offset of memory for buffers, behind the rings
)

// guest is a queue and the memory of its guest, without a socket between them.
type guest struct {
	t       testing.TB
	fd      int
	mem     []byte // the guest's own mapping of its file, which is longer than the region by a page
	drivers [2]*vring.Driver
	offs    [2]int // of the rings in the memory
	b       *Backend
	q       *BackendQueue
	s       *session
	arena   *ring.Arena
	pool    *ring.Pool
	batch   *packet.Batch
}

// newGuest connects a guest with a queue of its own arena.
func newGuest(t testing.TB, features uint64) *guest {
	t.Helper()
	g := &guest{t: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	g.arena, err = ring.NewArena(ring.ArenaConfig{Frames: 256, Huge: ring.HugeOff})
	must(err)
	g.pool, err = g.arena.Cut(0)
	must(err)
	g.batch = packet.NewBatch(g.arena.View(), 64)
	g.b = &Backend{cfg: Config{Path: "/test", Pools: []*ring.Pool{g.pool}}}
	must(g.b.cfg.check())
	g.b.link.cfg = &g.b.cfg
	g.b.link.lost(errors.New("not connected"))
	g.q, err = newBackendQueue(g.b, 0, g.pool)
	must(err)
	g.b.Queues = []*BackendQueue{g.q}
	g.fd, err = unix.MemfdCreate("guest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must(err)
	must(unix.Ftruncate(g.fd, testMem+4096))
	g.mem, err = unix.Mmap(g.fd, 0, testMem+4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(err)
	t.Cleanup(func() {
		must(g.q.Close())
		g.s.end(nil)
		must(unix.Munmap(g.mem))
		must(unix.Close(g.fd))
		if g.pool.Free() != g.pool.Size() {
			t.Errorf("%d of %d frames are free", g.pool.Free(), g.pool.Size())
		}
		must(g.arena.Close())
	})
	g.s = newSession(g.b, nil)
	g.s.features = features | featureVersion1
	m, err := mapRegion(g.fd, vhostuser.MemRegion{Guest: testGuest, User: testUser, Size: testMem})
	must(err)
	must(g.s.remap([]*mapping{m}))
	g.start()
	return g
}

// start makes new rings and gives them to the queue.
func (g *guest) start() {
	g.t.Helper()
	packed := g.s.features&featurePacked != 0
	cfg := vring.Config{Size: testSize, Packed: packed, EventIdx: g.s.features&featureEventIdx != 0}
	desc, avail, used := vring.Layout(testSize, packed)
	for i := range g.drivers {
		g.offs[i] = i * (testBufs / 2)
		mem := g.mem[g.offs[i]:]
		clear(mem[:desc+avail+used])
		g.drivers[i] = vring.NewDriver(cfg, mem[:desc], mem[desc:][:avail], mem[desc+avail:][:used])
		r := g.s.rings[i]
		r.state, r.size, r.placed = ringRunning, testSize, true
		at := uint64(testUser + g.offs[i])
		r.addr = vhostuser.VringAddr{Desc: at, Avail: at + uint64(desc), Used: at + uint64(desc+avail)}
		r.base, r.use = g.drivers[i].Base()
		if err := g.s.changeRing(i, func() {}); err != nil {
			g.t.Fatal(err)
		}
	}
}

// offer makes a chain of pieces of the guest's memory available.
func (g *guest) offer(dir int, pieces ...vring.Item) {
	g.t.Helper()
	if g.drivers[dir].Free() < len(pieces) {
		g.t.Fatal("the ring is full")
	}
	g.drivers[dir].Add(pieces, dir == toDriverRing)
	g.drivers[dir].Publish()
}

// item is a piece at an offset of the guest's memory.
func item(off, n int) vring.Item {
	return vring.Item{Addr: uint64(testGuest + off), Len: uint32(n), Frame: uint32(off)}
}

// rx receives, returns the packets and frees their frames.
func (g *guest) rx() (list [][]byte, err error) {
	_, err = g.q.Rx(1, g.batch)
	for d := g.batch.D; len(d) > 0; {
		k := packet.Chain(d)
		list = append(list, g.arena.Gather(nil, d[:k], 1<<20))
		d = d[k:]
	}
	g.pool.PutBatch(g.batch)
	return list, err
}

// tx sends one packet and reports whether it was taken.
func (g *guest) tx(data []byte) (bool, error) {
	b := packet.NewBatch(g.arena.View(), 64)
	for rest := data; len(rest) > 0; {
		off, _ := g.pool.Get()
		d := packet.Desc{Off: off, Len: uint16(min(len(rest), 2048))}
		copy(g.arena.Bytes(&d), rest)
		if rest = rest[d.Len:]; len(rest) > 0 {
			d.Flags = packet.FlagMore
		}
		b.Append(d)
	}
	n, err := g.q.Tx(1, b)
	b.Consume(n)
	g.pool.PutBatch(b)
	return n > 0, err
}

// returned frees all chains that came back, and returns how many they are.
func (g *guest) returned(dir int) (n int) {
	g.t.Helper()
	for ; ; n++ {
		head, _, ok, err := g.drivers[dir].Used()
		if err != nil {
			g.t.Fatal(err)
		}
		if !ok {
			return n
		}
		g.drivers[dir].Take(head, nil)
	}
}

// forms calls f for a split and a packed ring.
func forms(t *testing.T, f func(t *testing.T, features uint64)) {
	for _, features := range []uint64{0, featureMrgRxbuf | featureEventIdx, featurePacked, featurePacked | featureMrgRxbuf | featureEventIdx} {
		t.Run(fmt.Sprintf("%#x", features), func(t *testing.T) { f(t, features|featureIndirect) })
	}
}

// TestUnusablePacketsAreCounted has a guest send chains that are no packets between good ones: each is counted and returned, and
// the good ones pass.
func TestUnusablePacketsAreCounted(t *testing.T) {
	forms(t, func(t *testing.T, features uint64) {
		g := newGuest(t, features)
		good := []vring.Item{item(testBufs, 12), item(testBufs+100, 60)}
		for what, chain := range map[string][]vring.Item{
			"no bytes":              {item(testBufs, 0)},
			"half a header":         {item(testBufs, 6)},
			"a header alone":        {item(testBufs, 12)},
			"13 bytes":              {item(testBufs, 25)},
			"too long":              {item(testBufs, 12+1515)},
			"too long, in pieces":   {item(testBufs, 12), item(testBufs, 60000), item(testBufs, 60000)},
			"behind the memory":     {item(testBufs, 12), item(testMem-10, 60)},
			"beyond the memory":     {item(testMem, 100)},
			"in front of it":        {item(-4096, 100)},
			"far away":              {item(testBufs, 12), {Addr: 1<<64 - 30, Len: 60}},
			"4 GiB":                 {item(testBufs, 12), {Addr: testGuest + testBufs, Len: 1<<32 - 1}},
			"the page behind":       {{Addr: testGuest + testMem, Len: 100}},
			"a user address":        {{Addr: testUser + testBufs, Len: 100}},
			"a piece without bytes": {item(testBufs, 12), item(0, 0), item(testBufs, 13)},
		} {
			before := g.q.Info().Stats.RxInvalid
			g.offer(fromDriverRing, good...)
			g.offer(fromDriverRing, chain...)
			g.offer(fromDriverRing, good...)
			list, err := g.rx()
			if err != nil || len(list) != 2 || len(list[0]) != 60 || len(list[1]) != 60 {
				t.Fatalf("%s: %d packets, %v", what, len(list), err)
			}
			if n := g.q.Info().Stats.RxInvalid - before; n != 1 {
				t.Errorf("%s: %d are invalid", what, n)
			}
			if n := g.returned(fromDriverRing); n != 3 {
				t.Errorf("%s: %d chains of 3 came back", what, n)
			}
		}
		g.drivers[fromDriverRing].Add(good, true) // buffers to write where packets are due
		g.drivers[fromDriverRing].Publish()
		if list, err := g.rx(); err != nil || len(list) > 0 {
			t.Errorf("buffers to write: %d packets, %v", len(list), err)
		}
		if n := g.returned(fromDriverRing); n != 1 {
			t.Errorf("%d came back", n)
		}
	})
}

// TestUnusableBuffersAreReturned has a guest offer buffers for packets that cannot hold any.
func TestUnusableBuffersAreReturned(t *testing.T) {
	forms(t, func(t *testing.T, features uint64) {
		g := newGuest(t, features)
		data := make([]byte, 100)
		for what, chain := range map[string][]vring.Item{
			"no bytes":          {item(testBufs, 0)},
			"beyond the memory": {item(testMem, 200)},
			"partly":            {item(testBufs, 12), item(testMem-50, 100)},
			"far away":          {{Addr: 1<<64 - 30, Len: 200}},
		} {
			g.offer(toDriverRing, chain...)
			g.offer(toDriverRing, item(testBufs, 200))
			taken, err := g.tx(data)
			if !taken { // the first call finds the bad one
				taken, err = g.tx(data)
			}
			if !taken || err != nil || g.returned(toDriverRing) != 2 {
				t.Errorf("%s: %v, %v", what, taken, err)
			}
		}
		g.offer(toDriverRing, item(testBufs, 50)) // too small
		taken, err := g.tx(data)
		if err != nil {
			t.Fatal(err)
		}
		switch merge := features&featureMrgRxbuf != 0; {
		case merge && taken:
			t.Error("taken, and the driver has 50 bytes")
		case !merge && (!taken || g.q.Info().Stats.TxInvalid != 1):
			t.Errorf("not counted: %+v", g.q.Info().Stats)
		}
		if s := g.q.Info().Stats; s.RxInvalid != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// brokenBy checks that the queue is down because of the guest, and stays so.
func (g *guest) brokenBy(what string) {
	g.t.Helper()
	var err error
	for range 3 { // the call that finds it passes what came before
		_, err = g.rx()
	}
	if !errors.Is(err, pmd.ErrDown) || !errors.Is(err, ErrGuest) {
		g.t.Errorf("%s: Rx: %v", what, err)
	}
	if taken, err := g.tx(make([]byte, 100)); taken || !errors.Is(err, ErrGuest) {
		g.t.Errorf("%s: Tx: %v, %v", what, taken, err)
	}
}

// TestBrokenRingEndsTheConnection writes to the rings what no driver writes.
func TestBrokenRingEndsTheConnection(t *testing.T) {
	put16 := func(g *guest, off int, v uint16) { g.mem[off], g.mem[off+1] = byte(v), byte(v>>8) }
	desc, avail, _ := vring.Layout(testSize, false)
	for what, breakIt := range map[string]func(g *guest){
		"available index far ahead": func(g *guest) { put16(g, g.offs[fromDriverRing]+desc+2, testSize+1) },
		"a head beyond the ring": func(g *guest) {
			put16(g, g.offs[fromDriverRing]+desc+4, testSize)
			put16(g, g.offs[fromDriverRing]+desc+2, 1)
		},
		"the same of the other ring": func(g *guest) {
			put16(g, g.offs[toDriverRing]+desc+4, 65535)
			put16(g, g.offs[toDriverRing]+desc+2, 1)
			if taken, err := g.tx(make([]byte, 100)); taken || err != nil {
				g.t.Errorf("Tx = %v, %v", taken, err)
			}
		},
	} {
		g := newGuest(t, featureMrgRxbuf)
		breakIt(g)
		g.brokenBy(what)
	}
	_ = avail
	g := newGuest(t, featurePacked)
	at := g.offs[fromDriverRing]
	for i := range testSize { // each with a successor, and available
		put16(g, at+16*i+14, 1|1<<7)
	}
	g.brokenBy("a packed chain without an end")
}

// TestLoopInAChain has a split chain lead back to itself, and one that leads out of the table.
func TestLoopInAChain(t *testing.T) {
	g := newGuest(t, featureIndirect)
	at := g.offs[fromDriverRing]
	for _, next := range []uint16{0, 1, testSize, 65535} {
		g.offer(fromDriverRing, item(testBufs, 40), item(testBufs, 40))
		for i := range 2 {
			g.mem[at+16*i+12] |= 1 // NEXT
			g.mem[at+16*i+14], g.mem[at+16*i+15] = byte(next), byte(next>>8)
		}
		before := g.q.Info().Stats.RxInvalid
		list, err := g.rx()
		if err != nil || len(list) != 0 || g.q.Info().Stats.RxInvalid != before+1 || g.returned(fromDriverRing) != 1 {
			t.Errorf("next %d: %d packets, %v, %+v", next, len(list), err, g.q.Info().Stats)
		}
	}
}

// TestGuestTruncatesItsMemory takes the pages away under the mapping, at each access of Rx and Tx: the connection ends, this process and
// another guest's queue live.
func TestGuestTruncatesItsMemory(t *testing.T) {
	forms(t, func(t *testing.T, features uint64) {
		for _, left := range []int64{0, testBufs / 2, testBufs, testBufs + 4096} {
			for _, dir := range []string{"rx", "tx"} {
				g, other := newGuest(t, features), newGuest(t, features)
				g.offer(fromDriverRing, item(testBufs, 12), item(testBufs+4000, 1500))
				g.offer(toDriverRing, item(testBufs+4000, 1600))
				if err := unix.Ftruncate(g.fd, left); err != nil {
					t.Fatal(err)
				}
				if dir == "rx" {
					if list, err := g.rx(); err != nil || len(list) > 0 {
						t.Errorf("%d bytes are left: %d packets, %v", left, len(list), err)
					}
				} else if _, err := g.tx(make([]byte, 1514)); err != nil {
					t.Errorf("%d bytes are left: %v", left, err)
				}
				g.brokenBy(fmt.Sprintf("%s, %d bytes are left", dir, left))
				if free := g.pool.Free(); free != g.pool.Size() {
					t.Errorf("%d of %d frames", free, g.pool.Size())
				}
				other.offer(fromDriverRing, item(testBufs, 12), item(testBufs+4000, 1500))
				if list, err := other.rx(); err != nil || len(list) != 1 {
					t.Errorf("the other guest: %d packets, %v", len(list), err)
				}
			}
		}
	})
}

// TestOtherFaultsStayPanics makes sure that only faults in the guest's memory are its fault.
func TestOtherFaultsStayPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a nil pointer was taken for the guest's memory")
		}
	}()
	defer func() {
		if r := recover(); r != nil {
			_ = faultOf(r, []span{{0x1000, 0x2000}})
		}
	}()
	var p *[4]int
	p[2] = 1 //nolint
}
