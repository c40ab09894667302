package gpukern

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/packet"
)

// patterns returns n patterns, half of them short and of few letters, so that they overlap.
func (g generator) patterns(n int) literal.Reference {
	var all literal.Reference
	for range n {
		p := literal.Pattern{NoCase: g.chance(40), Rule: uint32(1 + g.IntN(2*n))}
		switch g.IntN(3) {
		case 0:
			p.Bytes = g.bytes(3 + g.IntN(62))
		case 1:
			p.Bytes = g.letters(3 + g.IntN(3))
		case 2:
			p.Bytes = g.letters(3 + g.IntN(62))
		}
		all = append(all, p)
	}
	return all
}

// letters returns n letters of four.
func (g generator) letters(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abAB"[g.IntN(4)]
	}
	return b
}

// near returns the bytes of a pattern, sometimes one of them changed or the case of all.
func (g generator) near(all literal.Reference) []byte {
	p := bytes.Clone(all[g.IntN(len(all))].Bytes)
	switch g.IntN(4) {
	case 0:
		p[g.IntN(len(p))] ^= 1 << g.IntN(8)
	case 1:
		p = bytes.ToUpper(p)
	}
	return p
}

// plant writes patterns and what looks like them into the packets of b, behind their headers and across
// the ends of pieces.
func (g generator) plant(b *packet.Batch, all literal.Reference) {
	for i := 0; i < len(b.D) && len(all) > 0; i++ {
		for range g.IntN(4) {
			p := g.near(all)
			at := 34 + g.IntN(100)
			for d := i; d < len(b.D) && len(p) > 0; d++ {
				mem := b.Bytes(d)
				p = p[copy(mem[min(at, len(mem)):], p):]
				if at = max(at-len(mem), 0); b.D[d].Flags&packet.FlagMore == 0 {
					break
				}
			}
		}
	}
}

func TestLiteralsAgreeWithTheReference(t *testing.T) {
	matches, over := 0, 0
	for seed := range uint64(60) {
		g := newGenerator(seed)
		l := Lists{Literals: g.patterns(1 + g.IntN(60)), MatchLimit: g.IntN(8)}
		c := NewCPU(Config{Ops: OpLiterals, Tables: l.compile(t), MatchLimit: l.MatchLimit})
		for _, n := range []int{0, 1, 100, chunkSize + 1} {
			b := g.batch(n)
			g.plant(b, l.Literals)
			agree(t, b, c, l)
			for _, m := range b.Matches {
				matches++
				if m.Rule == 0 {
					over++
				}
			}
		}
	}
	if matches < 1000 || over < 100 {
		t.Errorf("%d matches, %d of them too many: too few to tell anything", matches, over)
	}
}

func TestLiteralsInTunnelsAgreeWithTheReference(t *testing.T) {
	inside := 0
	for seed := range uint64(20) {
		g := newGenerator(seed)
		l := Lists{Literals: g.patterns(40)}
		c := NewCPU(Config{Ops: OpLiterals | OpTunnel, Tables: l.compile(t)})
		b := g.tunnels(200)
		g.plant(b, l.Literals)
		agree(t, b, c, l)
		for _, m := range b.Matches {
			if b.D[m.D].Flags.Has(packet.FlagTunnel) {
				inside++
			}
		}
	}
	if inside < 200 {
		t.Errorf("%d matches in tunnels: too few to tell anything", inside)
	}
}

// TestStreamsFollowTheFlowTable runs flows through the engine's own table, which both sides share.
func TestStreamsFollowTheFlowTable(t *testing.T) {
	for seed := range uint64(10) {
		g := newGenerator(seed)
		l := Lists{Literals: g.patterns(40), Flows: &RefFlows{Idle: MaxIdle}, Streams: map[string][]byte{}}
		table := newFlows(t, FlowConfig{Flows: 2000, Idle: MaxIdle})
		c := NewCPU(Config{
			Ops: OpFlow | OpLiterals | OpTunnel, Tables: l.compile(t), Flows: table, Streams: newStreams(t, int(table.Slots())),
		})
		s := newSlots(l.Flows)
		hosts := g.tunnels(20)
		for range 4 {
			var packets [][][]byte
			for range 150 {
				p := bytes.Clone(hosts.Bytes(g.IntN(len(hosts.D))))
				if g.chance(60) {
					p = udp(byte(1+g.IntN(3)), byte(1+g.IntN(3)), 53, g.letters(g.IntN(40)))
				}
				packets = append(packets, g.split(p))
			}
			b := batchOf(packets...)
			g.plant(b, l.Literals)
			ref := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
			saved := Lists{Literals: l.Literals, Flows: &RefFlows{Idle: MaxIdle}, Streams: l.Streams}
			Reference(ref, c.ops, saved)
			agreeFlows(t, b, c, Lists{Literals: l.Literals, Flows: l.Flows}, s)
			if d := cmp.Diff(b.Matches, ref.Matches, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("seed %d: engine -, reference +:\n%s", seed, d)
			}
		}
	}
}

