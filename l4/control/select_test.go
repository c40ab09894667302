package control

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
)

// keyLine is the line of a configuration that names a new file with the given lines.
func keyLine(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return "hash_key_file: " + file + "\n"
}

const (
	keyA = "000102030405060708090a0b0c0d0e0f"
	keyB = "f0e1d2c3b4a5968778695a4b3c2d1e0f"
)

// Two gateways with one key agree on every packet, in every mode whose connections can move between them.
func TestGatewaysWithOneKeyAgreeOnEveryPacket(t *testing.T) {
	for _, mode := range pairModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, keyLine(t, keyA)+pairConfig(mode, "active", "active", "active", "active"))
			p.open(2000, 0)
			if n := p.round(func(*pairFlow, int) bool { return true }); n != 0 || p.moved < 900 {
				t.Errorf("%d of %d packets that moved went elsewhere", n, p.moved)
			}
		})
	}
}

// A change of the key leaves connections of the table alone. Those that move between gateways meanwhile find their
// backend by the key before, if the file has it.
func TestAChangeOfTheKeyKeepsConnections(t *testing.T) {
	const mode = "mode: l2"
	config := pairConfig(mode, "active", "active", "active", "active")
	tcp := func(f *pairFlow, _ int) bool { return f.tcp && f.born == 0 }
	for _, tc := range []struct {
		name          string
		before, after []string
		lost          bool
	}{
		{"with the key before", []string{keyA}, []string{keyB, keyA}, false},
		{"the first key", nil, []string{keyB, "none"}, false},
		{"without the key before", []string{keyA}, []string{keyB}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			first := config
			if tc.before != nil {
				first = keyLine(t, tc.before...) + config
			}
			p := newPair(t, first)
			p.open(1000, 0)
			p.reload(keyLine(t, tc.after...) + config)
			if n := p.round(func(*pairFlow, int) bool { return false }); n != 0 {
				t.Errorf("%d connections of the table changed their backend", n)
			}
			if n := p.round(tcp); (n > 0) != tc.lost {
				t.Errorf("%d connections that moved went elsewhere", n)
			}
			p.open(1000, 1)
			if tc.lost {
				return
			}
			if n := p.round(tcp); n != 0 {
				t.Errorf("later %d connections that moved went elsewhere", n)
			}
		})
	}
}

// selected returns the name of the backend that the first service of a gateway selects for a new flow.
func (w *world) selected(src netip.AddrPort) string {
	s := w.g.snap.Load()
	id, _ := s.Services[0].NewFlow[datapath.Family4].Pick(s.FlowHash(s.Services[0], src, 80, false))
	return w.g.reg.labels[id].Name
}

// tenBackends is a service of ten backends.
func tenBackends(keys string) string {
	var s strings.Builder
	s.WriteString("devices: [{name: gw0}, {name: gw1}]\nsnat: [198.18.2.200]\ntable: {size: 4096}\nservices:\n")
	s.WriteString("  - name: web\n    address: [198.18.1.1:80, 198.18.1.2:81]\n" + keys + "    backends:\n")
	for i := range 10 {
		fmt.Fprintf(&s, "      - {name: b%d, address: 198.18.2.%d:80}\n", i, 10+i)
	}
	return s.String()
}

// flowSource returns the i-th of many clients: 64 ports of each address.
func flowSource(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(128 + i>>14), byte(i >> 6)}), uint16(1024+i&63))
}

// The distribution over backends is uniform for every key: the sum of squared deviations has the chi-square distribution with
// 9 degrees of freedom, which exceeds 33.7 once in 10 000 times. The table itself is uneven by a slot in a hundred.
func TestTheDistributionIsUniformUnderKeys(t *testing.T) {
	const flows = 20000
	for k := range 12 {
		w := newWorld(t, keyLine(t, fmt.Sprintf("%032x", k*k+1))+tenBackends("    hash_size: 65537\n"))
		counts := map[string]float64{}
		for i := range flows {
			counts[w.selected(flowSource(i))]++
		}
		chi := 0.0
		for _, n := range counts {
			chi += (n - flows/10) * (n - flows/10) / (flows / 10)
		}
		if len(counts) != 10 || chi > 33.7 {
			t.Errorf("key %d: chi-square %.1f: %v", k, chi, counts)
		}
		w.g.Close()
	}
}

