package numeric

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// value returns the value of a binary16 by the definition of the format. It must be finite.
func value(h uint16, exponentBits int) float64 {
	fractionBits := 15 - exponentBits
	exponent, fraction := int(h>>fractionBits)&(1<<exponentBits-1), float64(h&(1<<fractionBits-1))
	bias := 1<<(exponentBits-1) - 1
	v := math.Ldexp(fraction, 1-bias-fractionBits)
	if exponent > 0 {
		v = math.Ldexp(fraction+math.Ldexp(1, fractionBits), exponent-bias-fractionBits)
	}
	if h&0x8000 != 0 {
		return -v
	}
	return v
}

func TestAllHalvesAndBrainsAreExact(t *testing.T) {
	for i := range 1 << 16 {
		h, b := Half(i), Brain(i)
		if i>>10&0x1f != 0x1f {
			if got := float64(h.Float32()); got != value(uint16(i), 5) || math.Signbit(got) != (i&0x8000 != 0) {
				t.Fatalf("binary16 %#x is %v, want %v", i, got, value(uint16(i), 5))
			}
			if HalfOf(h.Float32()) != h {
				t.Fatalf("binary16 %#x becomes %#x", i, HalfOf(h.Float32()))
			}
		} else if f := h.Float32(); i&0x3ff == 0 && (!math.IsInf(float64(f), 0) || HalfOf(f) != h) || i&0x3ff != 0 && (f == f || HalfOf(f).Float32() == HalfOf(f).Float32()) {
			t.Fatalf("binary16 %#x is %v", i, f)
		}
		if i>>7&0xff != 0xff {
			if got := float64(b.Float32()); got != value(uint16(i), 8) || BrainOf(b.Float32()) != b {
				t.Fatalf("bfloat16 %#x is %v", i, got)
			}
		} else if f := b.Float32(); i&0x7f == 0 && !math.IsInf(float64(f), 0) || i&0x7f != 0 && BrainOf(f).Float32() == BrainOf(f).Float32() {
			t.Fatalf("bfloat16 %#x is %v", i, f)
		}
	}
}

