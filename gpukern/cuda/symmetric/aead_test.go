package symmetric

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/big"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/crypto/chacha20"

	"github.com/millrace/millrace/gpukern/aead"
)

// roundTrip seals and opens a batch by two functions, and compares with the CPU.
func (x *texts) roundTrip(t *testing.T, seal, open func() int) {
	t.Helper()
	x.seal(t)
	x.put(x.before)
	if n := seal(); n != len(x.b.Ops) {
		t.Errorf("%d of %d sealed", n, len(x.b.Ops))
	}
	x.expect(t, x.b.Mem, x.sealed)
	if n := open(); n != len(x.b.Ops) {
		t.Errorf("%d of %d opened", n, len(x.b.Ops))
	}
	x.expect(t, x.b.Mem, x.plain())
}

// TestTextsAreThoseOfTheCPU seals and opens random texts, in several launches.
func TestTextsAreThoseOfTheCPU(t *testing.T) {
	devices(t, 60, 20_000, func(t *testing.T, b *bed, n int) {
		x := newTexts(t, 1, append(slices.Clone(gpuAlgorithms), gpuAlgorithms...)...)
		x.random(n, 3000)
		x.roundTrip(t, func() int { return b.Seal(&x.b) }, func() int { return b.Open(&x.b) })
		b.onDevice(t, 2*n)
	})
}

// edges are lengths around which the kernels do something else.
func edges(all bool) (sizes []int) {
	if all {
		for n := range 5000 {
			sizes = append(sizes, n)
		}
		return sizes
	}
	for n := range 67 {
		sizes = append(sizes, n)
	}
	for _, at := range []int{128, 1024, 2048 - 64, 2048 - 16, 2048, 2*2048 - 64, 2*2048 - 16, 2 * 2048} {
		for d := -3; d <= 17; d++ {
			sizes = append(sizes, at+d)
		}
	}
	return sizes
}

