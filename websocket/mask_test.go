package websocket

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// maskSlowly is RFC 6455 5.3 word for word: octet i of the payload XOR octet i mod 4 of the key.
func maskSlowly(payload []byte, key [4]byte, from int) {
	for i := range payload {
		payload[i] ^= key[(from+i)%4]
	}
}

func TestMaskMatchesTheReferenceAtEveryAlignmentAndLength(t *testing.T) {
	forms := map[string]func(dst, src []byte, key uint32){"generic": xorKeyGeneric, "long": xorKeyLong}
	key := [4]byte{0x37, 0xfa, 0x21, 0x3d}
	rnd := rand.New(rand.NewPCG(1, 2))
	memory := make([]byte, 1024)
	for i := range memory {
		memory[i] = byte(rnd.Uint32())
	}
	got, want := make([]byte, len(memory)), make([]byte, len(memory))
	for name, form := range forms {
		for align := range 64 {
			for n := range 520 {
				copy(got, memory)
				copy(want, memory)
				maskSlowly(want[align:align+n], key, 0)
				form(got[align:align+n], got[align:align+n], binary.LittleEndian.Uint32(key[:]))
				if !bytes.Equal(got, want) {
					t.Fatalf("%s in place, alignment %d, length %d: wrong", name, align, n)
				}
				clear(got)
				form(got[align/2:align/2+n], memory[align:align+n], binary.LittleEndian.Uint32(key[:]))
				if !bytes.Equal(got[align/2:align/2+n], want[align:align+n]) {
					t.Fatalf("%s to another place, alignment %d, length %d: wrong", name, align, n)
				}
				if got[align/2+n] != 0 || align > 1 && got[align/2-1] != 0 {
					t.Fatalf("%s, alignment %d, length %d: wrote outside", name, align, n)
				}
			}
		}
	}
}

func TestMaskContinuesAtEveryCut(t *testing.T) {
	key := [4]byte{1, 2, 4, 8}
	for n := range 200 {
		for cut := range n + 1 {
			got := make([]byte, n)
			k := xorKey(got[:cut], got[:cut], binary.LittleEndian.Uint32(key[:]))
			xorKey(got[cut:], got[cut:], k)
			want := make([]byte, n)
			maskSlowly(want, key, 0)
			if !bytes.Equal(got, want) {
				t.Fatalf("%d bytes cut at %d: % x, want % x", n, cut, got, want)
			}
		}
	}
}

func BenchmarkMask(b *testing.B) {
	for _, size := range []int{16, 64, 128, 1024, 16384} {
		p := make([]byte, size)
		for name, form := range map[string]func(dst, src []byte, key uint32){
			"generic": xorKeyGeneric, "best": func(dst, src []byte, key uint32) { xorKey(dst, src, key) },
		} {
			b.Run(name+"/"+itoa(size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					form(p, p, 0x12345678)
				}
			})
		}
	}
}
