package wire

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// forms are the ways to sum that this machine has; every one is compared with SumPlain.
var forms = map[string]func([]byte, uint32) uint32{"Sum": Sum, "generic": sumGeneric}

func TestSumExampleOfRFC1071(t *testing.T) {
	b := []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}
	for name, sum := range forms {
		if got := sum(b, 0); got != 0xddf2 {
			t.Errorf("%s = %#x, want 0xddf2 (RFC 1071 3)", name, got)
		}
	}
}

// patterns fill a buffer with what makes carries: all of them, none, single bits at the ends of words.
var patterns = map[string]func([]byte){
	"random":    func(b []byte) { fillRandom(b, 1) },
	"ones":      func(b []byte) { fill(b, 0xff) },
	"zeros":     func(b []byte) { fill(b, 0) },
	"high bits": func(b []byte) { fill(b, 0x80) },
	"low bits":  func(b []byte) { fill(b, 0x01) },
	"0x8000":    func(b []byte) { fill(b, 0x80, 0x00) },
	"0x0080":    func(b []byte) { fill(b, 0x00, 0x80) },
	"0x7fff":    func(b []byte) { fill(b, 0x7f, 0xff) },
	"0xff7f":    func(b []byte) { fill(b, 0xff, 0x7f) },
	"carry run": func(b []byte) { fill(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0) },
	"minus one": func(b []byte) { fill(b, 0xff, 0xfe) },
	"last only": func(b []byte) {
		clear(b)
		if len(b) > 0 {
			b[len(b)-1] = 1
		}
	},
}

func fill(b []byte, p ...byte) {
	for i := range b {
		b[i] = p[i%len(p)]
	}
}

func fillRandom(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func TestEveryFormSumsAsThePlainOne(t *testing.T) {
	const most = 4096
	mem := make([]byte, most+64+64)
	for pattern, set := range patterns {
		for n := 0; n <= most; n++ {
			fill(mem, 0xa5) // what a form reads beyond its end shows
			at := (n*7 + n>>6) % 64
			b := mem[at : at+n : at+n]
			set(b)
			acc := uint32(n) * 0x9e3779b1
			checkForms(t, b, acc, fmt.Sprintf("%s, %d bytes at alignment %d", pattern, n, at))
		}
	}
}

// TestEveryFormSumsAtEveryAlignment takes every length at every alignment to a cache line. The plain sum of
// a length goes on from that of the even one before.
func TestEveryFormSumsAtEveryAlignment(t *testing.T) {
	const most = 4096
	mem := make([]byte, 64+most)
	fillRandom(mem, 2)
	for at := range 64 {
		b := mem[at:]
		even := uint32(0)
		for n := 0; n <= most; n++ {
			want := SumPlain(b[n&^1:n], even)
			if n&1 != 0 {
				even = SumPlain(b[n&^1:n+1], even)
			}
			for name, sum := range forms {
				if got := sum(b[:n:n], 0); got != want {
					t.Fatalf("%d bytes at alignment %d: %s = %#x, want %#x", n, at, name, got, want)
				}
			}
		}
	}
}

func TestEveryFormSumsLongBytes(t *testing.T) {
	b := make([]byte, 1<<18+3)
	for _, set := range []string{"ones", "random", "0x8000", "0x7fff"} {
		patterns[set](b)
		for _, n := range []int{9000, 65535, 65536, 65537, 1<<17 - 1, 1 << 17, len(b)} {
			checkForms(t, b[:n], 0xffff, fmt.Sprintf("%s, %d bytes", set, n))
		}
	}
}

func checkForms(t *testing.T, b []byte, acc uint32, what string) {
	t.Helper()
	want := SumPlain(b, acc)
	for name, sum := range forms {
		if got := sum(b, acc); got != want {
			t.Fatalf("%s: %s(acc %#x) = %#x, want %#x", what, name, acc, got, want)
		}
	}
}

func TestPlainSumIsTheIntegerSumWithCarriesFolded(t *testing.T) {
	b := make([]byte, 777)
	fillRandom(b, 3)
	var n uint64
	for i, v := range b {
		n += uint64(v) << (8 * (1 - i&1))
	}
	want := uint32(n % 0xffff) // never 0 for these bytes
	if got := SumPlain(b, 0); got != want {
		t.Fatalf("SumPlain = %#x, want %#x", got, want)
	}
}

func TestSumIsZeroOnlyForZeros(t *testing.T) {
	for name, sum := range forms {
		if got := sum(make([]byte, 300), 0); got != 0 {
			t.Errorf("%s of zeros = %#x", name, got)
		}
		if got := sum(make([]byte, 300), 0xffff); got != 0xffff {
			t.Errorf("%s of zeros after 0xffff = %#x", name, got)
		}
	}
}

func TestSumChainsAtEvenBoundaries(t *testing.T) {
	b := make([]byte, 1501)
	fillRandom(b, 4)
	want := Sum(b, 0)
	for cut := 0; cut <= len(b); cut += 2 {
		if got := Sum(b[cut:], Sum(b[:cut], 0)); got != want {
			t.Fatalf("cut at %d: %#x, want %#x", cut, got, want)
		}
	}
}

func TestPseudoHeadersSumAsTheirBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	for range 1000 {
		var b [40]byte
		fillRandom(b[:], r.Uint64())
		proto, n := byte(r.Uint32()), r.Uint32()
		src, dst := [16]byte(b[0:16]), [16]byte(b[16:32])
		binary.BigEndian.PutUint32(b[32:], n)
		binary.BigEndian.PutUint32(b[36:], uint32(proto))
		if got, want := Sum(nil, PseudoHeader6(src, dst, proto, n)), SumPlain(b[:], 0); got != want {
			t.Fatalf("IPv6: %#x, want %#x", got, want)
		}
		got := Sum(nil, PseudoHeader4([4]byte(src[:]), [4]byte(dst[:]), proto, n))
		p := append(append(append([]byte{}, src[:4]...), dst[:4]...), b[32:40]...)
		if want := SumPlain(p, 0); got != want {
			t.Fatalf("IPv4: %#x, want %#x", got, want)
		}
	}
}

func FuzzSum(f *testing.F) {
	f.Add([]byte("\xff\xff\x00\x01"), uint32(0), uint8(1))
	f.Add(make([]byte, 257), uint32(0xffffffff), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, acc uint32, at uint8) {
		checkForms(t, b[min(int(at), len(b)):], acc, "fuzz")
	})
}

func BenchmarkSum(b *testing.B) {
	mem := make([]byte, 9000)
	fillRandom(mem, 6)
	all := map[string]func([]byte, uint32) uint32{"plain": SumPlain}
	for name, sum := range forms {
		all[name] = sum
	}
	for _, n := range []int{20, 64, 128, 256, 512, 1500, 9000} {
		for _, name := range []string{"plain", "generic", "avx2", "avx512", "Sum"} {
			sum := all[name]
			if sum == nil {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				var acc uint32
				for b.Loop() {
					acc = sum(mem[:n], acc)
				}
			})
		}
	}
}