// An attacker knows the program and the configuration but not the key. The flows that lead to one backend by
// the public hash, all of them, lead there under a key as often as by chance.
func TestWithoutTheKeyNoBackendCanBeChosen(t *testing.T) {
	public, keyed, other := newWorld(t, tenBackends("")), newWorld(t, keyLine(t, keyA)+tenBackends("")), newWorld(t, keyLine(t, keyB)+tenBackends(""))
	var aimed []netip.AddrPort
	for i := 0; len(aimed) < 4000; i++ {
		if src := flowSource(i); public.selected(src) == "b3" {
			aimed = append(aimed, src)
		}
	}
	for name, w := range map[string]*world{"the key": keyed, "another key": other} {
		hits := map[string]int{}
		for _, src := range aimed {
			hits[w.selected(src)]++
		}
		for backend, n := range hits { // 400 +- 19; five of them
			if n < 300 || n > 500 {
				t.Errorf("%s: %d of %d flows lead to %s", name, n, len(aimed), backend)
			}
		}
	}
	// Nor does it help to have seen where flows lead under another key.
	same := 0
	for _, src := range aimed {
		if keyed.selected(src) == other.selected(src) {
			same++
		}
	}
	if same < 300 || same > 500 {
		t.Errorf("%d of %d flows lead to the same backend under two keys", same, len(aimed))
	}
}

func TestPersistenceSendsAClientToOneBackend(t *testing.T) {
	w := newWorld(t, keyLine(t, keyA)+tenBackends("    persistence: {prefix4: 24}\n"))
	networks := map[string]bool{}
	for net := range 40 {
		backends := map[string]bool{}
		for host := 1; host < 5; host++ {
			src := fmt.Sprintf("198.18.%d.%d", 128+net, host*60)
			for port := range 4 {
				for _, to := range []string{"198.18.1.1:80", "198.18.1.2:81"} {
					out := w.expect(0, client(fmt.Sprint(src, ":", 1024+port*7919), to, "S").bytes(), 1)
					backends[flowOf(out).dst.String()] = true
				}
			}
		}
		if len(backends) != 1 {
			t.Errorf("clients of one prefix are on %v", backends)
		}
		for b := range backends {
			networks[b] = true
		}
	}
	if len(networks) < 8 {
		t.Errorf("40 prefixes are on %d of 10 backends", len(networks))
	}
	plain := newWorld(t, tenBackends(""))
	if plain.selected(flowSource(0)) == plain.selected(flowSource(1)) && plain.selected(flowSource(0)) == plain.selected(flowSource(2)) {
		t.Error("without persistence the port does not count")
	}
}

func TestPersistenceByPrefixOfIPv6(t *testing.T) {
	w := newWorld(t, strings.Replace(fmt.Sprintf(worldConfig, ""), "    address", "    persistence: {}\n    address", 1))
	backend := func(src string) string {
		return flowOf(w.expect(0, client(src, "[2001:db8:1::1]:80", "S").bytes(), 1)).dst.String()
	}
	seen := map[string]int{}
	for i := range 32 {
		a := backend(fmt.Sprintf("[2001:db8:9:%x::1]:1024", i))
		if b := backend(fmt.Sprintf("[2001:db8:9:%x:ffff:ffff:ffff:%x]:%d", i, i, 2000+i)); a != b {
			t.Errorf("one /64 is on %s and %s", a, b)
		}
		seen[a]++
	}
	if len(seen) != 2 {
		t.Errorf("32 clients are on %v", seen)
	}
}

// byName returns the number of connections of each backend of the first service.
func (w *world) byName() map[string]uint64 {
	n := map[string]uint64{}
	for _, b := range w.g.Status().Services[0].Backends {
		n[b.Name] += b.Connections
	}
	return n
}

// weighted is a service with four backends of weights 1, 1, 2 and 4.
func weighted(keys string) string {
	return `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1]
table: {size: 8192}
services:
  - name: web
    address: 198.18.1.1:80
` + keys + `    backends:
      - {name: b1, address: 198.18.2.11:80}
      - {name: b2, address: 198.18.2.12:80}
      - {name: b3, address: 198.18.2.13:80, weight: 2}
      - {name: b4, address: 198.18.2.14:80, weight: 4}
`
}

