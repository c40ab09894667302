package hpack

import (
	"bytes"
	"math/rand/v2"
	"testing"

	xhpack "golang.org/x/net/http2/hpack"
)

// words returns strings that meet codes of every length.
func words() (list []string) {
	list = []string{"", "a", "www.example.com", "no-cache", "custom-value", "\x00\xff\x16\n\r~|^", "https://www.example.com/?q=ü"}
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		b := make([]byte, n%70)
		for i := range b {
			b[i] = byte(rng.UintN(256))
			if n%3 > 0 {
				b[i] = "abcdefghijklmnopqrstuvwxyz0123456789-./:;=%"[rng.UintN(43)]
			}
		}
		list = append(list, string(b))
	}
	for c := range 256 {
		list = append(list, string([]byte{byte(c)}), string([]byte{'a', byte(c), 'b'}))
	}
	return list
}

func TestHuffmanAgainstHpack(t *testing.T) {
	for _, w := range words() {
		got, want := AppendHuffman([]byte("x"), w), xhpack.AppendHuffmanString([]byte("x"), w)
		if !bytes.Equal(got, want) {
			t.Fatalf("%q: %x, want %x", w, got, want)
		}
		if n := HuffmanLength(w); n != len(want)-1 {
			t.Fatalf("%q: length %d, want %d", w, n, len(want)-1)
		}
		back, valid := AppendDecoded([]byte("x"), got[1:])
		if !valid || string(back) != "x"+w {
			t.Fatalf("%q: decoded to %q, %v", w, back, valid)
		}
	}
}

// RFC 7541 5.2: padding has at most 7 bits, all ones; EOS is an error.
func TestHuffmanInvalid(t *testing.T) {
	for name, p := range map[string][]byte{
		"8 bits of padding":    {0x1F, 0xFF},
		"16 bits of padding":   {0xFF, 0xFF},
		"padding of zeros":     {0x18},
		"EOS":                  {0xFF, 0xFF, 0xFF, 0xFF},
		"EOS after 4 bytes":    {0x18, 0xC6, 0x31, 0x8C, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF},
		"a long code Cut":      {0xFF, 0xFE},
		"a long code Cut late": {0x1F, 0xFF, 0xFF},
	} {
		if out, valid := AppendDecoded(nil, p); valid {
			t.Errorf("%s: decoded to %q", name, out)
		}
	}
	if out, valid := AppendDecoded(nil, []byte{0x1F}); !valid || string(out) != "a" {
		t.Errorf("3 bits of padding: %q, %v", out, valid)
	}
}

func FuzzHuffman(f *testing.F) {
	for _, w := range words()[:60] {
		f.Add(AppendHuffman(nil, w))
	}
	f.Add([]byte{0xFF, 0xFF, 0xFF, 0xFF})
	f.Fuzz(func(t *testing.T, p []byte) {
		got, valid := AppendDecoded(nil, p)
		want, err := xhpack.HuffmanDecodeToString(p)
		if valid != (err == nil) {
			t.Fatalf("valid: %v, hpack: %v", valid, err)
		}
		if valid && string(got) != want {
			t.Fatalf("%q, hpack: %q", got, want)
		}
	})
}

func FuzzInteger(f *testing.F) {
	f.Add([]byte{0x1F, 0x9A, 0x0A}, uint8(5))
	f.Add([]byte{0xFF, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}, uint8(8))
	f.Fuzz(func(t *testing.T, p []byte, bits uint8) {
		b := uint(bits%8) + 1
		v, n, st := Integer(p, b)
		if st != OK {
			return
		}
		if v > MaxInteger || n > len(p) || n < 1 {
			t.Fatalf("%d in %d bytes", v, n)
		}
		again, m, st := Integer(AppendInteger(nil, 0, b, v), b)
		if st != OK || again != v || m > n {
			t.Fatalf("%d comes back as %d in %d bytes, Status %d", v, again, m, st)
		}
	})
}

func TestIntegers(t *testing.T) {
	for _, c := range []struct {
		p    []byte
		bits uint
		v    uint64
		n    int
		st   Status
	}{
		{[]byte{0x0A}, 5, 10, 1, OK}, // RFC 7541 C.1
		{[]byte{0x1F, 0x9A, 0x0A}, 5, 1337, 3, OK},
		{[]byte{42}, 8, 42, 1, OK},
		{nil, 8, 0, 0, Cut},
		{[]byte{0x1F}, 5, 0, 0, Cut},
		{[]byte{0x1F, 0x9A}, 5, 0, 0, Cut},
		{AppendInteger(nil, 0, 6, MaxInteger), 6, MaxInteger, 10, OK},
		{AppendInteger(nil, 0, 6, MaxInteger+1), 6, 0, 0, Invalid},
		{[]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, 8, 0, 0, Invalid},
		{[]byte{0xFF, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 8, 0, 0, Invalid},
	} {
		v, n, st := Integer(c.p, c.bits)
		if st != c.st || v != c.v || st == OK && n != c.n {
			t.Errorf("%x: %d in %d bytes, Status %d; want %d in %d, %d", c.p, v, n, st, c.v, c.n, c.st)
		}
	}
}

func BenchmarkHuffmanDecode(b *testing.B) {
	p := AppendHuffman(nil, "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36")
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = AppendDecoded(dst[:0], p)
	}
}