// inspected returns what the inspector finds in b, which the header pass has been over.
func inspected(b *packet.Batch, c *CPU) []packet.Match {
	c.find.inspect(b, c.tables.Load().Literals)
	return b.Matches
}

// refInspected returns what the reference finds in b, flows being those in the descriptors.
func refInspected(b *packet.Batch, l Lists) []packet.Match {
	ref := &packet.Batch{Arena: b.Arena, D: b.D}
	for i := 0; i < len(b.D); {
		captured, all, next := wholePacket(b, i)
		r := look(captured, all)
		if r.flags&packet.FlagMalformed != 0 {
			r.l4, r.payload = 0, 0
		}
		r.literals(ref, i, OpLiterals|OpFlow, l)
		i = next
	}
	return ref.Matches
}

// agreeOnStreams compares both over b.
func agreeOnStreams(t testing.TB, b *packet.Batch, c *CPU, l Lists) {
	t.Helper()
	want := refInspected(b, l)
	if d := cmp.Diff(inspected(b, c), want, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("engine -, reference +:\n%s", d)
	}
}

// streaming returns an engine that follows streams, after its header pass, and the lists to compare with.
func streaming(t testing.TB, all literal.Reference, limit int) (*CPU, Lists) {
	t.Helper()
	l := Lists{Literals: all, MatchLimit: limit, Streams: map[string][]byte{}}
	c := NewCPU(Config{Ops: OpLiterals | OpFlow, Tables: l.compile(t), MatchLimit: limit, Streams: newStreams(t, 64)})
	return c, l
}

// TestAStreamCutAnywhere cuts a text at every two places and sends the pieces as packets.
func TestALiteralIsFoundWhereverItsStreamIsCut(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789abcdef"), 4)
	all := literal.Reference{{Bytes: long, Rule: 1}, {Bytes: []byte("abc"), Rule: 2}, {Bytes: []byte("CDEF0123"), Rule: 3, NoCase: true}}
	text := slices.Concat([]byte("xyz"), long, []byte("abcdef0123"))
	c, l := streaming(t, all, 0)
	for a := range len(text) + 1 {
		for z := a; z <= len(text); z += 1 + a%3 {
			b := inFlow(t, []uint32{2, 2, 2}, udp(1, 2, 9, text[:a]), udp(1, 2, 9, text[a:z]), udp(1, 2, 9, text[z:]))
			agreeOnStreams(t, b, c, l)
			if len(b.Matches) != 10 {
				t.Fatalf("cut at %d and %d: %v", a, z, b.Matches)
			}
			clear(c.find.streams.of)
			clear(l.Streams)
		}
	}
}

// flowOf gives every direction a flow: the same for packets of one, whatever else they have.
func flowOf(b *packet.Batch, flows map[string]uint32) {
	for i := 0; i < len(b.D); {
		captured, all, next := wholePacket(b, i)
		key := look(captured, all).direction()
		if flows[key] == 0 {
			flows[key] = uint32(2 + len(flows))
		}
		b.D[i].Flow = flows[key]
		i = next
	}
}

func TestStreamsAgreeWithTheReference(t *testing.T) {
	for seed := range uint64(40) {
		g := newGenerator(seed)
		c, l := streaming(t, g.patterns(30), g.IntN(20))
		flows := map[string]uint32{}
		var hosts [6][]byte // packets of few flows
		for i := range hosts {
			hosts[i] = g.packet()
		}
		for range 5 {
			var packets [][][]byte
			for range 100 {
				p := bytes.Clone(hosts[g.IntN(len(hosts))])
				if g.chance(50) {
					p = udp(byte(1+g.IntN(3)), 9, 7, g.letters(g.IntN(40)))
				}
				packets = append(packets, g.split(p))
			}
			b := batchOf(packets...)
			g.plant(b, l.Literals)
			if err := NewCPU(Config{Ops: OpParse}).Submit(b); err != nil {
				t.Fatal(err)
			}
			flowOf(b, flows)
			if len(flows) > 100 {
				break // planted into headers: no room
			}
			agreeOnStreams(t, b, c, l)
		}
	}
}

func TestStreamsAreFollowedWhileThereIsNoSet(t *testing.T) {
	c, l := streaming(t, literal.Reference{{Bytes: []byte("abc"), Rule: 1}}, 0)
	send := func(word string) []packet.Match {
		return inspected(inFlow(t, []uint32{2}, udp(1, 2, 9, []byte(word))), c)
	}
	send("x")
	if err := c.Load(Tables{}); err != nil {
		t.Fatal(err)
	}
	if m := send("-ab"); len(m) != 0 {
		t.Fatalf("found without a set: %v", m)
	}
	if err := c.Load(l.compile(t)); err != nil {
		t.Fatal(err)
	}
	if m := send("cabc"); !slices.Equal(m, []packet.Match{{Rule: 1, End: 43}, {Rule: 1, End: 46}}) {
		t.Fatalf("found %v", m)
	}
}

