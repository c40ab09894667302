package gateway

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// TestHalfOpenQueuesAgreeWithSlices does random operations on the queues and on slices.
func TestHalfOpenQueuesAgreeWithSlices(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		h := halves{slots: make([]halfOpen, 11), high: 1}
		type entry struct{ conn, slot, pair uint32 } // pair 3 is none
		var all []entry
		var pairs [3]queue
		of := func(e entry) *queue {
			if e.pair == 3 {
				return nil
			}
			return &pairs[e.pair]
		}
		for next := range uint32(4000) {
			if h.full() != (len(all) == 10) {
				t.Fatalf("full is %v with %d", h.full(), len(all))
			}
			if !h.full() && r.IntN(2) == 0 {
				e := entry{conn: next, pair: r.Uint32N(4)}
				e.slot = h.push(e.conn, of(e))
				all = append(all, e)
			} else if len(all) > 0 {
				i := r.IntN(len(all))
				h.remove(all[i].slot, of(all[i]))
				all = slices.Delete(all, i, i+1)
			}
			var want [4][]uint32
			for _, e := range all {
				want[3] = append(want[3], e.conn)
				if e.pair < 3 {
					want[e.pair] = append(want[e.pair], e.conn)
				}
			}
			for i := range pairs {
				sameQueue(t, &h, &pairs[i], byPair, want[i])
			}
			sameQueue(t, &h, &h.all, byAge, want[3])
		}
	}
}

// sameQueue compares a queue, read from both ends, with the connections in it by age.
func sameQueue(t *testing.T, h *halves, q *queue, by int, want []uint32) {
	t.Helper()
	var up, down []uint32
	for s := q.oldest; s != 0; s = h.slots[s].links[by].newer {
		up = append(up, h.slots[s].conn)
	}
	for s := q.newest; s != 0; s = h.slots[s].links[by].older {
		down = append(down, h.slots[s].conn)
	}
	slices.Reverse(down)
	if !slices.Equal(up, want) || !slices.Equal(down, want) {
		t.Fatalf("queue %v, backwards %v, want %v", up, down, want)
	}
}

// audit fails unless the table, the half-open queues and the ports agree with each other.
func (w *world) audit() {
	w.t.Helper()
	h := w.h
	live, half, slots, held := 0, 0, 0, map[portPair]int{}
	for n := range h.table.conns {
		c := &h.table.conns[n]
		if c.state == stateFree {
			continue
		}
		live++
		slots++
		ck, bk := c.clientKey(), c.backendKey()
		if h.table.byClient(&ck) != n {
			w.t.Fatalf("connection %d is not found by its client", n)
		}
		if !c.direct() {
			slots++
			if h.table.byBackend(&bk) != n {
				w.t.Fatalf("connection %d is not found by its backend", n)
			}
		}
		if c.snat != 0 {
			held[portPair{c.endpoint, c.snat}]++
			if h.ports.list[c.pair] != h.ports.pairs[portPair{c.endpoint, c.snat}] {
				w.t.Fatalf("connection %d has another pair's port", n)
			}
		}
		if c.half != 0 {
			half++
			if int(h.table.halves.slots[c.half].conn) != n {
				w.t.Fatalf("connection %d has another's half-open slot", n)
			}
		}
	}
	used := 0
	for _, s := range h.table.index {
		if s != 0 {
			used++
		}
	}
	if live != h.table.live || half != h.table.halves.n || used != slots {
		w.t.Fatalf("%d connections of %d, %d half-open of %d, %d slots of %d", live, h.table.live, half, h.table.halves.n, used, slots)
	}
	if most := len(h.table.halves.slots) - 1; half > most || live > len(h.table.conns) || live-half > h.table.confirmed {
		w.t.Fatalf("%d connections, %d half-open", live, half)
	}
	aged, paired := 0, 0
	for s := h.table.halves.all.oldest; s != 0; s = h.table.halves.slots[s].links[byAge].newer {
		aged++
	}
	for pair, m := range h.ports.pairs {
		if m.free != h.ports.span.Size()-held[pair] {
			w.t.Fatalf("pair %v: %d ports are free, %d held", pair, m.free, held[pair])
		}
		for s := m.half.oldest; s != 0; s = h.table.halves.slots[s].links[byPair].newer {
			if c := &h.table.conns[h.table.halves.slots[s].conn]; c.snat != pair.snat || c.endpoint != pair.endpoint {
				w.t.Fatalf("a half-open connection stands in the queue of another pair")
			}
			paired++
		}
	}
	if aged != half || paired > half {
		w.t.Fatalf("%d half-open connections, %d by age, %d by pair", half, aged, paired)
	}
}