// TestEveryLength seals and opens texts of all lengths that matter (on a GPU of all up to 5000), with all lengths of associated data up to 48.
func TestEveryLength(t *testing.T) {
	devices(t, 30, 1<<20, func(t *testing.T, b *bed, n int) {
		for _, a := range gpuAlgorithms {
			x := newTexts(t, byte(a), a)
			for i, size := range edges(n > 1000) {
				x.add(0, size, i%49)
			}
			x.roundTrip(t, func() int { return b.Seal(&x.b) }, func() int { return b.Open(&x.b) })
		}
		if s := b.Stats(); s.CPU+s.Faults > 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestLongTexts have many chunks, and more associated data than a pass of the code takes.
func TestLongTexts(t *testing.T) {
	devices(t, 4, 200, func(t *testing.T, b *bed, n int) {
		x := newTexts(t, 9, gpuAlgorithms...)
		for i := range n {
			x.add(i%3, 16384+x.IntN(300), 500+x.IntN(100))
		}
		x.roundTrip(t, func() int { return b.Seal(&x.b) }, func() int { return b.Open(&x.b) })
		b.onDevice(t, 2*n)
	})
}

// TestInPlace has the device work in memory that it maps, at all alignments.
func TestInPlace(t *testing.T) {
	devices(t, 40, 20_000, func(t *testing.T, b *bed, n int) {
		x := newTexts(t, 2, gpuAlgorithms...)
		x.random(n, 2500)
		mem := mapped(t, len(x.before))
		a, err := b.Register(mem)
		if err != nil {
			t.Fatal(err)
		}
		x.b.Mem = mem[len(mem)-len(x.before):] // it ends where nobody may read
		must := func(done int, err error) int {
			if err != nil {
				t.Error(err)
			}
			return done
		}
		x.roundTrip(t, func() int { return must(b.SealIn(a, &x.b)) }, func() int { return must(b.OpenIn(a, &x.b)) })
		b.onDevice(t, 2*n)
		other := x.b
		other.Mem = make([]byte, 100)
		if _, err := b.SealIn(a, &other); err != ErrMemory {
			t.Errorf("other memory: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		part, err := b.Register(mem[:len(mem)-1])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.SealIn(part, &x.b); err != ErrMemory {
			t.Errorf("memory that ends behind the area: %v", err)
		}
		if err := part.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestBytesBesideTextsAreOthers: the owner of the bytes before a text may write them while a kernel works on the text, which shares sixteen
// bytes with them. None of what it writes is lost.
func TestBytesBesideTextsAreOthers(t *testing.T) {
	devices(t, 30, 300, func(t *testing.T, b *bed, n int) {
		mem := mapped(t, 64<<10)
		a, err := b.Register(mem)
		if err != nil {
			t.Fatal(err)
		}
		k, err := aead.NewKey(aead.AES128GCM, make([]byte, 16))
		if err != nil {
			t.Fatal(err)
		}
		beside := (*uint32)(unsafe.Pointer(&mem[0]))
		stop, lost := make(chan struct{}), make(chan int)
		go func() {
			lostWrites := 0
			for v := uint32(1); ; v++ {
				select {
				case <-stop:
					lost <- lostWrites
					return
				default:
				}
				atomic.StoreUint32(beside, v)
				runtime.Gosched()
				if atomic.LoadUint32(beside) != v {
					lostWrites++
				}
			}
		}()
		for range n {
			batch := aead.Batch{Mem: mem, Keys: []*aead.Key{k}, Ops: []aead.Op{{Text: 4, Len: 2000}}}
			if done, err := b.SealIn(a, &batch); done != 1 || err != nil {
				t.Errorf("%d, %v", done, err)
			}
		}
		close(stop)
		if n := <-lost; n > 0 {
			t.Errorf("%d writes were lost", n)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestResident works in the memory of the device.
func TestResident(t *testing.T) {
	devices(t, 40, 20_000, func(t *testing.T, b *bed, n int) {
		x := newTexts(t, 3, gpuAlgorithms...)
		x.random(n, 2500)
		x.before = append(x.before, make([]byte, 16-len(x.before)%16)...)
		x.seal(t)
		dev, err := b.dev.Alloc(len(x.before))
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		host, err := b.dev.AllocHost(len(x.before))
		if err != nil {
			t.Fatal(err)
		}
		defer host.Close()
		s := b.flightStream(t)
		copy(host.Mem, x.before)
		if err := s.CopyIn(dev.Ptr, host, 0, len(x.before)); err != nil {
			t.Fatal(err)
		}
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(x.before))
		for _, step := range []struct {
			name string
			f    func() (int, error)
			want []byte
		}{
			{"seal", func() (int, error) { return b.SealResident(dev, &x.b) }, x.sealed},
			{"open", func() (int, error) { return b.OpenResident(dev, &x.b) }, x.plain()},
		} {
			if done, err := step.f(); done != n || err != nil {
				t.Errorf("%s: %d of %d, %v", step.name, done, n, err)
			}
			if err := b.dev.Download(got, dev.Ptr); err != nil {
				t.Fatal(err)
			}
			x.expect(t, got, step.want)
		}
		b.onDevice(t, 2*n)
	})
}

// TestForgedTexts changes one bit of each operation's text, tag, associated data or nonce: each is found by itself.
func TestForgedTexts(t *testing.T) {
	devices(t, 60, 10_000, func(t *testing.T, b *bed, n int) {
		x := newTexts(t, 4, gpuAlgorithms...)
		for i := range n {
			x.add(i%3, 1+x.IntN(4500), 1+x.IntN(40))
		}
		x.seal(t)
		want := x.plain()
		x.put(x.sealed)
		for i := range x.b.Ops {
			op := &x.b.Ops[i]
			bit := byte(1) << x.IntN(8)
			at := -1
			switch i % 5 {
			case 0: // stays
				continue
			case 1:
				at = int(op.Text) + x.IntN(int(op.Len))
			case 2:
				at = int(op.Text+op.Len) + x.IntN(aead.TagSize)
			case 3:
				at = int(op.AAD) + x.IntN(int(op.AADLen))
			case 4:
				op.Nonce[x.IntN(12)] ^= bit
			}
			if at >= 0 {
				x.b.Mem[at] ^= bit
				if i%5 != 1 {
					want[at] ^= bit
				}
			}
			clear(want[op.Text:][:op.Len])
		}
		good := (n + 4) / 5
		if done := b.Open(&x.b); done != good {
			t.Errorf("%d opened, want %d", done, good)
		}
		for i := range x.b.Ops {
			want := aead.Forged
			if i%5 == 0 {
				want = aead.Done
			}
			if got := x.b.Ops[i].Result; got != want {
				t.Errorf("operation %d: %v, want %v", i, got, want)
			}
		}
		x.expect(t, x.b.Mem, want)
		b.onDevice(t, n)
	})
}

// TestRefusals: what cannot be done is refused as the CPU refuses it, and its memory stays.
func TestRefusals(t *testing.T) {
	devices(t, 12, 12, func(t *testing.T, b *bed, _ int) {
		x := newTexts(t, 5, append(slices.Clone(gpuAlgorithms), aead.AES128CBCSHA256, aead.AES128GCM)...)
		for i := range 12 {
			x.add(i%3, 100, 8)
		}
		x.b.Keys[4].Clear()
		x.b.Ops[1].Key = 5
		x.b.Ops[2].Text = uint32(len(x.before))
		x.b.Ops[3].Nonce = x.b.Ops[0].Nonce
		x.b.Ops[4].Key = 4
		x.b.Ops[5].Key, x.b.Ops[5].Len = 3, 96
		x.put(x.before)
		ref := aead.Batch{Mem: slices.Clone(x.before), Keys: x.b.Keys, Ops: slices.Clone(x.b.Ops)}
		if got, want := b.Seal(&x.b), aead.NewCPU().Seal(&ref); got != want || want != 8 {
			t.Errorf("%d sealed, want %d", got, want)
		}
		for i := range x.b.Ops {
			if got, want := x.b.Ops[i].Result, ref.Ops[i].Result; got != want {
				t.Errorf("operation %d: %v, want %v", i, got, want)
			}
		}
		x.expect(t, x.b.Mem, ref.Mem)
		if s := b.Stats(); s != (Stats{Device: 7, CPU: 1}) {
			t.Errorf("%+v", s)
		}
	})
}

// TestWycheproof has the vectors that the CPU's forms have.
func TestWycheproof(t *testing.T) {
	text, err := os.ReadFile("../../aead/testdata/wycheproof.txt")
	if err != nil {
		t.Fatal(err)
	}
	devices(t, 900, 900, func(t *testing.T, b *bed, _ int) {
		var all aead.Batch
		var valid []bool
		var want [][]byte
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			i := slices.IndexFunc(gpuAlgorithms, func(a aead.Algorithm) bool { return a.String() == f[0] })
			if i < 0 {
				continue
			}
			field := func(i int) []byte {
				v, err := hex.DecodeString(strings.Trim(f[i], "-"))
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			k, err := aead.NewKey(gpuAlgorithms[i], field(3))
			if err != nil {
				t.Fatal(err)
			}
			aad, msg, ct, tag := field(5), field(6), field(7), field(8)
			op := aead.Op{AAD: uint32(len(all.Mem)), AADLen: uint16(len(aad)), Text: uint32(len(all.Mem) + len(aad)), Len: uint32(len(ct)), Key: uint32(len(all.Keys))}
			copy(op.Nonce[:], field(4))
			all.Mem, all.Keys, all.Ops = slices.Concat(all.Mem, aad, ct, tag), append(all.Keys, k), append(all.Ops, op)
			valid = append(valid, f[2] == "valid")
			if f[2] != "valid" {
				msg = make([]byte, len(ct))
			}
			want = append(want, msg)
		}
		if len(all.Ops) < 300 {
			t.Fatalf("%d vectors", len(all.Ops))
		}
		b.Open(&all)
		for i, op := range all.Ops {
			got := all.Mem[op.Text:][:op.Len]
			if (op.Result == aead.Done) != valid[i] || !bytes.Equal(got, want[i]) {
				t.Errorf("vector %d: %v, valid %v, %x", i, op.Result, valid[i], got)
			}
		}
		b.onDevice(t, len(all.Ops))
	})
}

// TestACodeThatCarriesTwice: what the sum of the lanes carries out of its highest digit comes back into the lowest one, and out of that
// again. One of some 700 000 texts of this length does that.
func TestACodeThatCarriesTwice(t *testing.T) {
	devices(t, 1, 1, func(t *testing.T, b *bed, _ int) {
		k, err := aead.NewKey(aead.ChaCha20Poly1305, make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		const size = 31 * 16
		op := aead.Op{Len: size}
		binary.LittleEndian.PutUint64(op.Nonce[4:], 516330)
		x := &texts{b: aead.Batch{Keys: []*aead.Key{k}, Ops: []aead.Op{op}}, before: make([]byte, size+aead.TagSize)}
		x.roundTrip(t, func() int { return b.Seal(&x.b) }, func() int { return b.Open(&x.b) })
		b.onDevice(t, 2)
	})
}

// TestACodeAboveTheModulus has texts whose sum is the modulus and a little: it must be reduced once more. The text is solved for it.
func TestACodeAboveTheModulus(t *testing.T) {
	devices(t, 1, 1, func(t *testing.T, b *bed, _ int) {
		k, err := aead.NewKey(aead.ChaCha20Poly1305, make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		x := &texts{b: aead.Batch{Keys: []*aead.Key{k}}}
		for counter := uint64(0); len(x.b.Ops) < 8; counter++ {
			op := aead.Op{Len: 16, Text: uint32(len(x.before))}
			binary.LittleEndian.PutUint64(op.Nonce[4:], counter)
			if text, ok := textOfSum(t, op.Nonce[:12], int64(counter%5)); ok {
				x.before = append(append(x.before, text...), make([]byte, aead.TagSize)...)
				x.b.Ops = append(x.b.Ops, op)
			}
		}
		x.roundTrip(t, func() int { return b.Seal(&x.b) }, func() int { return b.Open(&x.b) })
		b.onDevice(t, 16)
	})
}

// textOfSum returns the plaintext of 16 bytes under the key of zeros whose sum in Poly1305, before its key is added, is congruent to v
// modulo 2^130-5. There is one for a quarter of the nonces.
func textOfSum(t *testing.T, nonce []byte, v int64) (text []byte, ok bool) {
	t.Helper()
	c, err := chacha20.NewUnauthenticatedCipher(make([]byte, 32), nonce)
	if err != nil {
		t.Fatal(err)
	}
	var first, stream [64]byte
	c.XORKeyStream(first[:], first[:])
	c.XORKeyStream(stream[:], stream[:])
	for _, i := range []int{3, 7, 11, 15} {
		first[i] &= 15
	}
	for _, i := range []int{4, 8, 12} {
		first[i] &= 252
	}
	number := func(le []byte) *big.Int {
		be := slices.Clone(le)
		slices.Reverse(be)
		return new(big.Int).SetBytes(be)
	}
	one := big.NewInt(1)
	p := new(big.Int).Sub(new(big.Int).Lsh(one, 130), big.NewInt(5))
	r, above := number(first[:16]), new(big.Int).Lsh(one, 128)
	lengths := new(big.Int).Add(above, new(big.Int).Lsh(big.NewInt(16), 64)) // no associated data, 16 bytes
	// v = (m + 2^128) r^2 + lengths r
	m := new(big.Int).Sub(big.NewInt(v), new(big.Int).Mul(lengths, r))
	m.Mul(m, new(big.Int).ModInverse(new(big.Int).Mul(r, r), p))
	m.Mod(m.Sub(m, above), p)
	if m.BitLen() > 128 {
		return nil, false
	}
	text = m.FillBytes(make([]byte, 16))
	slices.Reverse(text)
	for i := range text {
		text[i] ^= stream[i]
	}
	return text, true
}