func TestWithoutOpFlowPacketsAreTextsOfTheirOwn(t *testing.T) {
	l := Lists{Literals: literal.Reference{{Bytes: []byte("abc"), Rule: 1}}}
	c := NewCPU(Config{Ops: OpLiterals, Tables: l.compile(t), Streams: newStreams(t, 4)})
	b := inFlow(t, []uint32{2, 2}, udp(1, 2, 9, []byte("ab")), udp(1, 2, 9, []byte("c")))
	if err := c.Submit(b); err != nil || len(b.Matches) != 0 {
		t.Errorf("%v, %v", err, b.Matches)
	}
}

func TestTheLimitCountsTheMatchesOfAPacket(t *testing.T) {
	all := literal.Reference{{Bytes: []byte("aaa"), Rule: 7}, {Bytes: []byte("aaaa"), Rule: 3}}
	l := Lists{Literals: all}
	p := udp(1, 2, 9, bytes.Repeat([]byte("a"), 300))
	for limit, want := range map[int]int{0: 16, -1: 16, 1: 1, 2: 2, 100: 100, 255: 255, 256: 255, 1000: 255} {
		l.MatchLimit = limit
		c := NewCPU(Config{Ops: OpLiterals, Tables: l.compile(t), MatchLimit: limit})
		for _, pieces := range [][][]byte{{p}, {p[:46], p[46:]}, {p[:60], p[60:61], p[61:]}} {
			b := batchOf(pieces, one(udp(1, 2, 9, []byte("aaa"))))
			agree(t, b, c, l)
			n := len(b.Matches)
			if n != want+2 || b.Matches[want].Rule != 0 || b.Matches[n-1].Rule != 7 {
				t.Errorf("limit %d, %d pieces: %d matches, want %d, one too many, and one of the next packet", limit, len(pieces), n, want)
			}
		}
	}
}

func TestMatchesOfTheBatchBeforeAreForgotten(t *testing.T) {
	for _, ops := range []Ops{OpParse, OpLiterals} {
		b := batchOf(one(udp(1, 2, 9, []byte("abc"))))
		b.Matches = []packet.Match{{Rule: 9}}
		if err := NewCPU(Config{Ops: ops}).Submit(b); err != nil {
			t.Fatal(err)
		}
		if len(b.Matches) != 0 {
			t.Errorf("%v: %v", ops, b.Matches)
		}
	}
}

func TestFindingLiteralsAllocatesNothing(t *testing.T) {
	g := newGenerator(3)
	c, l := streaming(t, g.patterns(50), 0)
	b := g.batch(500)
	g.plant(b, l.Literals)
	done := make([]*packet.Batch, 4)
	if n := testing.AllocsPerRun(20, func() {
		if err := c.Submit(b); err != nil {
			t.Fatal(err)
		}
		c.Poll(done)
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
	if len(b.Matches) < 100 {
		t.Errorf("only %d matches", len(b.Matches))
	}
}

func FuzzLiterals(f *testing.F) {
	g := newGenerator(5)
	all := g.patterns(40)
	for range 20 {
		p := udp(1, 2, 9, slices.Concat(g.near(all), g.near(all), g.letters(30)))
		q := udp(1, 2, 9, slices.Concat(g.letters(30), g.near(all)))
		f.Add(fuzzInput(g.split(p), g.split(q)), byte(g.IntN(6)))
	}
	tables := Lists{Literals: all}.compile(f)
	streams := newStreams(f, 1000)
	f.Fuzz(func(t *testing.T, data []byte, limit byte) {
		b := fuzzBatch(data)
		l := Lists{Literals: all, MatchLimit: int(limit), Streams: map[string][]byte{}}
		c := NewCPU(Config{Ops: OpLiterals | OpFlow, Tables: tables, MatchLimit: int(limit), Streams: streams})
		if err := NewCPU(Config{Ops: OpParse}).Submit(b); err != nil {
			t.Fatal(err)
		}
		flowOf(b, map[string]uint32{})
		clear(streams.of[:2*(len(b.D)+2)])
		agreeOnStreams(t, b, c, l)
	})
}

func ExampleTexts() {
	b := batchOf(one(udp(1, 2, 9, []byte("one"))), one(udp(1, 2, 9, []byte("two"))))
	if err := NewCPU(Config{Ops: OpParse}).Submit(b); err != nil {
		panic(err)
	}
	var t Texts
	for t.Begin(b, nil); t.Next(); {
		fmt.Printf("descriptor %d, offset %d: %s\n", t.D, t.From, t.Bytes)
	}
	// Output:
	// descriptor 0, offset 42: one
	// descriptor 1, offset 42: two
}
