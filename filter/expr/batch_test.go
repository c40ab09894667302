package expr

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// batchOf lays packets into frames of 2 KiB, the last at the very end of the memory. A longer one spans
// several frames.
func batchOf(pkts []pkt) *packet.Batch {
	const frame = 2048
	b := &packet.Batch{Arena: &packet.Arena{Mem: make([]byte, frame*len(pkts)*2), Shift: 11}}
	at := uint32(0)
	for i, p := range pkts {
		data := p.data
		for {
			n := min(len(data), frame)
			off := at
			if i == len(pkts)-1 {
				off = uint32(len(b.Arena.Mem) - n)
			}
			copy(b.Arena.Mem[off:], data[:n])
			d := packet.Desc{Off: off, Len: uint16(n)}
			data = data[n:]
			at += frame
			if len(data) > 0 {
				d.Flags |= packet.FlagMore
			}
			b.D = append(b.D, d)
			if len(data) == 0 {
				break
			}
		}
	}
	return b
}

// forms are the ways in which a Matcher can decide, each without the others.
var forms = []struct {
	name string
	of   func(*Filter) *Matcher // nil where the filter has no such form
}{
	{"as it comes", (*Filter).NewMatcher},
	{"program", func(f *Filter) *Matcher { return &Matcher{f: f, always: verdictUndecided} }},
	{"descriptors", func(f *Filter) *Matcher {
		m := &Matcher{f: f, always: verdictUndecided, parsed: newParsedTable(fusedGraph(f))}
		return unless(m.parsed == nil, m)
	}},
	{"header", func(f *Filter) *Matcher {
		m := &Matcher{f: f, always: verdictUndecided, header: newHeaderTable(fusedGraph(f))}
		return unless(m.header == nil || !haveVectors(), m)
	}},
	{"descriptors and header", func(f *Filter) *Matcher {
		g := fusedGraph(f)
		m := &Matcher{f: f, always: verdictUndecided, header: newHeaderTable(g), parsed: newParsedTable(g)}
		return unless(m.header == nil || m.parsed == nil || !haveVectors(), m)
	}},
	{"vector", vectorMatcher},
}

func fusedGraph(f *Filter) *graph {
	g := newGraph(f.tree)
	g.fuse()
	return g
}

func unless(none bool, m *Matcher) *Matcher {
	if none {
		return nil
	}
	return m
}

func vectorMatcher(f *Filter) *Matcher {
	p := newVectorProgram(fusedGraph(f))
	if p == nil {
		return nil
	}
	return &Matcher{f: f, always: verdictUndecided, vector: newVectorState(p)}
}

// A matcher decides as Match does, in all of its forms, and whether the header pass has seen the batch or not.
func TestMatcherDecidesAsMatch(t *testing.T) {
	pkts, batches := testBatches(t)
	rng := rand.New(rand.NewPCG(4, 4))
	used, matched := make([]int, len(forms)), 0
	for rows := 0; rows < 1200; {
		g := generator{rng, LinkEthernet}
		text := g.expression(rng.IntN(3))
		if rows%4 == 0 {
			text = g.longList()
		}
		f, err := Compile(text, LinkEthernet, Options{Names: testNames})
		if err != nil {
			continue
		}
		rows++
		want := make([]bool, len(pkts))
		for i, p := range pkts {
			want[i] = f.Match(p.data, int(p.len))
			if want[i] {
				matched++
			}
		}
		for k, form := range forms {
			m := form.of(f)
			if m == nil {
				continue
			}
			used[k]++
			b := batches[rows%len(batches)]
			for range 2 {
				checkVerdicts(t, form.name, f, m.Match(b), pkts, want)
			}
		}
	}
	for k, n := range used {
		if n < 300 && (haveVectors() || !strings.Contains(forms[k].name, "header")) {
			t.Errorf("form %q was used %d times", forms[k].name, n)
		}
	}
	if matched == 0 {
		t.Error("nothing matched")
	}
}

