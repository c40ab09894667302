package gpukern

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// flowBatch returns a batch of n TCP packets of size bytes over IPv4, with right checksums, from
// tuples that next makes.
func flowBatch(n, size int, next func() (src, dst [4]byte, sport, dport uint16, proto uint8)) *packet.Batch {
	var packets [][][]byte
	g := newGenerator(uint64(size))
	for range n {
		src, dst, sport, dport, proto := next()
		p := make([]byte, size)
		binary.BigEndian.PutUint16(p[12:], wire.EtherTypeIPv4)
		ip := wire.IPv4(p[14:])
		ip.SetHeaderLen(20)
		ip.SetTotalLen(uint16(size - 14))
		ip.SetProto(proto)
		ip.SetSrc(src)
		ip.SetDst(dst)
		ip.SetChecksum(wire.Fold(wire.SumPlain(ip[:20], 0)))
		l4, field := p[34:], 16
		copy(l4, g.bytes(len(l4)))
		binary.BigEndian.PutUint16(l4, sport)
		binary.BigEndian.PutUint16(l4[2:], dport)
		switch proto {
		case wire.ProtoTCP:
			l4[12] = 5 << 4
		case wire.ProtoUDP:
			binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
			field = 6
		}
		binary.BigEndian.PutUint16(l4[field:], 0)
		sum := wire.SumPlain(l4, wire.PseudoHeader4(src, dst, proto, uint32(len(l4))))
		binary.BigEndian.PutUint16(l4[field:], wire.Fold(sum))
		packets = append(packets, one(p))
	}
	return batchOf(packets...)
}

// classBench makes n rules with the shape of access lists in use, after the published seeds of
// ClassBench: most name both addresses with long prefixes out of a few dozen networks, few name
// source ports, most name TCP or UDP and one destination port or range.
func classBench(g generator, n int) []Rule {
	nets := make([]uint32, max(4, n/24))
	for i := range nets {
		nets[i] = g.Uint32()
	}
	prefix := func() netip.Prefix {
		bits := [...]int{0, 8, 16, 21, 24, 24, 26, 28, 30, 32, 32, 32, 32}[g.IntN(13)]
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], nets[g.IntN(len(nets))]&^0xffff|g.Uint32()&0xffff)
		p, err := netip.AddrFrom4(a).Prefix(bits)
		if err != nil {
			panic(err)
		}
		return p
	}
	well := []uint16{20, 21, 22, 23, 25, 53, 80, 110, 123, 135, 137, 143, 161, 389, 443, 445, 993, 1433, 1521, 3306, 3389, 5060, 5900, 8080}
	ports := func(named int) Ports {
		if !g.chance(named) {
			return Ports{}
		}
		switch g.IntN(10) {
		case 0:
			return PortRange(1024, 65535)
		case 1:
			lo := uint16(g.IntN(60000))
			return PortRange(lo, lo+uint16(g.IntN(4000)))
		}
		p := well[g.IntN(len(well))]
		return PortRange(p, p)
	}
	rules := make([]Rule, n)
	for i := range rules {
		r := &rules[i]
		r.Src, r.Dst = prefix(), prefix()
		if i < n*9/10 && r.Src.Bits() == 0 && r.Dst.Bits() == 0 {
			r.Dst = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 32)
		}
		r.Proto = [...]uint8{wire.ProtoTCP, wire.ProtoTCP, wire.ProtoTCP, wire.ProtoUDP, wire.ProtoUDP, 0}[g.IntN(6)]
		if r.Proto != 0 {
			r.SrcPorts, r.DstPorts = ports(5), ports(85)
		}
	}
	return rules
}

