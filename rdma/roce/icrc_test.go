package roce

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/millrace/millrace/wire"
)

// TestCopyCRC compares every form with copy and crc32.Update, at every length up to some steps of each loop and at
// unaligned addresses, and looks at the bytes around the copy.
func TestCopyCRC(t *testing.T) {
	eachForm(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		src := make([]byte, 5000)
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		for n := range 1500 {
			checkCopy(t, src[r.IntN(60):], n, r)
		}
		for range 500 {
			checkCopy(t, src[r.IntN(60):], r.IntN(4900), r)
		}
	})
}

// TestUpdate compares every form with crc32.Update, at every length up to that of the longest headers and beyond.
func TestUpdate(t *testing.T) {
	eachForm(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		b := make([]byte, 1200)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		for n := range 700 {
			at, start := r.IntN(60), r.Uint32()
			if got, want := update(start, b[at:at+n]), crc32.Update(start, crc32.IEEETable, b[at:at+n]); got != want {
				t.Fatalf("%d bytes: CRC %08x, want %08x", n, got, want)
			}
		}
	})
}

// TestFormsOfICRC compares the form that changes nothing with the one that writes to the headers, for every kind of packet and length.
func TestFormsOfICRC(t *testing.T) {
	if !canFold {
		t.Skip("this machine has one form alone")
	}
	defer func() { canFold = true }()
	r := rand.New(rand.NewPCG(5, 6))
	for _, kind := range []struct {
		first, next byte
		bth         int
	}{{0x45, 0, wire.IPv4Len + wire.UDPLen}, {0x60, wire.ProtoUDP, wire.IPv6Len + wire.UDPLen}, {0x60, nextHeaderIBA, wire.IPv6Len}} {
		for n := kind.bth + BTHLen; n < 700; n++ {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			b[0] = kind.first | b[0]&0x0f
			if b[6] = kind.next; kind.first == 0x45 {
				b[0] = 0x45
			}
			before := bytes.Clone(b)
			canFold = true
			got := ICRC(b)
			canFold = false
			if want := ICRC(b); got != want || !bytes.Equal(b, before) {
				t.Fatalf("BTH at %d, %d bytes: %08x, want %08x", kind.bth, n, got, want)
			}
		}
	}
}

func checkCopy(t *testing.T, src []byte, n int, r *rand.Rand) {
	t.Helper()
	src = src[:n]
	at, start := 1+r.IntN(60), r.Uint32()
	dst := bytes.Repeat([]byte{0xa5}, at+n+64)
	if got, want := CopyCRC(dst[at:], src, start), crc32.Update(start, crc32.IEEETable, src); got != want {
		t.Fatalf("%d bytes: CRC %08x, want %08x", n, got, want)
	}
	if !bytes.Equal(dst[at:at+n], src) {
		t.Fatalf("%d bytes: the copy differs", n)
	}
	if len(bytes.Trim(dst[:at], "\xa5"))+len(bytes.Trim(dst[at+n:], "\xa5")) > 0 {
		t.Fatalf("%d bytes: bytes outside of the copy were written", n)
	}
}

func TestBuildAndParseAllocateNothing(t *testing.T) {
	e := Envelope{Src: wire.AddrFrom4([4]byte{198, 18, 0, 1}), Dst: wire.AddrFrom4([4]byte{198, 18, 0, 2})}
	p := Packet{Opcode: WriteOnly, Length: 1000}
	b, payload := make([]byte, 2048), make([]byte, 1000)
	pieces := [][]byte{payload[:100], payload[100:]}
	var f Frame
	if n := testing.AllocsPerRun(100, func() {
		n := Build(b, &e, &p, pieces...)
		if f.Parse(b[:n]) != Accepted || f.Verify() != Accepted {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCopyCRC(b *testing.B) {
	for _, n := range []int{56, 120, 184, 248, 312} {
		src := make([]byte, n)
		b.Run("headers/"+strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				update(0, src)
			}
		})
		b.Run("crc32/"+strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				crc32.Update(0, crc32.IEEETable, src)
			}
		})
	}
	for _, n := range []int{256, 1024, 4096} {
		src, dst := make([]byte, n), make([]byte, n)
		b.Run("fused/"+strconv.Itoa(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				CopyCRC(dst, src, 0)
			}
		})
		b.Run("separate/"+strconv.Itoa(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				copy(dst, src)
				crc32.Update(0, crc32.IEEETable, src)
			}
		})
		b.Run("verify/"+strconv.Itoa(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				crc32.Update(0, crc32.IEEETable, src)
			}
		})
	}
}
