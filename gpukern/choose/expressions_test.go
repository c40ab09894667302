package choose

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/expression"
	"github.com/millrace/millrace/internal/testkit/hostkern"
)

// twoLetters finds "ab" and "bb" with anything in between, across pieces.
func twoLetters(t *testing.T) *expression.Set {
	t.Helper()
	one := func(c byte, to int32) expression.Inst {
		i := expression.Inst{Op: expression.Byte, X: to}
		i.Set.Add(c)
		return i
	}
	var list []expression.Pattern
	for i, s := range []string{"ab", "bb", "abba", "bab", "aaaa"} {
		var p expression.Program
		for k := range len(s) {
			p = append(p, one(s[k], int32(k)+1))
		}
		list = append(list, expression.Pattern{Program: append(p, expression.Inst{Op: expression.Match}), Rule: uint32(i + 1)})
	}
	set, err := expression.Compile(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// somePieces returns pieces of some streams, at least bytes of them.
func somePieces(set *expression.Set, seed uint64, bytes int) (pieces []expression.Piece) {
	g := rand.New(rand.NewPCG(seed, 1))
	streams := make([]*expression.Stream, 50)
	for i := range streams {
		streams[i] = set.NewStream()
	}
	for n := 0; n < bytes; {
		b := make([]byte, 1+g.IntN(700))
		for i := range b {
			b[i] = "ab...."[g.IntN(6)]
		}
		pieces, n = append(pieces, expression.Piece{Bytes: b, Stream: streams[g.IntN(50)]}), n+len(b)
	}
	return pieces
}

func TestExpressionsAreFoundAlikeByEveryKind(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	set := twoLetters(t)
	want := set.ScanPieces(somePieces(set, 1, 20000), nil)
	for _, kind := range Kinds {
		o, err := NewOpener(OpenConfig{Kind: kind, Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := o.OpenExpressions(set)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.ScanPieces(somePieces(set, 1, 20000), nil); !slices.Equal(got, want) || len(want) < 100 {
			t.Errorf("%s: %d hits, want %d", kind, len(got), len(want))
		}
		if onGPU := e.GPU > 0; onGPU != (kind == KindCUDA) || e.Cores+e.GPU < 20000 { // too little to measure for auto
			t.Errorf("%s: %d bytes by cores, %d by the GPU", kind, e.Cores, e.GPU)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAutoMeasuresExpressions has a clock by which the cores take a nanosecond for a byte, and the GPU what the case says.
func TestAutoMeasuresExpressions(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	set := twoLetters(t)
	for _, tc := range []struct {
		gpu   time.Duration
		calls []int // bytes
		onGPU []bool
	}{
		{10 * time.Microsecond, []int{1000, sampleBytes, sampleBytes, 4000}, []bool{false, true, true, true}},
		{10 * time.Microsecond, []int{sampleBytes, 1500}, []bool{true, false}}, // a fifth of its time is 2 us
		{10 * time.Millisecond, []int{sampleBytes, sampleBytes, 4000}, []bool{true, false, false}},
	} {
		o, err := NewOpener(OpenConfig{Kind: KindAuto, Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := o.OpenExpressions(set)
		if err != nil {
			t.Fatal(err)
		}
		at, asked := time.Unix(0, 0), 0
		e.now = func() time.Time { // the first two are about the cores' sample
			if asked++; asked == 2 {
				at = at.Add(sampleBytes)
			} else if asked%2 == 0 {
				at = at.Add(tc.gpu)
			}
			return at
		}
		for i, n := range tc.calls {
			before := e.GPU
			e.ScanPieces(somePieces(set, uint64(i), n), nil)
			if got := e.GPU > before; got != tc.onGPU[i] {
				t.Errorf("%v, call %d of %d bytes: on the GPU %v", tc.gpu, i, n, got)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}
