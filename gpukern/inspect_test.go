package gpukern_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
)

func TestLiteralsAgreeWithTheReference(t *testing.T) {
	matches, over := 0, 0
	for seed := range uint64(60) {
		g := kernref.NewGenerator(seed)
		l := kernref.Lists{Literals: g.Patterns(1 + g.IntN(60)), MatchLimit: g.IntN(8)}
		c := NewCPU(Config{Ops: OpLiterals, Tables: compile(t, l), MatchLimit: l.MatchLimit})
		for _, n := range []int{0, 1, 100, tuple.ChunkSize + 1} {
			b := g.Batch(n)
			g.Plant(b, l.Literals)
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

// TestStreamsFollowTheFlowTable runs flows through the engine's own table, which both sides share.
func TestStreamsFollowTheFlowTable(t *testing.T) {
	for seed := range uint64(10) {
		g := kernref.NewGenerator(seed)
		l := kernref.Lists{Literals: g.Patterns(40), Flows: &kernref.Flows{Idle: flow.MaxIdle}, Streams: map[string][]byte{}}
		table := newFlows(t, flow.Config{Flows: 2000, Idle: flow.MaxIdle})
		c := NewCPU(Config{
			Ops: OpFlow | OpLiterals, Tables: compile(t, l), Flows: table, Streams: newStreams(t, int(table.Slots())),
		})
		s := newSlots(l.Flows)
		hosts := g.Batch(20)
		for range 4 {
			var packets [][][]byte
			for range 150 {
				p := bytes.Clone(hosts.Bytes(g.IntN(len(hosts.D))))
				if g.Chance(60) {
					p = udp(byte(1+g.IntN(3)), byte(1+g.IntN(3)), 53, g.Letters(g.IntN(40)))
				}
				packets = append(packets, g.Split(p))
			}
			b := kernref.BatchOf(packets...)
			g.Plant(b, l.Literals)
			ref := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
			saved := kernref.Lists{Literals: l.Literals, Flows: &kernref.Flows{Idle: flow.MaxIdle}, Streams: l.Streams}
			kernref.Reference(ref, c.Info().Ops, saved)
			agreeFlows(t, b, c, kernref.Lists{Literals: l.Literals, Flows: l.Flows}, s)
			if d := cmp.Diff(b.Matches, ref.Matches, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("seed %d: engine -, reference +:\n%s", seed, d)
			}
		}
	}
}

// inspected returns what the inspector finds in b, which the header pass has been over.
func inspected(b *packet.Batch, c *CPU) []packet.Match {
	c.Inspect(b)
	return b.Matches
}

// agreeOnStreams compares both over b.
func agreeOnStreams(t testing.TB, b *packet.Batch, c *CPU, l kernref.Lists) {
	t.Helper()
	want := kernref.Literals(b, l)
	if d := cmp.Diff(inspected(b, c), want, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("engine -, reference +:\n%s", d)
	}
}

// streaming returns an engine that follows streams, after its header pass, and the lists to compare with.
func streaming(t testing.TB, all kernref.Patterns, limit int) (*CPU, kernref.Lists) {
	t.Helper()
	l := kernref.Lists{Literals: all, MatchLimit: limit, Streams: map[string][]byte{}}
	c := NewCPU(Config{Ops: OpLiterals | OpFlow, Tables: compile(t, l), MatchLimit: limit, Streams: newStreams(t, 64)})
	return c, l
}

// TestAStreamCutAnywhere cuts a text at every two places and sends the pieces as packets.
func TestALiteralIsFoundWhereverItsStreamIsCut(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789abcdef"), 4)
	all := kernref.Patterns{{Bytes: long, Rule: 1}, {Bytes: []byte("abc"), Rule: 2}, {Bytes: []byte("CDEF0123"), Rule: 3, NoCase: true}}
	text := slices.Concat([]byte("xyz"), long, []byte("abcdef0123"))
	c, l := streaming(t, all, 0)
	for a := range len(text) + 1 {
		for z := a; z <= len(text); z += 1 + a%3 {
			b := inFlow(t, []uint32{2, 2, 2}, udp(1, 2, 9, text[:a]), udp(1, 2, 9, text[a:z]), udp(1, 2, 9, text[z:]))
			agreeOnStreams(t, b, c, l)
			if len(b.Matches) != 10 {
				t.Fatalf("cut at %d and %d: %v", a, z, b.Matches)
			}
			c.ForgetStreams()
			clear(l.Streams)
		}
	}
}

// flowOf gives every direction a flow: the same for packets of one, whatever else they have.
func flowOf(b *packet.Batch, flows map[string]uint32) {
	for i := 0; i < len(b.D); {
		captured, all, next := kernref.WholePacket(b, i)
		key := kernref.Stream(captured, all)
		if flows[key] == 0 {
			flows[key] = uint32(2 + len(flows))
		}
		b.D[i].Flow = flows[key]
		i = next
	}
}

func TestStreamsAgreeWithTheReference(t *testing.T) {
	for seed := range uint64(40) {
		g := kernref.NewGenerator(seed)
		c, l := streaming(t, g.Patterns(30), g.IntN(20))
		flows := map[string]uint32{}
		var hosts [6][]byte // packets of few flows
		for i := range hosts {
			hosts[i] = g.Packet()
		}
		for range 5 {
			var packets [][][]byte
			for range 100 {
				p := bytes.Clone(hosts[g.IntN(len(hosts))])
				if g.Chance(50) {
					p = udp(byte(1+g.IntN(3)), 9, 7, g.Letters(g.IntN(40)))
				}
				packets = append(packets, g.Split(p))
			}
			b := kernref.BatchOf(packets...)
			g.Plant(b, l.Literals)
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
	c, l := streaming(t, kernref.Patterns{{Bytes: []byte("abc"), Rule: 1}}, 0)
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
	if err := c.Load(compile(t, l)); err != nil {
		t.Fatal(err)
	}
	if m := send("cabc"); !slices.Equal(m, []packet.Match{{Rule: 1, End: 43}, {Rule: 1, End: 46}}) {
		t.Fatalf("found %v", m)
	}
}

func TestWithoutOpFlowPacketsAreTextsOfTheirOwn(t *testing.T) {
	l := kernref.Lists{Literals: kernref.Patterns{{Bytes: []byte("abc"), Rule: 1}}}
	c := NewCPU(Config{Ops: OpLiterals, Tables: compile(t, l), Streams: newStreams(t, 4)})
	b := inFlow(t, []uint32{2, 2}, udp(1, 2, 9, []byte("ab")), udp(1, 2, 9, []byte("c")))
	if err := c.Submit(b); err != nil || len(b.Matches) != 0 {
		t.Errorf("%v, %v", err, b.Matches)
	}
}

func TestTheLimitCountsTheMatchesOfAPacket(t *testing.T) {
	all := kernref.Patterns{{Bytes: []byte("aaa"), Rule: 7}, {Bytes: []byte("aaaa"), Rule: 3}}
	l := kernref.Lists{Literals: all}
	p := udp(1, 2, 9, bytes.Repeat([]byte("a"), 300))
	for limit, want := range map[int]int{0: 16, -1: 16, 1: 1, 2: 2, 100: 100, 255: 255, 256: 255, 1000: 255} {
		l.MatchLimit = limit
		c := NewCPU(Config{Ops: OpLiterals, Tables: compile(t, l), MatchLimit: limit})
		for _, pieces := range [][][]byte{{p}, {p[:46], p[46:]}, {p[:60], p[60:61], p[61:]}} {
			b := kernref.BatchOf(pieces, kernref.One(udp(1, 2, 9, []byte("aaa"))))
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
		b := kernref.BatchOf(kernref.One(udp(1, 2, 9, []byte("abc"))))
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
	g := kernref.NewGenerator(3)
	c, l := streaming(t, g.Patterns(50), 0)
	b := g.Batch(500)
	g.Plant(b, l.Literals)
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
	g := kernref.NewGenerator(5)
	all := g.Patterns(40)
	for range 20 {
		p := udp(1, 2, 9, slices.Concat(g.Near(all), g.Near(all), g.Letters(30)))
		q := udp(1, 2, 9, slices.Concat(g.Letters(30), g.Near(all)))
		f.Add(fuzzInput(g.Split(p), g.Split(q)), byte(g.IntN(6)))
	}
	tables := compile(f, kernref.Lists{Literals: all})
	streams := newStreams(f, 1000)
	f.Fuzz(func(t *testing.T, data []byte, limit byte) {
		b := fuzzBatch(data)
		l := kernref.Lists{Literals: all, MatchLimit: int(limit), Streams: map[string][]byte{}}
		c := NewCPU(Config{Ops: OpLiterals | OpFlow, Tables: tables, MatchLimit: int(limit), Streams: streams})
		if err := NewCPU(Config{Ops: OpParse}).Submit(b); err != nil {
			t.Fatal(err)
		}
		flowOf(b, map[string]uint32{})
		streams.Forget(len(b.D) + 1)
		agreeOnStreams(t, b, c, l)
	})
}

func ExampleStreamWindows() {
	b := kernref.BatchOf(kernref.One(udp(1, 2, 9, []byte("one"))), kernref.One(udp(1, 2, 9, []byte("two"))))
	if err := NewCPU(Config{Ops: OpParse}).Submit(b); err != nil {
		panic(err)
	}
	var t StreamWindows
	for t.Begin(b, nil); t.Next(); {
		fmt.Printf("descriptor %d, offset %d: %s\n", t.D, t.From, t.Bytes)
	}
	// Output:
	// descriptor 0, offset 42: one
	// descriptor 1, offset 42: two
}