// testBatches returns packets, one of them in several frames, and batches of them: bare, and as header passes
// with various operations leave them.
func testBatches(t *testing.T) ([]pkt, []*packet.Batch) {
	pkts := zoo(LinkEthernet, 300)
	long := pkt{make([]byte, 5000), 5000}
	copy(long.data, pkts[3].data)
	pkts = append(pkts[:200], append([]pkt{long}, pkts[200:]...)...)
	for i := range pkts {
		pkts[i].len = uint32(len(pkts[i].data)) // a batch has whole packets
	}
	batches := []*packet.Batch{batchOf(pkts)}
	for _, more := range []gpukern.Ops{0, gpukern.OpL2Encap} {
		batches = append(batches, headerPass(t, batchOf(pkts), more))
	}
	return pkts, batches
}

// headerPass has the engine parse a batch.
func headerPass(t testing.TB, b *packet.Batch, more gpukern.Ops) *packet.Batch {
	cpu := gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpsHeader | more})
	defer cpu.Close()
	if err := cpu.Submit(b); err != nil {
		t.Fatal(err)
	}
	var done [1]*packet.Batch
	if cpu.Poll(done[:]) != 1 {
		t.Fatal("the batch is not done")
	}
	return b
}

func checkVerdicts(t *testing.T, form string, f *Filter, got []uint8, pkts []pkt, want []bool) {
	t.Helper()
	at := 0
	for i, p := range pkts {
		for range max(1, (len(p.data)+2047)/2048) {
			if got[at] == verdictAccept != want[i] || got[at] == verdictUndecided {
				t.Fatalf("%s: %q, packet %d: %d, Match says %v\n%s%x", form, f, i, got[at], want[i], f.Tree(), p.data)
			}
			at++
		}
	}
}

// longList returns a list of ports, hosts and networks, longer than a table holds.
func (g *generator) longList() string {
	if g.IntN(3) == 0 {
		return g.pairs()
	}
	join := pick(g, " or ", " or ", " and not ")
	parts := []string{pick(g, "tcp", "ip", "udp or icmp", "len > 80", "vlan and ip", "not ip6")}
	for range 3 + g.IntN(30) {
		parts = append(parts, pick(g, "port 53", "src port 443", "dst portrange 1000-2000", "host 10.0.0.1", "net 192.168.0.0/16",
			"tcp[13] & 2 != 0", "host 2001:db8::fb", "ip[8] < 5", "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420", "port "+
				strconv.Itoa(g.IntN(1<<16))))
	}
	return "(" + parts[0] + ") and (" + strings.Join(parts[1:], join) + ")"
}

// pairs returns alternatives whose first tests are of one value, some of them more than once, and whose others differ.
func (g *generator) pairs() string {
	first := pick(g, []string{"src host 192.168.1.%d", "src host 8.8.8.%d"}, []string{"src net 10.%d", "src net 192.%d", "src net 224.%d"},
		[]string{"dst net 192.168.%d.0/24", "dst host 10.0.0.%d"}, []string{"ip[8] = %d", "ip[9] = %d"})
	var parts []string
	for range 6 + g.IntN(30) {
		test := fmt.Sprintf(pick(g, first...), g.IntN(3)*g.IntN(100))
		parts = append(parts, "("+test+" and "+pick(g, "dst port 53", "port 443", "udp", "tcp[13] & 2 != 0", "len < 90", "src port 80")+")")
	}
	return pick(g, "", "tcp or ", "vlan and ") + "(" + strings.Join(parts, " or ") + ")"
}

