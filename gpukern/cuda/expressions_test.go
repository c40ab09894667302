package cuda

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/gpukern/expression"
)

// literalProgram is a program for a text in which a dot is any byte, a star repeats the byte before it, "^" and "$" are the
// begin and the end of the text, and "|" is the edge of a word.
func literalProgram(text string) (p expression.Program) {
	next := func() int32 { return int32(len(p)) + 1 }
	for i := 0; i < len(text); i++ {
		in := expression.Inst{Op: expression.Byte, X: next()}
		switch text[i] {
		case '^':
			in.Op = expression.Begin
		case '$':
			in.Op = expression.End
		case '|':
			in.Op = expression.WordEdge
		case '.':
			in.Set = expression.ByteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
		default:
			in.Set.Add(text[i])
		}
		if i+1 < len(text) && text[i+1] == '*' {
			i++
			p = append(p, expression.Inst{Op: expression.Split, X: next(), Y: next() + 1})
			in.X = int32(len(p)) - 1
		}
		p = append(p, in)
	}
	return append(p, expression.Inst{Op: expression.Match})
}

func expressionSet(t testing.TB, texts ...string) *expression.Set {
	t.Helper()
	var list []expression.Pattern
	for i, s := range texts {
		list = append(list, expression.Pattern{Program: literalProgram(s), Rule: uint32(i + 1)})
	}
	set, err := expression.Compile(list)
	if err != nil || len(set.Refused()) > 0 {
		t.Fatal(err, set.Refused())
	}
	return set
}

// expressionTexts are expressions of few letters, as many as n, some with a table too large for shared memory.
func expressionTexts(g *rand.Rand, n int) (all []string) {
	for i := range n {
		s := [...]string{"", "", "", "^"}[g.IntN(4)]
		for range 2 + g.IntN(5) {
			s += [...]string{"a", "b", "c", "ab", ".", "a*", "b*c"}[g.IntN(7)]
		}
		if i%5 == 0 {
			s += "$"
		}
		all = append(all, s)
	}
	all = append(all, "a...........b") // 2^12 states
	return append(all, sleepers...)
}

// sleepers are expressions whose automata sleep until a literal wakes them.
var sleepers = []string{"kqkq", "..kqab", "zkq..*ab", "kqab$", "qzqz.*kk*q", "k*zzzzq", "|kqkqz", "|zzkq"}

// randomText is dense, with matches everywhere, or long and sparse: what stands between its words wakes no automaton.
func randomText(g *rand.Rand) []byte {
	if g.IntN(2) == 0 {
		text := make([]byte, g.IntN(90))
		for k := range text {
			text[k] = "abc-"[g.IntN(4)]
		}
		return text
	}
	text := bytes.Repeat([]byte{"-a"[g.IntN(2)]}, g.IntN([...]int{700, 700, 9000}[g.IntN(3)]))
	for range g.IntN(9) {
		copy(text[g.IntN(len(text)+1):], [...]string{"kqkq", "zzkqab", "kqkqz", "zkqabab", "qzqz", "kkq", "zzzzq", "kqa", "kq", "ab", "zzz"}[g.IntN(10)])
	}
	return text
}

// expressionBed searches the same pieces on the device and on the CPU.
type expressionBed struct {
	t            *testing.T
	g            *rand.Rand
	set          *expression.Set
	e            *Expressions
	mine, theirs []*expression.Stream
	hits         int
}

