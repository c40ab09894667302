package control

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
)

// audit fails unless the table, the half-open queues and the ports agree with each other.
func (w *world) audit() {
	w.t.Helper()
	if err := w.h.Audit(); err != nil {
		w.t.Fatal(err)
	}
}

// conns returns the connections by client.
func (w *world) conns() map[netip.AddrPort]datapath.ConnInfo {
	m := map[netip.AddrPort]datapath.ConnInfo{}
	for at, more := 0, true; more; {
		var list []datapath.ConnCopy
		list, at, more = w.h.Conns(nil, at)
		for i := range list {
			if info, ok := w.g.snap.Load().Describe(&list[i], w.now); ok {
				m[info.Client] = info
			} else {
				w.t.Errorf("a connection of the table has numbers that are free")
			}
		}
	}
	return m
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
				if s.verdict == packet.Forward && s.port == 1 && f != "R" && r.IntN(2) == 0 && to[:10] != "198.18.1.3" {
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
			if n := w.h.Connections(); n != 0 {
				t.Errorf("%d connections are left", n)
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
	for i := 0; i < flows/64*64; i += 64 {
		f.handle(i, 1)
		f.forwarded(t)
		w.confirmAll()
	}
	before := w.conns()
	for i := 0; i < forged; i += 64 {
		f.handle(1<<20+i, 1)
		w.now = w.now.Add(426 * time.Microsecond) // 150 000 a second
	}
	f.forwarded(t)
	for i := 0; i < flows/64*64; i += 64 {
		f.handle(i, 1)
		f.forwarded(t)
	}
	after := w.conns()
	for i := range flows / 64 * 64 {
		from := floodClient(i)
		if was, is := before[from], after[from]; !is.Client.IsValid() || is.HalfOpen || is.Source != was.Source {
			t.Fatalf("connection %d was %+v and is %+v", i, was, is)
		}
	}
	st := w.g.Status()
	if e := st.Services[0].Evicted; e.Confirmed != 0 || e.HalfOpen != forged-5000 || st.HalfOpen != 5000 {
		t.Errorf("evicted %+v, %d half-open of %d", e, st.HalfOpen, st.HalfOpenLimit)
	}
	w.audit()
}

// confirmAll confirms every half-open connection, by an answer of its backend.
func (w *world) confirmAll() {
	w.t.Helper()
	for _, c := range w.conns() {
		if c.HalfOpen {
			w.expect(1, seg{src: c.Target, dst: c.Source, payload: "from the backend", from: macBackend, to: macGw1}.bytes(), 0)
		}
	}
}

// What confirms a connection, and what does not.
func TestTheOtherSideConfirmsAConnection(t *testing.T) {
	const tick = 20 * time.Millisecond
	for _, c := range []struct {
		name, to string
		steps    string // c: client, b: backend, ".": time; flags follow
		want     string // "half-open", "confirmed" or "gone"
	}{
		{"a SYN", web, "cS", "half-open"},
		{"a SYN sent again later", web, "cS . cS", "half-open"},
		{"a SYN and its answer", web, "cS bSA", "half-open"},
		{"a whole handshake", web, "cS bSA cA", "confirmed"},
		{"an ACK without answer", web, "cS . cA . cA", "half-open"},
		{"a refusal", web, "cS bRA", "gone"},
		{"the client resets after the answer", web, "cS bSA cR", "gone"},
		{"a FIN without answer", web, "cS cFA", "half-open"},
		{"a datagram", dns, "c", "half-open"},
		{"datagrams without answer", dns, "c . c . c", "half-open"},
		{"a datagram and its answer", dns, "c b", "confirmed"},
		{"the client's own address, a handshake", "198.18.1.2:80", "cS bSA cA", "confirmed"},
		{"in the middle, no answer", "198.18.1.2:80", "cA . cA", "half-open"},
		{"in the middle, and the backend goes on", "198.18.1.2:80", "cA bA", "confirmed"},
		{"in the middle, and the backend resets", "198.18.1.2:80", "cA bR", "gone"},
		{"direct, a SYN", "198.18.1.3:80", "cS . cS", "half-open"},
		{"direct, the client goes on", "198.18.1.3:80", "cS cA", "confirmed"},
		{"direct, the client resets", "198.18.1.3:80", "cS . cR", "gone"},
		{"direct, in the middle", "198.18.1.3:80", "cA", "half-open"},
		{"direct, in the middle, at once again", "198.18.1.3:80", "cA cA", "half-open"},
		{"direct, in the middle, the same again", "198.18.1.3:80", "cA . cA", "half-open"}, // see provisional_test.go
		{"direct, a datagram", "198.18.1.3:53", "c", "half-open"},
		{"direct, datagrams at once", "198.18.1.3:53", "c c c", "half-open"},
		{"direct, a datagram later", "198.18.1.3:53", "c . c", "confirmed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, fmt.Sprintf(mixed, 256))
			w.play(c.to, c.steps, tick)
			st := w.g.Status()
			if got := map[[2]uint64]string{{0, 0}: "gone", {1, 0}: "confirmed", {1, 1}: "half-open"}[[2]uint64{st.Connections, st.HalfOpen}]; got != c.want {
				t.Errorf("it is %s", got)
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
			for i := range s.Backends {
				got[0] += s.Backends[i].Count(datapath.Answered)
				got[1] += s.Backends[i].Count(datapath.Refused)
				got[2] += s.Backends[i].Count(datapath.Unanswered)
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
	if n := s.Backends[2].Count(datapath.Unanswered); n != 0 || s.Backends[2].Count(datapath.Closed) != 100 {
		t.Errorf("%d unanswered, %d closed", n, s.Backends[2].Count(datapath.Closed))
	}
	w.now = w.now.Add(2 * time.Second)
	f(300)
	if n := s.Backends[2].Count(datapath.Unanswered); n != 1 {
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
	gone, left := 0, w.conns()
	for i := range 768 {
		if _, ok := left[floodClient(i)]; !ok && fresh(i) {
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
		src := fmt.Sprintf("198.18.%d.%d:4000", 32+i>>8, i&0xff)
		w.expect(1, answer(w.expect(0, client(src, dns, "").bytes(), 1), "").bytes(), 0)
		if c, ok := w.conns()[netip.MustParseAddrPort(src)]; !ok || c.HalfOpen {
			t.Fatalf("connection %d has gone", i)
		}
	}
	w.audit()
}

// A reload may shorten timeouts. What had no packet since then is idler than what had one.
func TestShorterTimeoutsDoNotConfuseWhatIsIdle(t *testing.T) {
	for _, fresh := range []int{0, 20} {
		t.Run(fmt.Sprint(fresh), func(t *testing.T) {
			for seed := range uint64(8) {
				shorterTimeouts(t, fresh, 1+seed)
			}
		})
	}
}

// shorterTimeouts shortens timeouts while the table is full, has fresh connections go on, and confirms more: so few that
// at most a seventh of the connections are in use. Where half of them are, one eviction in 2^8 finds no idle one among
// those that it samples.
func shorterTimeouts(t *testing.T, fresh int, seed uint64) {
	const to = "198.18.1.3:80"
	w := newWorld(t, fmt.Sprintf(mixed, 256))
	w.h = w.handlerWith(0, seed)
	source := func(i int) string { return fmt.Sprintf("198.18.%d.%d:40000", 32+i/200, 1+i%200) }
	confirm := func(i int) {
		w.expect(0, client(source(i), to, "S").bytes(), 1)
		w.expect(0, client(source(i), to, "A").bytes(), 1)
	}
	const full = 1024 - 256 // confirmed ones, of a table with 256 half-open ones
	for i := range full {
		confirm(i)
	}
	w.reload(strings.Replace(fmt.Sprintf(mixed, 256), "half_open: 256", "half_open: 256, tcp: {established: 5m}", 1))
	w.now = w.now.Add(time.Minute)
	for i := range fresh {
		w.expect(0, client(source(i), to, "A").bytes(), 1)
	}
	for i := range full / 8 {
		confirm(full + i)
	}
	w.audit()
	left := w.conns()
	for i := range fresh {
		if _, ok := left[netip.MustParseAddrPort(source(i))]; !ok {
			t.Errorf("seed %d: connection %d, which is in use, made room", seed, i)
		}
	}
}
