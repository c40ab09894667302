package datapath

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
)

func TestAConnectionTakesOneCacheLine(t *testing.T) {
	if n := unsafe.Sizeof(Conn{}); n != 64 {
		t.Errorf("conn has %d bytes", n)
	}
}

func TestAMillionConnectionsFitIn128MB(t *testing.T) {
	for _, size := range []int{1_000_000, 1 << 20, 1_500_000, 1_600_000, 1024} {
		tb := newTable(size, size, new(random.Source))
		bytes := len(tb.conns)*int(unsafe.Sizeof(Conn{})) + len(tb.index)*8
		if each := float64(bytes) / float64(size); each > 128 {
			t.Errorf("size %d: %.1f bytes for each connection", size, each)
		}
		if load := float64(2*size) / float64(len(tb.index)); load > 0.751 {
			t.Errorf("size %d: the index is %.2f full", size, load)
		}
	}
}

// TestTheTableAgreesWithAMap does random operations on a table and on Go maps. Few distinct keys in
// a small, full table make long runs, wraps and collisions of stored hashes.
func TestTheTableAgreesWithAMap(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		tb := newTable(12, 12, new(random.Source)) // 32 slots
		if seed%2 == 1 {
			tb.key = hashKey{} // all hashes are equal: one long run
		}
		m := model{byClient: map[clientKey]Conn{}, byBackend: map[backendKey]Conn{}}
		for range 4000 {
			m.step(t, tb, r)
		}
	}
}

type model struct {
	byClient  map[clientKey]Conn
	byBackend map[backendKey]Conn
}

func randomConn(r *rand.Rand) Conn {
	c := Conn{
		client: addr{uint64(r.IntN(2)), uint64(r.IntN(4))}, vip: r.Uint32N(2), clientPort: uint16(r.IntN(2)),
		endpoint: r.Uint32N(3), sourcePort: uint16(r.IntN(3)), snat: uint16(r.IntN(3)),
		state: stateUDP, deadline: ticks(r.IntN(100)), backend: r.Uint32(),
	}
	return c
}

func (m *model) step(t *testing.T, tb *table, r *rand.Rand) {
	t.Helper()
	c := randomConn(r)
	ck, bk := c.clientKey(), c.backendKey()
	was, known := m.byClient[ck]
	n := tb.byClient(&ck)
	if known != (n >= 0) || known && tb.conns[n] != was {
		t.Fatalf("client's side: table %d, map %v", n, known)
	}
	was, taken := m.byBackend[bk]
	k := tb.byBackend(&bk)
	if taken != (k >= 0) || taken && tb.conns[k] != was {
		t.Fatalf("backend's side: table %d, map %v", k, taken)
	}
	switch {
	case known:
		old := tb.conns[n]
		tb.remove(n, tb.hashesOf(&tb.conns[n]))
		delete(m.byClient, ck)
		delete(m.byBackend, old.backendKey())
	case !taken && !tb.full():
		tb.add(&c, tb.hashesOf(&c))
		m.byClient[ck], m.byBackend[bk] = c, c
	}
	if tb.live != len(m.byClient) || tb.full() != (len(m.byClient) == 12) {
		t.Fatalf("%d connections, want %d", tb.live, len(m.byClient))
	}
}

func TestTheHandFindsWhatExpired(t *testing.T) {
	tb := newTable(100, 100, new(random.Source))
	for i := range 100 {
		c := Conn{client: addr{0, uint64(i)}, snat: 1, sourcePort: uint16(i), state: stateUDP, deadline: ticks(i)}
		tb.add(&c, tb.hashesOf(&c))
	}
	var gone []int
	drop := func(n int) { gone = append(gone, int(tb.conns[n].deadline)); tb.remove(n, tb.hashesOf(&tb.conns[n])) }
	tb.sweep(30, func(c *Conn) bool { return c.expired(49) }, drop)
	if len(gone) != 30 {
		t.Fatalf("30 steps found %d", len(gone))
	}
	tb.sweep(100, func(c *Conn) bool { return c.expired(49) }, drop)
	if len(gone) != 50 || tb.live != 50 {
		t.Fatalf("found %v, %d are left", gone, tb.live)
	}
	tb.sweep(1000, func(c *Conn) bool { return c.expired(49) }, drop)
	if len(gone) != 50 {
		t.Error("found some twice")
	}
}

func TestTicksLastThroughTheWrap(t *testing.T) {
	for _, now := range []clock.Time{0, 1 << 55, 1<<56 - 1e9, 1 << 56} {
		d := ticksAt(now) + ticksIn(30*time.Second)
		if d.expired(ticksAt(now.Add(29 * time.Second))) {
			t.Errorf("from %d: expired after 29 s of 30", now)
		}
		if !d.expired(ticksAt(now.Add(30100 * time.Millisecond))) {
			t.Errorf("from %d: not expired after 30.1 s of 30", now)
		}
	}
}

func BenchmarkTable(b *testing.B) {
	for _, size := range []int{1000, 1_000_000} {
		tb := newTable(size, size, new(random.Source))
		for i := range size {
			c := Conn{client: addr{0, uint64(i)}, snat: 1, sourcePort: uint16(i), endpoint: uint32(i >> 16), state: stateUDP}
			tb.add(&c, tb.hashesOf(&c))
		}
		b.Run(map[int]string{1000: "1k", 1_000_000: "1M"}[size], func(b *testing.B) {
			i := uint64(0)
			for b.Loop() {
				i = (i + 7919) % uint64(size)
				if tb.byClient(&clientKey{client: addr{0, i}}) < 0 {
					b.Fatal(i)
				}
			}
		})
	}
}

// What is free is found by no packet and no record: neither its place in the index nor in the directory.
func TestWhatIsFreeIsNotFound(t *testing.T) {
	at := netip.MustParseAddr("198.18.1.1")
	s := &Snapshot{
		VIPs:      []VIP{{addr: addrOf(at), Port: 80, Proto: 6}, {addr: addrOf(at), Port: 81, Proto: 6}},
		Services:  []*Service{NewService("web", 1)},
		Endpoints: []*Endpoint{{addr: addrOf(at), Port: 80, Proto: 6}},
		Backends:  []*Backend{NewBackend("a", 0, 0, 1), NewBackend("b", 0, 0, 1)},
	}
	s.SetSNAT(1, at, 1)
	var gone Numbers
	gone.VIPs.Add(1)
	gone.Backends.Add(1)
	gone.SNATs.Add(1)
	s.Free(&gone, nil, 1)
	s.Index(nil)
	s.SetOwn(nil, nil)
	if _, ok := s.keys.find(addrOf(at), tagOf(kindVIP, 80, 6)); !ok {
		t.Error("the service address that is left is not found")
	}
	for name, tag := range map[string]uint32{"a service address": tagOf(kindVIP, 0, 0), "an SNAT address": tagOf(kindSNAT, 0, 0)} {
		if n, ok := s.keys.find(addr{}, tag); ok {
			t.Errorf("%s that is free is found as number %d", name, n)
		}
	}
	d := NewDirectory(s, 1, PortRange{First: 1024, Last: 65535})
	if list := d.backends[[2]uint32{0, 0}]; !slices.Equal(list, []uint32{0}) {
		t.Errorf("backends of the service and endpoint: %v", list)
	}
}