func TestLeastConnectionsFollowTheWeights(t *testing.T) {
	w := newWorld(t, weighted("    balance: least_connections\n"))
	var open []seg
	for i := range 800 {
		s := client(flowSource(i).String(), "198.18.1.1:80", "S")
		w.expect(0, s.bytes(), 1)
		open = append(open, s)
	}
	for name, want := range map[string]uint64{"b1": 100, "b2": 100, "b3": 200, "b4": 400} {
		if got := w.byName()[name]; got < want-6 || got > want+6 {
			t.Errorf("%s has %d connections, want %d", name, got, want)
		}
	}
	// Connections of b4 end: new ones go there until it has as many as the others again.
	ended := 0
	for _, s := range open {
		s.flags = "R"
		if out := w.send(0, s.bytes()); out.verdict == packet.Forward && flowOf(out.p).dst.String() == "198.18.2.14:80" {
			ended++
		} else {
			s.flags = "S"
		}
		if ended == 200 {
			break
		}
	}
	for i := 800; i < 1000; i++ {
		w.expect(0, client(flowSource(i).String(), "198.18.1.1:80", "S").bytes(), 1)
	}
	n := w.byName()
	for name, weight := range map[string]uint64{"b2": 1, "b3": 2, "b4": 4} {
		if got := n[name] / weight; got+15 < n["b1"] || got > n["b1"]+15 {
			t.Errorf("after some have ended: %v", n)
		}
	}
}

func TestABurstIsCountedWithinItsBatch(t *testing.T) {
	w := newWorld(t, weighted("    balance: least_connections\n"))
	for k := range 4 {
		var pkts [][]byte
		for i := range 64 {
			pkts = append(pkts, client(flowSource(64*k+i).String(), "198.18.1.1:80", "S").bytes())
		}
		w.run(w.batch(0, pkts...))
	}
	for name, want := range map[string]uint64{"b1": 32, "b2": 32, "b3": 64, "b4": 128} {
		if got := w.byName()[name]; got < want-5 || got > want+5 {
			t.Errorf("%s has %d connections, want %d", name, got, want)
		}
	}
}

// capped is a service with the given keys whose backends have limits of 10 and 20 connections.
func capped(keys string) string {
	return `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1]
table: {size: 4096}
services:
  - name: web
    address: 198.18.1.1:80
` + keys + `    backends:
      - {name: b1, address: 198.18.2.11:80, max_connections: 10}
      - {name: b2, address: 198.18.2.12:80, max_connections: 20}
`
}

func TestConnectionsBeyondTheMaximum(t *testing.T) {
	for _, tc := range []struct {
		keys     string
		early    bool // a connection is refused while the other backend takes some
		answered bool // with a reset
	}{
		{"    when_full: next\n", false, false},
		{"    when_full: next\n    unavailable: reject\n", false, true},
		{"    when_full: reset\n", true, true},
		{"    when_full: drop\n", true, false},
		{"    when_full: drop\n    unavailable: reject\n", true, false},
		{"    when_full: next\n    balance: least_connections\n", false, false},
	} {
		t.Run(strings.Join(strings.Fields(tc.keys), " "), func(t *testing.T) {
			w := newWorld(t, capped(tc.keys))
			refused, opened, later := 0, 0, 0
			var first seg
			for k := range 4 { // 256 SYNs in four batches
				var pkts [][]byte
				for i := range 64 {
					pkts = append(pkts, client(flowSource(64*k+i).String(), "198.18.1.1:80", "S").bytes())
				}
				b := w.batch(0, pkts...)
				w.run(b)
				for i := range b.D {
					out := sent{b.D[i].Verdict, b.D[i].Port, b.Bytes(i)}
					if out.verdict == packet.Forward && out.port == 1 {
						if opened++; opened == 1 {
							first = client(flowSource(64*k+i).String(), "198.18.1.1:80", "S")
						}
						if refused > 0 {
							later++
						}
						continue
					}
					refused++
					if want := packet.DropBackendFull; tc.answered != (out.verdict == packet.Forward) || !tc.answered && out.verdict != want {
						t.Fatalf("verdict %v", out.verdict)
					}
				}
			}
			n := w.byName()
			if n["b1"] != 10 || n["b2"] != 20 || opened != 30 {
				t.Errorf("%v, %d opened", n, opened)
			}
			if (later > 0) != tc.early {
				t.Errorf("%d connections were opened after one had been refused", later)
			}
			st := w.g.Status()
			if got := st.Services[0].Dropped["backend_full"]; (got > 0) == tc.answered || !tc.answered && (got != uint64(refused) || st.Dropped["backend_full"] != got) {
				t.Errorf("%d dropped of %d refused", got, refused)
			}
			if got := st.Answers["reset_full"]; tc.answered != (got > 0) {
				t.Errorf("%d resets", got)
			}
			if b := st.Services[0].Backends[0]; b.MaxConnections != 10 {
				t.Errorf("status says %d", b.MaxConnections)
			}
			first.flags = "A" // open connections go on
			w.expect(0, first.bytes(), 1)
		})
	}
}