// A chain of tests of one value is one node, however long.
func TestPairsAreFoundByATable(t *testing.T) {
	var parts []string
	for i := range 100 {
		parts = append(parts, fmt.Sprintf("(src net 10.%d.0.0/16 and dst port %d)", i, 1000+i))
	}
	f, err := Compile(strings.Join(parts, " or "), LinkEthernet, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := newVectorProgram(fusedGraph(f))
	tables := 0
	for i := range p.nodes {
		if n := &p.nodes[i]; n.table != nil {
			tables++
			if keys := len(n.table.slots); keys < 400 {
				t.Errorf("a table of %d slots, want one for 100 values", keys)
			}
		}
	}
	if tables == 0 || len(p.nodes) > 900 {
		t.Errorf("%d tables, %d nodes", tables, len(p.nodes))
	}
}

// A table of values gives what a walk through them gives, also of values that collide.
func TestDispatchTableFindsItsKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 8))
	for range 200 {
		n := 1 + rng.IntN(300)
		keys, targets, want := make([]uint32, n), make([]int, n), map[uint32]int{}
		for i := range keys {
			keys[i], targets[i] = rng.Uint32()&0xff00ff>>rng.IntN(3), rng.IntN(50)
			if _, ok := want[keys[i]]; !ok {
				want[keys[i]] = targets[i]
			}
		}
		table := newDispatchTable(1<<32-1, keys, targets)
		s := &vectorState{}
		for range 50 {
			var v laneValues
			for i := range v {
				v[i] = rng.Uint32() & 0xff00ff >> rng.IntN(3)
				if rng.IntN(2) == 0 {
					v[i] = keys[rng.IntN(n)]
				}
			}
			maybe := s.maybe(&v, table)
			for i, x := range v {
				to, ok := want[x]
				if !ok {
					to = -7
				}
				if got := table.find(x, -7); got != to || ok && maybe>>i&1 == 0 {
					t.Fatalf("%x: %d, want %d; maybe %x", x, got, to, maybe)
				}
			}
		}
	}
}

// The assembly has offsets of its own.
func TestOffsetsOfTheHeaderTable(t *testing.T) {
	var h headerTable
	for i, c := range []struct{ got, want uintptr }{
		{unsafe.Offsetof(h.regs[0].keep), 64},
		{unsafe.Offsetof(h.regs[0].mask), 72},
		{unsafe.Offsetof(h.regs[0].low), 136},
		{unsafe.Offsetof(h.regs[0].span), 200},
		{unsafe.Offsetof(h.regs[0].spans), 264},
		{unsafe.Offsetof(h.regs[0].sized), 266},
		{unsafe.Sizeof(h.regs[0]), 272},
		{unsafe.Offsetof(h.carry), 544},
		{unsafe.Offsetof(h.index), 548},
		{unsafe.Offsetof(h.variable), 552},
		{unsafe.Offsetof(h.variable.mask), 4},
		{unsafe.Offsetof(h.variable.start), 8},
		{unsafe.Offsetof(h.variable.lanes), 12},
		{unsafe.Offsetof(h.variable.bit), 16},
		{unsafe.Offsetof(h.variable.reach), 20},
		{unsafe.Offsetof(h.short), 576},
		{unsafe.Offsetof(h.flags), 580},
	} {
		if c.got != c.want {
			t.Errorf("offset %d is %d, the assembly has %d", i, c.got, c.want)
		}
	}
}

// The forms of the look-up by descriptor agree.
func TestParsedOperationsAgree(t *testing.T) {
	if !haveVectors() {
		t.Skip("this processor has no AVX-512 with VBMI")
	}
	rng := rand.New(rand.NewPCG(5, 6))
	table := new(parsedTable)
	for i := range table {
		table[i] = uint8(rng.IntN(3))
	}
	for range 2000 {
		d := make([]packet.Desc, 1+rng.IntN(300))
		for i := range d {
			d[i] = packet.Desc{
				Off: rng.Uint32(), Len: uint16(rng.Uint32()), Port: 14, L3: uint8(10 + 4*rng.IntN(4)), Flags: packet.Flags(rng.Uint32() & rng.Uint32() & rng.Uint32()),
				Proto: uint8(rng.Uint32()), Verdict: packet.Verdict(rng.Uint32()),
			}
		}
		a, b := make([]uint8, len(d)+1), make([]uint8, len(d)+1)
		left := table.find(d, a[:len(d)], make([]uint32, len(d)+16))
		left2 := table.findGo(d, b[:len(d)], make([]uint32, len(d)+16))
		if !slices.Equal(a, b) || !slices.Equal(left, left2) {
			t.Fatalf("%v\n%v\n%v\n%v", a, b, left, left2)
		}
	}
}