// nearest finds the finite value of a format nearest to f by search, ties to even; beyond is infinity.
func nearest(f float32, exponentBits int) uint16 {
	x := math.Abs(float64(f))
	last := uint16(1<<15-1) &^ (1<<(15-exponentBits) - 1) // infinity
	lo, hi := uint16(0), last
	for lo < hi { // the largest finite value that is at most x
		mid := (lo + hi + 1) / 2
		if mid < last && value(mid, exponentBits) <= x {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	up := math.Ldexp(1, 1<<(exponentBits-1)) // what infinity would be as a number
	if lo+1 < last {
		up = value(lo+1, exponentBits)
	}
	below, above := new(big.Float).Sub(big.NewFloat(x), big.NewFloat(value(lo, exponentBits))), new(big.Float).Sub(big.NewFloat(up), big.NewFloat(x))
	if c := below.Cmp(above); c > 0 || c == 0 && lo&1 == 1 {
		lo++
	}
	if math.Signbit(float64(f)) {
		lo |= 0x8000
	}
	return lo
}

func TestRoundingIsToNearestEven(t *testing.T) {
	check := func(f float32) {
		t.Helper()
		if f != f {
			return
		}
		if got, want := HalfOf(f), Half(nearest(f, 5)); got != want {
			t.Fatalf("binary16 of %g (%#x) is %#x, want %#x", f, math.Float32bits(f), got, want)
		}
		if got, want := BrainOf(f), Brain(nearest(f, 8)); got != want {
			t.Fatalf("bfloat16 of %g (%#x) is %#x, want %#x", f, math.Float32bits(f), got, want)
		}
	}
	for i := range 1 << 15 { // each midpoint of neighbours, and the floats beside it
		for _, mid := range []uint32{math.Float32bits(float32((value(uint16(i), 5) + value(uint16(min(i+1, 0x7bff)), 5)) / 2)), uint32(i)<<16 | 0x8000} {
			if mid < 0x7f800000 {
				for d := range uint32(3) {
					check(math.Float32frombits(mid + d - 1))
					check(-math.Float32frombits(mid + d - 1))
				}
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100000 {
		check(math.Float32frombits(r.Uint32()))
	}
	for _, f := range []float32{65504, 65519.996, 65520, math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1))} {
		check(f)
	}
}

// slow applies a reduction to two values as int64 wrapped to the type.
func slow(a, b int64, op Op) int64 {
	switch op {
	case Prod:
		return a * b
	case Min:
		return min(a, b)
	case Max:
		return max(a, b)
	}
	return a + b
}

func testInteger[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, op := range Ops {
		for n := range 40 {
			a, b, want := make([]T, n), make([]T, n), make([]T, n)
			for i := range n {
				a[i], b[i] = T(r.Uint64()), T(r.Uint64())
				want[i] = T(slow(int64(a[i]), int64(b[i]), op))
			}
			Reduce(Bytes(a), Bytes(b), TypeOf[T](), op)
			for i := range n {
				if a[i] != want[i] {
					t.Fatalf("%v %v: element %d of %d is %v, want %v", TypeOf[T](), op, i, n, a[i], want[i])
				}
			}
			Divide(Bytes(a), TypeOf[T](), 300)
			for i := range n {
				if a[i] != T(int64(want[i])/300) {
					t.Fatalf("%v: %v divided by 300 is %v", TypeOf[T](), want[i], a[i])
				}
			}
		}
	}
}

func TestIntegersWrap(t *testing.T) {
	testInteger[int8](t)
	testInteger[int16](t)
	testInteger[int32](t)
	testInteger[int64](t)
	testInteger[uint8](t)
	testInteger[uint16](t)
	testInteger[uint32](t)
	a := []uint64{math.MaxUint64, 5, 9}
	Reduce(Bytes(a), Bytes([]uint64{2, 7, 3}), Uint64, Sum)
	Divide(Bytes(a), Uint64, 4)
	if a[0] != 0 || a[1] != 3 || a[2] != 3 {
		t.Error(a)
	}
	a = []uint64{math.MaxUint64, 5, 9}
	Reduce(Bytes(a), Bytes([]uint64{2, 7, 3}), Uint64, Max)
	if a[0] != math.MaxUint64 || a[1] != 7 || a[2] != 9 {
		t.Error(a)
	}
}

func testFloat[T Element](t *testing.T, to func(float64) T, from func(T) float64) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, op := range Ops {
		a, b, want := make([]T, 21), make([]T, 21), make([]T, 21)
		for i := range a {
			a[i], b[i] = to(r.NormFloat64()), to(r.NormFloat64())
			x, y := from(a[i]), from(b[i])
			switch op {
			case Sum, Avg:
				x += y
			case Prod:
				x *= y
			case Min:
				x = math.Min(x, y)
			case Max:
				x = math.Max(x, y)
			}
			want[i] = to(x)
		}
		Reduce(Bytes(a), Bytes(b), TypeOf[T](), op)
		for i := range a {
			if a[i] != want[i] {
				t.Fatalf("%v %v: %v, want %v", TypeOf[T](), op, from(a[i]), from(want[i]))
			}
		}
		Divide(Bytes(a), TypeOf[T](), 3)
		for i := range a {
			if a[i] != to(from(want[i])/3) {
				t.Fatalf("%v: a third of %v is %v", TypeOf[T](), from(want[i]), from(a[i]))
			}
		}
		nan := []T{to(math.NaN()), to(1)}
		Reduce(Bytes(nan), Bytes([]T{to(1), to(math.NaN())}), TypeOf[T](), op)
		if !math.IsNaN(from(nan[0])) || !math.IsNaN(from(nan[1])) {
			t.Errorf("%v %v of NaN and 1 is %v", TypeOf[T](), op, nan)
		}
	}
}

func TestFloatsRoundOnce(t *testing.T) {
	testFloat(t, func(f float64) float64 { return f }, func(f float64) float64 { return f })
	testFloat(t, func(f float64) float32 { return float32(f) }, func(f float32) float64 { return float64(f) })
	testFloat(t, func(f float64) Half { return HalfOf(float32(f)) }, func(h Half) float64 { return float64(h.Float32()) })
	testFloat(t, func(f float64) Brain { return BrainOf(float32(f)) }, func(b Brain) float64 { return float64(b.Float32()) })
}

func TestNames(t *testing.T) {
	for _, typ := range Types {
		if got, err := ParseType(typ.String()); got != typ || err != nil {
			t.Errorf("%v: %v, %v", typ, got, err)
		}
	}
	for _, op := range Ops {
		if got, err := ParseOp(op.String()); got != op || err != nil {
			t.Errorf("%v: %v, %v", op, got, err)
		}
	}
	if _, err := ParseType("int3"); err == nil || Type(0).Valid() || Type(77).Valid() || Op(0).Valid() || Op(9).Valid() {
		t.Error("unknown names pass")
	}
	if _, err := ParseOp("xor"); err == nil {
		t.Error("xor passes")
	}
}

func BenchmarkSum(b *testing.B) {
	for _, t := range []Type{Float32, BFloat16, Float16, Int8} {
		b.Run(t.String(), func(b *testing.B) {
			x, y := make([]float64, 16<<10), make([]float64, 16<<10)
			b.SetBytes(int64(len(x) * 8))
			for b.Loop() {
				Reduce(Bytes(x), Bytes(y), t, Sum)
			}
		})
	}
}