func newExpressionBed(t *testing.T, d *Device, seed uint64, cfg ExpressionsConfig) *expressionBed {
	t.Helper()
	b := &expressionBed{t: t, g: rand.New(rand.NewPCG(seed, 7))}
	b.set = expressionSet(t, expressionTexts(b.g, 60)...)
	if b.set.Filtered() < 1 || b.set.Filtered() == b.set.Groups() {
		t.Fatalf("%d of %d automata are filtered", b.set.Filtered(), b.set.Groups())
	}
	b.e = must(d.NewExpressions(b.set, cfg))(t)
	t.Cleanup(func() {
		if err := b.e.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 200 {
		b.mine, b.theirs = append(b.mine, b.set.NewStream()), append(b.theirs, b.set.NewStream())
	}
	return b
}

// round searches n pieces of any streams, and compares hits and states.
func (b *expressionBed) round(n int) {
	b.t.Helper()
	pieces, others := make([]expression.Piece, n), make([]expression.Piece, n)
	over := map[int]bool{}
	for i := range pieces {
		s := b.g.IntN(len(b.mine))
		if over[s] {
			b.mine[s], b.theirs[s], over[s] = b.set.NewStream(), b.set.NewStream(), false
		}
		pieces[i] = expression.Piece{Bytes: randomText(b.g), Stream: b.mine[s], Ends: b.g.IntN(9) == 0}
		others[i] = pieces[i]
		others[i].Stream = b.theirs[s]
		over[s] = pieces[i].Ends
	}
	for s := range over {
		if over[s] {
			defer func() { b.mine[s], b.theirs[s] = b.set.NewStream(), b.set.NewStream() }()
		}
	}
	got, want := b.e.ScanPieces(pieces, nil), b.set.ScanPieces(others, nil)
	if !slices.Equal(got, want) {
		b.t.Fatalf("%d hits on the device, %d on the CPU:\n%v\n%v", len(got), len(want), got, want)
	}
	for i := range b.mine {
		if !slices.Equal(b.mine[i].Rows, b.theirs[i].Rows) || !slices.Equal(b.mine[i].Found, b.theirs[i].Found) {
			b.t.Fatalf("stream %d: the states differ", i)
		}
	}
	b.hits += len(got)
}

func TestExpressionsAlongStreams(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		b := newExpressionBed(t, d, 1, ExpressionsConfig{Bytes: 1 << 20, Streams: 256})
		for i := range 6 {
			b.round([]int{1, 7, 300}[i%3])
		}
		if b.hits < 1000 || b.e.Lost() != nil {
			t.Errorf("%d hits, %v", b.hits, b.e.Lost())
		}
	})
}

// TestExpressionsInSeveralLaunches has calls with more bytes, streams and hits than a launch has room for, and a piece that is
// larger than any.
func TestExpressionsInSeveralLaunches(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		b := newExpressionBed(t, d, 2, ExpressionsConfig{Bytes: 2048, Streams: 20, Hits: 4})
		for range 3 {
			b.round(120)
		}
		long := make([]byte, 5000)
		for i := range long {
			long[i] = "abc"[b.g.IntN(3)]
		}
		mine, theirs := b.set.NewStream(), b.set.NewStream()
		got := b.e.ScanPieces([]expression.Piece{{Bytes: []byte("ab"), Stream: mine}, {Bytes: long, Stream: mine, Ends: true}}, nil)
		want := b.set.ScanPieces([]expression.Piece{{Bytes: []byte("ab"), Stream: theirs}, {Bytes: long, Stream: theirs, Ends: true}}, nil)
		if !slices.Equal(got, want) || len(want) < 10 {
			t.Errorf("%d hits, want %d", len(got), len(want))
		}
		if b.hits < 500 || b.e.Lost() != nil {
			t.Errorf("%d hits, %v", b.hits, b.e.Lost())
		}
	})
}

// TestExpressionsOutliveTheDevice: what was on the device is searched again, and the CPU goes on.
func TestExpressionsOutliveTheDevice(t *testing.T) {
	d, drv := openFake(t)
	b := newExpressionBed(t, d, 3, ExpressionsConfig{Bytes: 1 << 20, Streams: 256})
	b.round(50)
	drv.Lose(illegalAddress)
	b.round(50)
	b.round(50)
	if b.e.Lost() == nil || b.e.Redone() != 50 {
		t.Errorf("lost: %v, %d pieces redone", b.e.Lost(), b.e.Redone())
	}
}

func TestExpressionsRefuseNoRoom(t *testing.T) {
	d, _ := openFake(t)
	set := expressionSet(t, "ab")
	for _, cfg := range []ExpressionsConfig{{Bytes: 8}, {Streams: -1}, {Hits: -1}, {Threads: 513}} {
		if e, err := d.NewExpressions(set, cfg); err == nil {
			t.Errorf("%+v: %v", cfg, errors.Join(e.Close(), errors.New("no error")))
		}
	}
	none := must(d.NewExpressions(nil, ExpressionsConfig{}))(t)
	if got := none.ScanPieces([]expression.Piece{{Bytes: []byte("ab"), Stream: new(expression.Stream)}}, nil); len(got) != 0 {
		t.Errorf("no set finds %v", got)
	}
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}