// The forms of an operation on 64 packets agree.
func TestVectorOperationsAgree(t *testing.T) {
	if !haveVectors() {
		t.Skip("this processor has no AVX-512 with VBMI")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	mem := make([]byte, 64*256)
	for i := range mem {
		mem[i] = byte(rng.Uint32())
	}
	for range 2000 {
		n := 1 + rng.IntN(width)
		d := make([]packet.Desc, n)
		for i := range d {
			length := rng.IntN(257)
			d[i] = packet.Desc{Off: uint32(rng.IntN(len(mem) - length + 1)), Len: uint16(length), Port: 9, L3: 7, Flags: packet.Flags(rng.Uint32())}
		}
		s, off, length := &vectorState{mem: mem}, laneValues{}, laneValues{}
		if a, b := s.describe(d), describeGo(d, &off, &length); a != b || !slices.Equal(off[:n], s.off[:n]) || length != s.length {
			t.Fatalf("describe: %x, %x\n%v\n%v", a, b, s.length, length)
		}
		var x, y, dst, dst2 laneValues
		for i := range x {
			x[i], y[i], dst[i], dst2[i] = rng.Uint32()>>rng.IntN(32), rng.Uint32(), 7, 8
		}
		c := column{at: rng.Uint32N(250), mask: 1<<(8<<rng.IntN(3)) - 1, right: uint32(rng.IntN(32)), left: uint32(rng.IntN(32))}
		if a, b := s.load(&x, &c, &dst), loadGo(mem, &off, &length, &x, &c, &dst2); a != b || dst != dst2 {
			t.Fatalf("load %+v: %x, %x\n%x\n%x", c, a, b, dst, dst2)
		}
		computeLanes(&x, &y, &c, &dst)
		computeGo(&x, &y, &c, &dst2)
		if dst != dst2 {
			t.Fatalf("compute %+v", c)
		}
		ranges := make([]rangeTest, 1+rng.IntN(4))
		for i := range ranges {
			ranges[i] = rangeTest{rng.Uint32() | rng.Uint32(), x[rng.IntN(width)], rng.Uint32() >> rng.IntN(33)}
		}
		if a, b := inRanges(&x, ranges), inRangesGo(&x, ranges); a != b {
			t.Fatalf("ranges %v: %x, %x", ranges, a, b)
		}
		for i := range x {
			x[i] &= 0xffff
		}
		ranges = append(ranges, rangeTest{0xff, 3, 9}, rangeTest{0xffffffff, x[0], 4000})
		set := newPortSet(ranges)
		if a, b, c := inSet(&x, set), inSetGo(&x, set), inRangesGo(&x, ranges); a != b || b != c {
			t.Fatalf("set %v: %x, %x, %x", ranges, a, b, c)
		}
		accepted := rng.Uint64()
		undecided := rng.Uint64() &^ accepted
		v, v2 := make([]uint8, n+1), make([]uint8, n+1)
		expand(accepted, undecided, v[:n])
		expandGo(accepted, undecided, v2[:n])
		if !slices.Equal(v, v2) {
			t.Fatalf("expand: %v, %v", v, v2)
		}
	}
}

// slow decides as decideAVX512 and decideJoinedAVX512 do, lane by lane.
func (h *headerTable) slow(pkt []byte) uint16 {
	head := make([]byte, headerLen+mostReach)
	copy(head, pkt)
	results := uint32(0)
	v := h.variable
	at := v.start + uint32(binary.LittleEndian.Uint16(head[v.at:]))&v.mask>>(h.flags&31)
	if int(at)+4 <= len(pkt) {
		results = v.bit
	}
	for n := range 2 * lanes {
		s, lane := &h.regs[n/lanes], n%lanes
		x := uint32(0)
		for i := range 4 {
			if s.keep>>(4*lane+i)&1 == 1 {
				x |= uint32(head[s.pick[4*lane+i]]) << (8 * i)
			}
		}
		if s.sized>>lane&1 == 1 {
			x = uint32(len(pkt))
		}
		if v.lanes>>n&1 == 1 {
			x = binary.LittleEndian.Uint32(head[at:])
		}
		if x&s.mask[lane]-s.low[lane] <= s.span[lane] {
			results |= 1 << n
		}
	}
	results += h.carry
	index, to := 0, 0
	for n := range 32 {
		if h.index>>n&1 == 1 {
			index |= int(results>>n&1) << to
			to++
		}
	}
	e := h.table[index]
	if int(e&0xff) <= len(pkt) {
		return e >> verdictShift
	}
	if h.joined {
		return verdictUndecided
	}
	return verdictReject
}

// Expressions for the joined lanes of a table.
const (
	getRequest = "tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0x47455420"
	mixedList  = "ip and not (host 192.168.1.1 or host 10.0.0.1) and (tcp port 80 or 443 or 8080 or udp port 53 or 123)"
)

// The lanes of the table give what the slow form gives, for packets of every length.
func TestHeaderTableAgreesWithItsSlowForm(t *testing.T) {
	for _, text := range []string{
		"tcp port 80", "host 10.0.0.1", "port 53", "tcp[13] & 2 != 0", "ip[8] > 64 or ip6[7] >= 64", "ether multicast", "udp and len > 60", "len = 70 or greater 90", getRequest,
		"tcp port 80 or 443 or 22", mixedList, "udp[8 + (udp[10] & 7):2] = 0", getRequest + " or port 53 or 80 and len > 60",
	} {
		f, err := Compile(text, LinkEthernet, Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := newHeaderTable(fusedGraph(f))
		if h == nil {
			t.Fatalf("%q has no table", text)
		}
		if !haveVectors() {
			t.Skip("this processor has no AVX-512 with VBMI")
		}
		var pkts []pkt
		for i, p := range zoo(LinkEthernet, 150) {
			data := p.data[:min(len(p.data), i%100)]
			pkts = append(pkts, pkt{data, uint32(len(data))})
		}
		b := batchOf(pkts)
		verdicts := make([]uint8, len(b.D))
		h.decide(b.Arena, b.D, nil, verdicts)
		for i, p := range pkts {
			want := h.slow(p.data)
			if h.joined && len(b.Arena.Mem)-int(b.D[i].Off) < int(h.variable.reach) {
				want = verdictUndecided
			}
			if uint16(verdicts[i]) != want {
				t.Errorf("%q, packet %d: %d, want %d: %x", text, i, verdicts[i], want, p.data)
			}
		}
	}
}

// httpPackets returns TCP packets with and without options in both headers, with a request or not, cut at every length.
func httpPackets() (pkts []pkt) {
	rng := rand.New(rand.NewPCG(21, 4))
	for i := range 1200 {
		words, data := 5+rng.IntN(11), 5+rng.IntN(2)*rng.IntN(2)
		port := func() uint16 { return []uint16{80, 443, 8080, 53, uint16(rng.Uint32())}[rng.IntN(5)] }
		head := join(make([]byte, 12), be16(typeIPv4), []byte{0x40 | byte(data), 0}, be16(0, 0, uint16(rng.IntN(2)*rng.IntN(2)*8191)),
			[]byte{64, []byte{ipTCP, ipTCP, ipUDP}[rng.IntN(3)], 0, 0}, []byte{192, 168, 1, byte(rng.IntN(3))}, []byte{10, 0, 0, byte(rng.IntN(3))}, make([]byte, 4*(data-5)))
		tcp := join(be16(port(), port()), make([]byte, 8), []byte{byte(words << 4), 2}, make([]byte, 6+4*(words-5)))
		b := join(head, tcp, []byte([]string{"GET /x", "POST /", "GEX /x", "\x00\x00\x00\x00\x00"}[rng.IntN(4)]))
		if i%2 == 0 {
			b = b[:min(len(b), 14+rng.IntN(len(b)))]
		}
		pkts = append(pkts, pkt{b, uint32(len(b))})
	}
	return pkts
}

// pairsOf gives each of some tests a port of its own.
func pairsOf(tests ...string) string {
	ports := []string{"80", "443", "8080", "53"}
	for i, test := range tests {
		tests[i] = "(" + test + " and port " + ports[i%len(ports)] + ")"
	}
	return strings.Join(tests, " or ")
}

// alternating tests for one thing after the other: the first that holds decides, the odd ones accept and the even ones reject.
func alternating(tests ...string) string {
	text := "port 80"
	for i, test := range slices.Backward(tests) {
		if i%2 == 0 {
			text = test + " or (" + text + ")"
		} else {
			text = "not " + test + " and (" + text + ")"
		}
	}
	return text
}

// Joined lanes and tables of pairs decide as Match does, whatever the packets end with.
func TestJoinedLanesDecideAsMatch(t *testing.T) {
	const at = "tcp[((tcp[12:1] & 0xf0) >> 2):"
	pkts, shapes := httpPackets(), 0
	bare, parsed := batchOf(pkts), headerPass(t, batchOf(pkts), 0)
	for _, text := range []string{
		getRequest, mixedList, getRequest + " or " + at + "4] = 0x504f5354", at + "1] = 0x47 and port 80", at + "2] = 0x4745 or port 443 or 80",
		at + "4] > 0x47000000", at + "4] & 0xff00 != 0", "not " + getRequest, "tcp[4 + ((tcp[12] & 0xf0) >> 2):1] = 0x2f",
		"udp[8 + (udp[12] & 0xf0):2] = 0", "ether[ether[16] + 20:1] = 0x40", "ether[(ether[46] & 0xf0) << 1:2] = 0", "tcp port 80 or 443",
		getRequest + " and tcp[(tcp[12] & 0xf0) >> 3:1] = 0", "port 80 or 443 or 8080 or 53 and " + getRequest,
		"(tcp port 80 or 443 or 8080 or 53 or 22 or 25 or 110) and " + getRequest, "host 192.168.1.1 or 10.0.0.2 or len = 60 or " + getRequest,
		"tcp[0:2] = 80 or " + getRequest, getRequest + " or tcp[0:2] = 80", at + "1] < 0x48", "ether[62:4] = 0", "ether[63:1] = 0 or ether[64:1] = 0",
		pairsOf("dst net 10.0.0.0/24", "dst host 10.0.0.1", "dst host 10.0.0.2", "dst net 10.0.0.0/30", "dst host 10.0.0.0", "dst net 10.0/16", "dst net 10.0.0.2/31"),
		pairsOf("dst host 10.0.0.1", "dst host 10.0.0.2", "dst host 10.0.0.9", "dst host 10.0.0.8", "dst host 10.0.0.7", "dst host 10.0.0.6", "dst net 10.0.0/24"),
		pairsOf("ip[19] = 0", "ip[19] = 7", "ip[19] = 8", "ip[19] = 9", "ip[19] = 10", "ip[19] = 11", "ip[19] > 0"),
		pairsOf("dst host 10.0.0.9", "dst host 10.0.0.8", "dst host 10.0.0.7", "dst host 10.0.0.6", "dst host 10.0.0.5", "dst host 10.0.0.4", "dst net 10.0.0.0/30"),
		alternating("ip[19] & 3 = 1", "ip[19] & 5 = 4", "ip[19] & 9 = 8", "ip[19] & 12 = 12", "ip[19] & 6 = 2", "ip[19] & 10 = 10", "ip[19] & 3 = 3"),
		alternating("ip[19] = 5", "ip[19] = 6", "ip[19] & 1 = 1", "ip[19] = 7", "ip[19] = 8", "ip[19] = 9", "ip[19] = 2", "ip[19] = 4"),
		alternating("ip[19] = 0", "ip[19] = 6", "ip[19] = 1", "ip[19] = 7", "ip[19] = 8", "ip[19] = 9", "ip[19] = 2", "ip[19] = 4"),
		"ether[15:1] = 9 or ether[ether[16] + 3:1] = 0", "ether[15:1] = 9 or ether[ether[16] + 20:1] = 0x40", "ether[ether[16] + 20:1] = 0x40 or ether[15:1] = 9",
		"ether[23:1] = 17 or ether[ether[16] + 20:1] = 0x40 or ether[15:1] = 9", "ether[ether[16] + 23:1] = 6 or ether[23:1] = 17",
		"tcp and (tcp[0:2] = 80 or " + getRequest + ")", "tcp and (" + getRequest + " or tcp[0:2] = 80)", "tcp[0:4] = 0x00500035 or " + getRequest,
		"tcp and (tcp[0:2] = 80 or " + getRequest + " or tcp[2:2] = 443)", "tcp and (" + getRequest + " or tcp[0:2] = 80 or tcp[2:2] = 443)", // a packet that ends before the request rejects
		"tcp dst port 80 or 443 and (ip[8] = 64 or ip[14] = 1 or " + getRequest + ")",
	} {
		f, err := Compile(text, LinkEthernet, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := make([]bool, len(pkts))
		for i, p := range pkts {
			want[i] = f.Match(p.data, int(p.len))
		}
		if h := newHeaderTable(fusedGraph(f)); h != nil {
			if h.joined {
				shapes++
			}
			for i, p := range pkts { // whatever the processor
				if v := h.slow(p.data); v != verdictUndecided && (v != verdictReject) != want[i] {
					t.Fatalf("%q, packet %d: %d, want %v: %x", text, i, v, want[i], p.data)
				}
			}
		}
		for _, form := range forms {
			m := form.of(f)
			if m == nil {
				continue
			}
			for _, b := range []*packet.Batch{bare, parsed} {
				checkVerdicts(t, form.name, f, m.Match(b), pkts, want)
			}
		}
	}
	if shapes < 12 {
		t.Errorf("%d tables have joined lanes", shapes)
	}
}

// A field that may lie far behind a packet is read only where there is memory.
func TestFarFieldAtTheEndOfMemory(t *testing.T) {
	f, err := Compile("ether[ether[16] + ether[14]:4] = 7 or ether[(ether[16] << 2) + 200:4] = 7", LinkEthernet, Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := Compile("ether[(ether[16] << 2) + 200:4] = 7", LinkEthernet, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if h := newHeaderTable(fusedGraph(f)); h != nil {
		t.Error("a sum of two bytes has a table")
	}
	h := newHeaderTable(fusedGraph(g))
	if h == nil {
		t.Fatal("no table")
	}
	if last := h.variable.start + h.variable.mask>>(h.flags&31) + 4; h.variable.reach < last {
		t.Errorf("%d bytes may be read, up to %d are", h.variable.reach, last)
	}
}

func TestMatcherDoesNotAllocate(t *testing.T) {
	b := batchOf(zoo(LinkEthernet, 256))
	for _, text := range []string{"tcp port 80", "vxlan and tcp", "len > 100", "ip6", "", "port 1 or 2 or 3 or 4 or 5 or 6 or 7 or 8 or 9 or 10"} {
		f, err := Compile(text, LinkEthernet, Options{})
		if err != nil {
			t.Fatal(err)
		}
		m := f.NewMatcher()
		m.Match(b)
		if n := testing.AllocsPerRun(10, func() { m.Match(b) }); n != 0 {
			t.Errorf("%q: %v allocations", text, n)
		}
	}
}

func BenchmarkMatcher(b *testing.B) {
	pkts := zoo(LinkEthernet, 256)
	if dir := os.Getenv("MILLRACE_PCAPS"); dir != "" {
		pkts = readCaptures(&testing.T{}, captureFiles(&testing.T{}, dir))[LinkEthernet][:256]
	}
	batch := batchOf(pkts)
	for _, text := range []string{"ip6", "tcp port 80", "host 192.168.1.1", "port 53", "tcp[13] & 3 != 0", "len > 100 and tcp"} {
		f, err := Compile(text, LinkEthernet, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(strings.ReplaceAll(text, " ", "_"), func(b *testing.B) {
			m := f.NewMatcher()
			for b.Loop() {
				m.Match(batch)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(batch.D)), "ns/packet")
		})
	}
}

// A tree whose common tests are made once decides as the tree that the parser's syntax gives.
func TestFactorKeepsTheMeaning(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	pkts := zoo(LinkEthernet, 250)
	opts := &Options{Names: testNames}
	fixed := []string{
		"(ip and tcp[0] = 0) or (len > 60 and ip) or (ip and udp)", "(tcp port 80 and udp[40] = 1) or ip or (tcp port 80 and ip[8] > 3)",
		"(vxlan and ip) or (vlan and ip) or (vlan and tcp)", "not tcp port 80 and not udp port 53 and not tcp port 22",
	}
	for rows := 0; rows < 400; rows++ {
		g := generator{rng, LinkEthernet}
		text := g.expression(3)
		if rows < len(fixed) {
			text = fixed[rows]
		} else if rows%2 == 0 {
			text = g.longList()
		}
		n, err := parse(text)
		if err != nil {
			continue
		}
		tree, err := lower(n, LinkEthernet, opts)
		if err != nil {
			continue
		}
		plain, factored := build(tree), build(factor(tree))
		for i, p := range pkts {
			data := p.data[:min(len(p.data), 20+i)]
			if a, b := plain.run(data, p.len), factored.run(data, p.len); a != b {
				t.Fatalf("%q, packet %d: %v, factored %v\n%x", text, i, a, b, data)
			}
		}
	}
}

// Tests of one field with different masks are not joined: neither the two ends of a range, nor the keys of a table.
func TestTestsWithOtherMasksAreNotJoined(t *testing.T) {
	var pkts []pkt
	for _, p := range zoo(LinkEthernet, 400) {
		if len(p.data) > 22 && p.data[12] == 8 && p.data[13] == 0 {
			pkts = append(pkts, p)
		}
	}
	for i := range pkts {
		pkts[i].data[22] = byte(i)              // the time to live
		pkts[i].len = uint32(len(pkts[i].data)) // a batch has whole packets
	}
	if len(pkts) < 40 {
		t.Fatalf("%d packets of IPv4", len(pkts))
	}
	b := batchOf(pkts)
	for _, text := range []string{
		"ip[8] & 0xf >= 3 and ip[8] & 0xf0 <= 0x10", "ip[8] & 0xf0 <= 0x10 and ip[8] & 0xf >= 3", "ip[8] & 0xf >= 3 and ip[8] <= 20",
		alternating("ip[8] = 5", "ip[8] = 6", "ip[8] & 1 = 1", "ip[8] = 7", "ip[8] = 8", "ip[8] = 9", "ip[8] = 2", "ip[8] = 4"),
		alternating("ip[8] & 7 = 5", "ip[8] = 6", "ip[8] & 3 = 1", "ip[8] = 7", "ip[8] = 8", "ip[8] = 9", "ip[8] = 2", "ip[8] = 4"),
	} {
		f, err := Compile(text, LinkEthernet, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want, matched := make([]bool, len(pkts)), 0
		for i, p := range pkts {
			if want[i] = f.Match(p.data, int(p.len)); want[i] {
				matched++
			}
		}
		if matched == 0 || matched == len(pkts) {
			t.Errorf("%q decides nothing", text)
		}
		for _, form := range forms {
			if m := form.of(f); m != nil {
				checkVerdicts(t, form.name, f, m.Match(b), pkts, want)
			}
		}
	}
}