// A connection that a reset has ended counts no more, though the table still has it; nor does one that expired.
func TestAFullBackendTakesConnectionsWhenOthersEnd(t *testing.T) {
	w := newWorld(t, strings.Replace(capped("    when_full: drop\n"), "      - {name: b2, address: 198.18.2.12:80, max_connections: 20}\n", "", 1))
	syn := func(i int) seg { return client(flowSource(i).String(), "198.18.1.1:80", "S") }
	for i := range 10 {
		w.expect(0, syn(i).bytes(), 1)
	}
	w.refused(0, syn(10).bytes(), packet.DropBackendFull)
	end := syn(3)
	end.flags = "R"
	w.expect(0, end.bytes(), 1)
	w.expect(0, syn(10).bytes(), 1)
	w.refused(0, syn(11).bytes(), packet.DropBackendFull)
	w.after(time.Minute)
	w.expect(0, syn(11).bytes(), 1)
}

// Whichever backend the hash selects, a connection finds the one that is not full.
func TestTheLastPlaceIsFound(t *testing.T) {
	w := newWorld(t, strings.ReplaceAll(tenBackends(""), ":80}", ":80, max_connections: 1}"))
	for i := range 10 {
		w.expect(0, client(flowSource(i).String(), "198.18.1.1:80", "S").bytes(), 1)
	}
	w.refused(0, client(flowSource(10).String(), "198.18.1.1:80", "S").bytes(), packet.DropBackendFull)
}

// A connection that has begun to close stays in the table and takes no place of the backend's.
func TestConnectionsThatCloseDoNotCount(t *testing.T) {
	w := newWorld(t, `
devices: [{name: gw0}, {name: gw1}]
table: {size: 1024}
services:
  - name: web
    address: 198.18.1.1:80
    mode: l2
    backends: [{name: b1, address: 198.18.2.11, max_connections: 2}]
`)
	send := func(i int, flags string) sent {
		return w.send(0, client(flowSource(i).String(), "198.18.1.1:80", flags).bytes())
	}
	for i := range 2 {
		send(i, "S")
		send(i, "A")
	}
	if s := send(2, "S"); s.verdict != packet.DropBackendFull {
		t.Errorf("a third connection: %v", s.verdict)
	}
	send(0, "FA")
	if n := w.byName()["b1"]; n != 2 {
		t.Errorf("%d connections in the table", n)
	}
	if s := send(2, "S"); s.verdict != packet.Forward {
		t.Errorf("after a FIN: %v", s.verdict)
	}
}

// The limit is of the backend, over its addresses.
func TestTheMaximumIsOfAllAddresses(t *testing.T) {
	w := newWorld(t, strings.Replace(fmt.Sprintf(worldConfig, ""), "{name: d1,", "{name: d1, max_connections: 5,", 1))
	for i := range 8 {
		src, to := fmt.Sprintf("198.18.0.9:%d", 1024+i), "198.18.1.1:53"
		if i%2 == 1 {
			src, to = fmt.Sprintf("[2001:db8::9]:%d", 1024+i), "[2001:db8:1::1]:53"
		}
		if s := w.send(0, client(src, to, "").bytes()); (s.verdict == packet.Forward) != (i < 5) {
			t.Errorf("datagram %d: %v", i, s.verdict)
		}
	}
}

// Least connections leave no trace in the packets of a connection: one in mid-flow that the table does not know, or an ICMP
// error about it, has no backend. With Maglev both find it by the hash.
func TestLeastConnectionsPickNothingUp(t *testing.T) {
	for _, balance := range []string{"maglev", "least_connections"} {
		w := newWorld(t, strings.Replace(directConfig, "{name: web,", "{name: web, unknown: auto, balance: "+balance+",", 1))
		fromBackend := answer(client(host, web, "A").bytes(), "A").bytes()
		m := message{src: "198.18.0.254", dst: "198.18.1.1", kind: 3, code: 1, about: fromBackend, from: macClient, to: macGw0}
		got, want := w.send(0, m.bytes()).verdict, packet.Forward
		if balance != "maglev" {
			want = packet.DropNoFlow
		}
		if got != want {
			t.Errorf("%s: an error about an unknown connection: %v, want %v", balance, got, want)
		}
		s := w.send(0, client(host, web, "A").bytes())
		if s.port != 1 && balance == "maglev" || balance != "maglev" && (s.port != 0 || w.h.Connections() != 0) {
			t.Errorf("%s: a segment of an unknown connection: %v to port %d, %d connections", balance, s.verdict, s.port, w.h.Connections())
		}
	}
}
