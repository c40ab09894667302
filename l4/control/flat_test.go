package control

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// lane is a gateway with a number of open connections, whose packets come in random order.
type lane struct {
	name    string
	f       *flood
	order   []uint32
	at      int
	spent   time.Duration
	packets int
}

// burst passes one batch through the handler and counts the time that it took there.
func (l *lane) burst() {
	for i := range l.f.desc {
		if l.at == len(l.order) {
			l.at = 0
		}
		l.f.from(i, int(l.order[l.at]))
		l.at++
	}
	start := time.Now()
	l.f.w.h.Handle(l.f.w.now, l.f.b)
	l.spent += time.Since(start)
	l.packets += len(l.f.desc)
}

// newLane opens the connections and confirms them.
func newLane(b *testing.B, name, config string, flows int) *lane {
	f := newFlood(newWorld(b, config), 64)
	for i := 0; i < flows; i += 64 {
		f.handle(i, 1)
		f.w.confirmAll()
	}
	l := &lane{name: name, f: f, order: make([]uint32, max(flows, 64))}
	for i, n := range rand.New(rand.NewPCG(1, 1)).Perm(len(l.order)) {
		l.order[i] = uint32(n % flows)
	}
	return l
}

// benchLanes measures all lanes by turns, so that what else the machine does hits them alike. Of each it
// reports the median of many short measurements.
func benchLanes(b *testing.B, lanes []*lane) {
	runs := make([][]float64, len(lanes))
	for b.Loop() {
		for i, l := range lanes {
			l.spent, l.packets = 0, 0
			for range 64 {
				l.burst()
			}
			runs[i] = append(runs[i], float64(l.spent.Nanoseconds())/float64(l.packets))
		}
	}
	for i, l := range lanes {
		l.f.forwarded(b)
		slices.Sort(runs[i])
		b.ReportMetric(runs[i][len(runs[i])/2], "ns-"+l.name)
		b.ReportMetric(runs[i][0], "least-"+l.name)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkConnections is the cost of a packet of a client with 1 to 1 M connections: the median, and the least for
// machines that do other things.
func BenchmarkConnections(b *testing.B) {
	var lanes []*lane
	for _, flows := range []int{1, 1000, 100_000, 1_000_000} {
		lanes = append(lanes, newLane(b, fmt.Sprint(flows), bigTable(1_400_000), flows))
	}
	benchLanes(b, lanes)
}

// BenchmarkUDPFlows is the same with the flows of suite l4's UDP measures.
func BenchmarkUDPFlows(b *testing.B) {
	benchLanes(b, []*lane{newLane(b, "1", bigTable(1<<17), 1), newLane(b, "16384", bigTable(1<<17), 16_384)})
}

// manyServices serves n addresses with one backend each, and 100 connections each at most.
func manyServices(n int) string {
	s := "devices: [{name: gw0}, {name: gw1}]\nsnat: [198.18.2.1, 198.18.2.2, 198.18.2.3]\ntable: {size: 400000, udp: 1h}\nservices:\n"
	for i := range n {
		s += fmt.Sprintf("  - {name: s%d, protocol: udp, address: 198.19.%d.%d:53, hash_size: 251, backends: [{address: 198.18.%d.%d:53}]}\n",
			i, i>>8, i&255, 128+i>>8, i&255)
	}
	return s
}

// BenchmarkServices is the cost of a packet with 1 to 10 000 services and 100 000 connections.
func BenchmarkServices(b *testing.B) {
	var lanes []*lane
	for _, n := range []int{1, 100, 10_000} {
		f := newFlood(newWorld(b, manyServices(n)), 64)
		l := &lane{name: fmt.Sprint(n), f: f}
		f.services = n
		for i := 0; i < 100_000; i += 64 {
			f.handle(i, 1)
			f.w.confirmAll()
		}
		l.order = make([]uint32, 100_000)
		for i, k := range rand.New(rand.NewPCG(1, 1)).Perm(len(l.order)) {
			l.order[i] = uint32(k)
		}
		lanes = append(lanes, l)
	}
	benchLanes(b, lanes)
}

// BenchmarkFlood is the cost of a forged packet: each from a new source, with the half-open budget used up. It is the
// median of many short measurements.
func BenchmarkFlood(b *testing.B) {
	for _, f := range []struct {
		name  string
		flood *flood
	}{
		{"UDP", newFlood(newWorld(b, bigTable(1_000_000)), 64)},
		{"SYN", newFloodOf(newWorld(b, strings.Replace(bigTable(1_000_000), "udp\n", "tcp\n", 1)), 64, "S")},
		{"SYN to one backend", newFloodOf(newWorld(b, oneBackend(1_000_000)), 64, "S")}, // ports are short before the budget is
	} {
		b.Run(f.name, func(b *testing.B) { benchFlood(b, f.flood) })
	}
}

// oneBackend is bigTable with one backend behind one SNAT address, of TCP.
func oneBackend(size int) string {
	return fmt.Sprintf("devices: [{name: gw0}, {name: gw1}]\nsnat: [198.18.2.1]\ntable: {size: %d}\n"+
		"services: [{name: dns, address: 198.18.1.1:53, backends: [{address: 198.18.2.100:53}]}]\n", size)
}

func benchFlood(b *testing.B, f *flood) {
	for f.next < 300_000 {
		f.handle(f.next, 1)
		f.next += 64
	}
	var runs []float64
	for b.Loop() {
		var spent time.Duration
		for range 64 {
			for j := range f.desc {
				f.from(j, f.next+j)
			}
			f.next += 64
			start := time.Now()
			f.w.h.Handle(f.w.now, f.b)
			spent += time.Since(start)
		}
		runs = append(runs, float64(spent.Nanoseconds())/64/64)
	}
	f.forwarded(b)
	slices.Sort(runs)
	b.ReportMetric(runs[len(runs)/2], "ns/packet")
	b.ReportMetric(runs[0], "ns-least")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRanges is the cost of a packet of a client to a single port without ranges, to one beside a range of another
// address, to a port of a range, and to one of all ports of an address.
func BenchmarkRanges(b *testing.B) {
	const flows = 10_000
	one := bigTable(400_000)
	other := "  - {name: other, protocol: udp, address: 198.18.1.9:8000-8099, backends: [{address: 198.18.2.99}]}\n"
	kept := strings.ReplaceAll(one, ":53}", "}")
	var lanes []*lane
	for _, c := range []struct{ name, config string }{
		{"single", one},
		{"beside", one + other},
		{"range", strings.Replace(kept, "198.18.1.1:53", "198.18.1.1:50-149", 1)},
		{"all", strings.Replace(kept, "198.18.1.1:53", "198.18.1.1:*", 1)},
	} {
		lanes = append(lanes, newLane(b, c.name, c.config, flows))
	}
	benchLanes(b, lanes)
}