// mixed has all kinds of connections, in a table whose half-open budget is %d.
const mixed = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, 198.18.2.2]
snat_ports: 5000-5099
table: {size: 1024, half_open: %d}
services:
  - {name: nat, address: 198.18.1.1:80, backends: [{address: 198.18.2.11:80}, {address: 198.18.2.12:80}]}
  - {name: dns, protocol: udp, address: 198.18.1.1:53, backends: [{address: 198.18.2.11:53}]}
  - {name: own, source: client, address: 198.18.1.2:80, backends: [{address: 198.18.2.13:80}]}
  - {name: direct, mode: l2, address: 198.18.1.3:80, backends: [{address: 198.18.2.11}]}
  - {name: quick, mode: l2, protocol: udp, address: 198.18.1.3:53, backends: [{address: 198.18.2.11}]}
`

// TestTheTableStaysWholeUnderRandomTraffic sends random packets of few clients, answers, and lets
// time pass, with budgets of all sizes, and audits the table again and again.
func TestTheTableStaysWholeUnderRandomTraffic(t *testing.T) {
	services := []string{web, dns, "198.18.1.2:80", "198.18.1.3:80", "198.18.1.3:53"}
	for _, half := range []int{256, 512, 1000, 1024} {
		t.Run(fmt.Sprint(half), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(half), 3))
			w := newWorld(t, fmt.Sprintf(mixed, half))
			flags := []string{"S", "S", "S", "S", "A", "PA", "FA", "R"}
			for i := range 40000 {
				to := services[r.IntN(len(services))]
				f := flags[r.IntN(len(flags))]
				if to[len(to)-1] == '3' {
					f = ""
				}
				src := fmt.Sprintf("198.18.%d.%d:40000", 32+r.IntN(8), 1+r.IntN(250))
				s := w.send(0, client(src, to, f).bytes())
				if s.verdict == packet.Forward && r.IntN(2) == 0 && to[:10] != "198.18.1.3" {
					back := map[string]string{"S": "SA", "": ""}[f]
					if f != "" && f != "S" {
						back = "A"
					}
					w.expect(1, answer(s.p, back).bytes(), 0)
				}
				if r.IntN(50) == 0 {
					w.now = w.now.Add(time.Duration(r.IntN(2000)) * time.Millisecond)
				}
				if r.IntN(500) == 0 {
					w.after(time.Duration(r.IntN(5)) * time.Second)
				}
				if i%500 == 0 {
					w.audit()
				}
			}
			w.after(3 * time.Hour)
			w.audit()
			if w.h.table.live != 0 {
				t.Errorf("%d connections are left", w.h.table.live)
			}
		})
	}
}

// A flood of forged SYNs and datagrams turns over half-open connections, and every one that was
// confirmed before goes on with its backend and port.
func TestAFloodLeavesConfirmedConnections(t *testing.T) {
	const flows, forged = 10_000, 1_000_000
	w := newWorld(t, bigTable(20_000))
	f := newFlood(w, 64)
	var sources []uint16
	for i := range flows / 64 * 64 {
		if i%64 == 0 {
			f.handle(i, 1)
			f.forwarded(t)
			w.confirmAll()
		}
		ck := clientKey{client: addr4([]byte{0xc6, byte(i >> 28), byte(i >> 20), byte(i >> 12)}), port: uint16(i&0xfff) + 1}
		sources = append(sources, w.h.table.conns[w.h.table.byClient(&ck)].sourcePort)
	}
	for i := 0; i < forged; i += 64 {
		f.handle(1<<20+i, 1)
		w.now = w.now.Add(426 * time.Microsecond) // 150 000 a second
	}
	f.forwarded(t)
	for i := 0; i < flows/64*64; i += 64 {
		f.handle(i, 1)
		f.forwarded(t)
		for j := range 64 {
			ck := clientKey{client: addr4([]byte{0xc6, byte((i + j) >> 28), byte((i + j) >> 20), byte((i + j) >> 12)}), port: uint16((i+j)&0xfff) + 1}
			if n := w.h.table.byClient(&ck); w.h.table.conns[n].half != 0 || w.h.table.conns[n].sourcePort != sources[i+j] {
				t.Fatalf("connection %d is another", i+j)
			}
		}
	}
	st := w.g.Status()
	if e := st.Services[0].Evicted; e.Confirmed != 0 || e.HalfOpen != forged-5000 || st.HalfOpen != 5000 {
		t.Errorf("evicted %+v, %d half-open of %d", e, st.HalfOpen, st.HalfOpenMax)
	}
	w.audit()
}

// confirmAll confirms every half-open connection, as answers would.
func (w *world) confirmAll() {
	for q := &w.h.table.halves.all; q.oldest != 0; {
		w.h.confirm(int(w.h.table.halves.slots[q.oldest].conn))
	}
}

// What confirms a connection, and what does not.
func TestTheOtherSideConfirmsAConnection(t *testing.T) {
	const tick = 20 * time.Millisecond
	for _, c := range []struct {
		name, to string
		steps    string // c: client, b: backend, ".": time; flags follow
		half     bool
	}{
		{"a SYN", web, "cS", true},
		{"a SYN sent again later", web, "cS . cS", true},
		{"a SYN and its answer", web, "cS bSA", true},
		{"a whole handshake", web, "cS bSA cA", false},
		{"an ACK without answer", web, "cS . cA . cA", true},
		{"a refusal", web, "cS bRA cA", true},
		{"a FIN without answer", web, "cS cFA", true},
		{"a datagram", dns, "c", true},
		{"datagrams without answer", dns, "c . c . c", true},
		{"a datagram and its answer", dns, "c b", false},
		{"the client's own address, a handshake", "198.18.1.2:80", "cS bSA cA", false},
		{"in the middle, no answer", "198.18.1.2:80", "cA . cA", true},
		{"in the middle, and the backend goes on", "198.18.1.2:80", "cA bA", false},
		{"in the middle, and the backend resets", "198.18.1.2:80", "cA bR", true},
		{"direct, a SYN", "198.18.1.3:80", "cS . cS", true},
		{"direct, the client goes on", "198.18.1.3:80", "cS cA", false},
		{"direct, the client resets", "198.18.1.3:80", "cS . cR", true},
		{"direct, in the middle", "198.18.1.3:80", "cA", true},
		{"direct, in the middle, at once again", "198.18.1.3:80", "cA cA", true},
		{"direct, in the middle, later again", "198.18.1.3:80", "cA . cA", false},
		{"direct, a datagram", "198.18.1.3:53", "c", true},
		{"direct, datagrams at once", "198.18.1.3:53", "c c c", true},
		{"direct, a datagram later", "198.18.1.3:53", "c . c", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, fmt.Sprintf(mixed, 256))
			w.play(c.to, c.steps, tick)
			if half := w.g.Status().HalfOpen == 1; half != c.half || w.g.Status().Connections != 1 {
				t.Errorf("half-open is %v", half)
			}
			w.audit()
		})
	}
}

// play sends packets of one client to a service, and answers.
func (w *world) play(to, steps string, pause time.Duration) {
	w.t.Helper()
	var last []byte
	for s := range strings.FieldsSeq(steps) {
		switch s[0] {
		case 'c':
			last = w.expect(0, client(host, to, s[1:]).bytes(), 1)
		case 'b':
			w.expect(1, answer(last, s[1:]).bytes(), 0)
		case '.':
			w.now = w.now.Add(pause)
		}
	}
}

// What is counted of a backend tells whether it answers.
func TestABackendsAnswersAreCounted(t *testing.T) {
	for _, c := range []struct {
		name, to, steps string
		want            [3]uint64 // answered, refused, unanswered
	}{
		{"no answer", web, "cS . . .", [3]uint64{0, 0, 1}},
		{"an answer", web, "cS bSA", [3]uint64{1, 0, 0}},
		{"answers are one", web, "cS bSA bSA cA bA bFA", [3]uint64{1, 0, 0}},
		{"a refusal", web, "cS bRA", [3]uint64{0, 1, 0}},
		{"a reset later", web, "cS bSA cA bR", [3]uint64{1, 0, 0}},
		{"no datagram back", dns, "c . .", [3]uint64{0, 0, 1}},
		{"datagrams back", dns, "c b c b", [3]uint64{1, 0, 0}},
		{"direct tells nothing", "198.18.1.3:80", "cS . . .", [3]uint64{0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, fmt.Sprintf(mixed, 256))
			w.play(c.to, c.steps, 2*time.Second)
			w.after(3 * time.Hour)
			var got [3]uint64
			s := w.g.snap.Load()
			for i := range s.backends {
				got[0] += s.backends[i].Count(answered)
				got[1] += s.backends[i].Count(refused)
				got[2] += s.backends[i].Count(unanswered)
			}
			if got != c.want {
				t.Errorf("answered, refused, unanswered %v, want %v", got, c.want)
			}
		})
	}
}

// A connection that made room at once, in a flood, says nothing against its backend.
func TestAnEvictedConnectionHadNoTimeToBeAnswered(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(mixed, 256))
	f := func(i int) {
		w.expect(0, client(fmt.Sprintf("198.18.%d.%d:4000", 64+i/250, 1+i%250), dns, "").bytes(), 1)
	}
	for i := range 300 { // 200 source ports
		f(i)
	}
	s := w.g.snap.Load()
	if n := s.backends[2].Count(unanswered); n != 0 || s.backends[2].Count(closed) != 100 {
		t.Errorf("%d unanswered, %d closed", n, s.backends[2].Count(closed))
	}
	w.now = w.now.Add(2 * time.Second)
	f(300)
	if n := s.backends[2].Count(unanswered); n != 1 {
		t.Errorf("%d unanswered", n)
	}
}

// Confirmed connections that fill their part of the table make room for another: expired ones first,
// then those that were idle for longest of the ones looked at.
func TestIdleConfirmedConnectionsMakeRoom(t *testing.T) {
	w := newWorld(t, bigTable(1024))
	f := newFlood(w, 64)
	fresh := func(i int) bool { return i%2 == 0 }
	for i := 0; i < 768; i += 64 {
		f.handle(i, 1)
		w.confirmAll()
	}
	w.now = w.now.Add(10 * time.Second)
	for i := 0; i < 768; i += 2 {
		f.handle(i, 0) // every second one is in use
	}
	for i := 768; i < 768+128; i += 64 {
		f.handle(i, 1)
		w.confirmAll()
		w.audit()
	}
	if e := w.g.Status().Services[0].Evicted; e.Confirmed != 128 || e.HalfOpen != 0 {
		t.Errorf("evicted %+v", e)
	}
	gone := 0
	for i := range 768 {
		ck := clientKey{client: addr4([]byte{0xc6, 0, 0, 0}), port: uint16(i) + 1}
		if w.h.table.byClient(&ck) < 0 && fresh(i) {
			gone++
		}
	}
	if gone > 8 {
		t.Errorf("%d connections in use made room for idle ones", gone)
	}
}

// The connection that is being confirmed does not make room for itself, also where none is idle.
func TestAConfirmedConnectionDoesNotEvictItself(t *testing.T) {
	w := newWorld(t, bigTable(1024))
	for i := range 4000 {
		c := Conn{client: addr{0, uint64(i)}, state: stateUDP}
		n := w.h.enter(&c)
		w.h.confirm(n)
		if w.h.table.conns[n].client != c.client {
			t.Fatalf("connection %d has gone", i)
		}
	}
	w.audit()
}

// A reload may shorten timeouts. What had no packet since then is idler than what had one.
func TestShorterTimeoutsDoNotConfuseWhatIsIdle(t *testing.T) {
	for _, fresh := range []int{0, 20} {
		t.Run(fmt.Sprint(fresh), func(t *testing.T) { shorterTimeouts(t, fresh) })
	}
}

// shorterTimeouts shortens timeouts while the table is full, has fresh connections go on, and confirms more.
func shorterTimeouts(t *testing.T, fresh int) {
	const to = "198.18.1.3:80"
	w := newWorld(t, fmt.Sprintf(mixed, 256))
	source := func(i int) string { return fmt.Sprintf("198.18.%d.%d:40000", 32+i/200, 1+i%200) }
	confirm := func(i int) {
		w.expect(0, client(source(i), to, "S").bytes(), 1)
		w.expect(0, client(source(i), to, "A").bytes(), 1)
	}
	full := w.h.table.confirmed
	for i := range full {
		confirm(i)
	}
	w.reload(strings.Replace(fmt.Sprintf(mixed, 256), "half_open: 256", "half_open: 256, tcp: {established: 5m}", 1))
	w.now = w.now.Add(time.Minute)
	for i := range fresh {
		w.expect(0, client(source(i), to, "A").bytes(), 1)
	}
	for i := range full / 2 {
		confirm(full + i)
	}
	w.audit()
	front, _ := w.h.snap.keys.find(addr4([]byte{198, 18, 1, 3}), tagOf(kindFront, 80, wire.ProtoTCP))
	for i := range fresh {
		if w.h.table.byClient(&clientKey{addr4([]byte{198, 18, 32, byte(1 + i)}), front, 40000}) < 0 {
			t.Errorf("connection %d, which is in use, made room", i)
		}
	}
}