// traceFor returns tuples inside of rules chosen at random; one in ten is random altogether.
func traceFor(g generator, rules []Rule) func() (src, dst [4]byte, sport, dport uint16, proto uint8) {
	inside := func(p netip.Prefix) [4]byte {
		v := g.Uint32()
		if !anyPrefix(p) {
			a := p.Addr().As4()
			mask := uint32(uint64(1)<<(32-p.Bits()) - 1)
			v = binary.BigEndian.Uint32(a[:]) | v&mask
		}
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], v)
		return a
	}
	port := func(p Ports) uint16 {
		if !p.set {
			return uint16(g.Uint32())
		}
		return p.lo + uint16(g.IntN(int(p.hi-p.lo)+1))
	}
	return func() (src, dst [4]byte, sport, dport uint16, proto uint8) {
		r := Rule{}
		if len(rules) > 0 && !g.chance(10) {
			r = rules[g.IntN(len(rules))]
		}
		proto = r.Proto
		if proto == 0 {
			proto = [...]uint8{wire.ProtoTCP, wire.ProtoUDP}[g.IntN(2)]
		}
		return inside(r.Src), inside(r.Dst), port(r.SrcPorts), port(r.DstPorts), proto
	}
}

// internet returns n routes with the prefix lengths of a full IPv4 table: six in ten are /24.
func internet(g generator, n int) []Route {
	seen := map[netip.Prefix]bool{}
	routes := make([]Route, 0, n)
	for len(routes) < n {
		bits := [...]int{24, 24, 24, 24, 24, 24, 23, 22, 22, 22, 21, 20, 20, 19, 18, 16}[g.IntN(16)]
		if g.chance(2) {
			bits = [...]int{8, 12, 14, 26, 28, 30, 32}[g.IntN(7)]
		}
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], g.Uint32()%0xdf000000+0x01000000)
		p, err := netip.AddrFrom4(a).Prefix(bits)
		if err != nil {
			panic(err)
		}
		if !seen[p] {
			seen[p] = true
			routes = append(routes, Route{p, uint16(1 + g.IntN(64))})
		}
	}
	return routes
}

// measure runs do(0) to do(n-1), each of which handles one batch, in turns, and reports the time of a
// packet: the mean, and that of the best run of each batch, which other programs on the machine
// disturb less.
func measure(b *testing.B, n int, do func(i int)) {
	b.Helper()
	best := make([]time.Duration, n)
	for i := range best {
		best[i] = time.Hour
	}
	b.ReportAllocs()
	runs := 0
	for b.Loop() {
		i := runs % n
		start := time.Now()
		do(i)
		best[i] = min(best[i], time.Since(start))
		runs++
	}
	if runs < n {
		return
	}
	var sum time.Duration
	for _, d := range best {
		sum += d
	}
	mean := float64(b.Elapsed().Nanoseconds()) / float64(packet.BatchSize*runs)
	ns := float64(sum.Nanoseconds()) / float64(packet.BatchSize*n)
	b.ReportMetric(mean, "ns/packet")
	b.ReportMetric(ns, "best-ns/packet")
	b.ReportMetric(1000/ns, "best-Mpps")
	b.ReportMetric(0, "ns/op")
}

func benchEngine(b *testing.B, ops Ops, t Tables, batch *packet.Batch) {
	b.Helper()
	c := NewCPU(Config{Ops: ops, Tables: t})
	done := make([]*packet.Batch, 1)
	measure(b, 1, func(int) {
		if err := c.Submit(batch); err != nil {
			b.Fatal(err)
		}
		c.Poll(done)
	})
}

// BenchmarkPass measures the operations alone and together, a thousand rules and 100 routes.
func BenchmarkPass(b *testing.B) {
	g := generator{rand.New(rand.NewPCG(1, 2))}
	rules := classBench(g, 1000)
	l := Lists{Rules: rules, Routes: internet(g, 100)}
	t := l.compile(b)
	for _, size := range []int{64, 1408} {
		batch := flowBatch(packet.BatchSize, size, traceFor(g, rules))
		for _, ops := range []Ops{OpParse, OpTunnel, OpChecksum, OpFill, OpHash, OpACL, OpLPM, OpsHeader} {
			b.Run(fmt.Sprintf("%dB/%v", size, ops), func(b *testing.B) { benchEngine(b, ops, t, batch) })
		}
	}
}

// BenchmarkTables measures all operations at once by the size of the tables.
func BenchmarkTables(b *testing.B) {
	g := newGenerator(8)
	for _, routes := range []int{100, 1000000} {
		hops := internet(g, routes)
		for _, n := range []int{0, 100, 10000} {
			rules := classBench(g, n)
			t := Lists{Rules: rules, Routes: hops}.compile(b)
			for _, size := range []int{64, 1408} {
				batch := flowBatch(packet.BatchSize, size, traceFor(g, rules))
				b.Run(fmt.Sprintf("%dB/rules=%d/routes=%d", size, n, routes), func(b *testing.B) {
					benchEngine(b, OpsHeader, t, batch)
				})
			}
		}
	}
}

// BenchmarkCold measures all operations over packets that are in no cache: 32768 frames of 2 KiB.
func BenchmarkCold(b *testing.B) {
	g := newGenerator(8)
	rules := classBench(g, 100)
	c := NewCPU(Config{Tables: Lists{Rules: rules, Routes: internet(g, 100)}.compile(b)})
	all := flowBatch(32768, 64, traceFor(g, rules))
	done := make([]*packet.Batch, 1)
	var batches []*packet.Batch
	for d := all.D; len(d) > 0; d = d[packet.BatchSize:] {
		batches = append(batches, &packet.Batch{Arena: all.Arena, D: d[:packet.BatchSize]})
	}
	measure(b, len(batches), func(i int) {
		if err := c.Submit(batches[i]); err != nil {
			b.Fatal(err)
		}
		c.Poll(done)
	})
}

// BenchmarkCompile measures how long tables take to make.
func BenchmarkCompile(b *testing.B) {
	g := newGenerator(8)
	rules, routes := classBench(g, 10000), internet(g, 1000000)
	b.Run("rules=10000", func(b *testing.B) {
		for b.Loop() {
			if _, err := CompileACL(rules); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("routes=1000000", func(b *testing.B) {
		for b.Loop() {
			if _, err := CompileLPM(routes); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkACL measures the pass with rules and nothing else over 64 batches of different packets.
func BenchmarkACL(b *testing.B) {
	for _, n := range []int{0, 10, 100, 1000, 10000} {
		g := generator{rand.New(rand.NewPCG(uint64(n), 3))}
		rules := classBench(g, n)
		t := Lists{Rules: rules}.compile(b)
		var batches []*packet.Batch
		for range 16 {
			batches = append(batches, flowBatch(packet.BatchSize, 64, traceFor(g, rules)))
		}
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.ReportMetric(float64(t.ACL.Size())/1024, "KiB")
			benchACL(b, t.ACL, batches)
		})
	}
}

// benchACL measures the stage alone, on tuples that are parsed already.
func benchACL(b *testing.B, a *ACL, batches []*packet.Batch) {
	b.Helper()
	work := make([]chunk, len(batches))
	for i := range work {
		work[i].parse(batches[i], 0, false)
	}
	measure(b, len(work), func(k int) { work[k].acl(batches[k], a) })
}

// BenchmarkLPM measures lookups of random addresses inside of the routes.
func BenchmarkLPM(b *testing.B) {
	for _, n := range []int{100, 10000, 1000000} {
		g := generator{rand.New(rand.NewPCG(uint64(n), 4))}
		routes := internet(g, n)
		t := Lists{Routes: routes}.compile(b)
		var batches []*packet.Batch
		for range 16 {
			batches = append(batches, flowBatch(packet.BatchSize, 64, func() (src, dst [4]byte, sport, dport uint16, proto uint8) {
				r := routes[g.IntN(len(routes))].Prefix
				dst = r.Addr().As4()
				mask := uint32(uint64(1)<<(32-r.Bits()) - 1)
				binary.BigEndian.PutUint32(dst[:], binary.BigEndian.Uint32(dst[:])|g.Uint32()&mask)
				return dst, dst, 1, 2, wire.ProtoTCP
			}))
		}
		works := make([]chunk, len(batches))
		for i := range works {
			works[i].parse(batches[i], 0, false)
		}
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			b.ReportMetric(float64(t.Routes.Size())/1024, "KiB")
			measure(b, len(works), func(i int) { works[i].lpm(batches[i], t.Routes) })
		})
	}
}
