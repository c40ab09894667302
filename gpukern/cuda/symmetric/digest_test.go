package symmetric

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/gpukern/digest"
)

// sums makes a batch of data of these lengths, with guard bytes between all parts, and its memory with the right sums.
func sums(a digest.Algorithm, seed byte, sizes []int) (b digest.Batch, want []byte) {
	r := rand.New(rand.NewChaCha8([32]byte{seed}))
	b.Algorithm = a
	var keys [][]byte
	if a == digest.HMACSHA256 {
		for _, n := range []int{0, 16, 64, 65, 200} {
			key := make([]byte, n)
			for i := range key {
				key[i] = byte(r.Uint32())
			}
			keys, b.Keys = append(keys, key), append(b.Keys, digest.NewKey(key))
		}
	}
	guard := func() { b.Mem = append(b.Mem, bytes.Repeat([]byte{0xa5}, 1+r.IntN(21))...) }
	for _, n := range sizes {
		op := digest.Op{Len: uint32(n), SumLen: uint8(r.IntN(33))}
		guard()
		op.Data = uint32(len(b.Mem))
		for range n {
			b.Mem = append(b.Mem, byte(r.Uint32()))
		}
		guard()
		op.Sum = uint32(len(b.Mem))
		b.Mem = append(b.Mem, make([]byte, 32)...)
		guard()
		if keys != nil {
			op.Key = uint32(r.IntN(len(keys)))
		}
		b.Ops = append(b.Ops, op)
	}
	want = slices.Clone(b.Mem)
	for i := range b.Ops {
		op := &b.Ops[i]
		h := sha256.New()
		if keys != nil {
			h = hmac.New(sha256.New, keys[op.Key])
		}
		h.Write(b.Mem[op.Data:][:op.Len])
		n := int(op.SumLen)
		if n == 0 {
			n = 32
		}
		copy(want[op.Sum:][:n], h.Sum(nil))
	}
	return b, want
}

func sizesOf(n, many int) (sizes []int) {
	for i := range n {
		sizes = append(sizes, i)
	}
	for i := range many {
		sizes = append(sizes, 1000+i)
	}
	return append(sizes, 9000, 16400)
}

// TestSumsAreThoseOfTheStandard sums and verifies data of every length, and finds sums of which one bit is another.
func TestSumsAreThoseOfTheStandard(t *testing.T) {
	for _, a := range []digest.Algorithm{digest.SHA256, digest.HMACSHA256} {
		t.Run(a.String(), func(t *testing.T) {
			devices(t, 270, 20_000, func(t *testing.T, b *bed, n int) {
				batch, want := sums(a, 1, sizesOf(min(n, 4000), min(max(0, n-4000), 500)))
				n = len(batch.Ops)
				if done := b.Sum(&batch); done != n {
					t.Errorf("%d of %d", done, n)
				}
				if !bytes.Equal(batch.Mem, want) {
					t.Error("the sums are wrong, or bytes beside them have changed")
				}
				if done := b.Verify(&batch); done != n {
					t.Errorf("%d of %d verify", done, n)
				}
				r := rand.New(rand.NewPCG(1, 2))
				for i := range batch.Ops {
					if op := &batch.Ops[i]; i%3 == 0 {
						batch.Mem[int(op.Sum)+r.IntN(int(op.SumLen))] ^= 1 << r.IntN(8)
					}
				}
				b.Verify(&batch)
				for i, op := range batch.Ops {
					if wrong := i%3 == 0; (op.Result == digest.Wrong) != wrong || (op.Result == digest.Done) == wrong {
						t.Errorf("operation %d of %d bytes: %v", i, op.Len, op.Result)
					}
				}
				b.onDevice(t, 3*n)
			})
		})
	}
}

// TestSumsInPlace reads memory that the device maps.
func TestSumsInPlace(t *testing.T) {
	devices(t, 150, 10_000, func(t *testing.T, b *bed, n int) {
		batch, want := sums(digest.SHA256, 2, sizesOf(min(n, 2000), 10))
		mem := mapped(t, len(batch.Mem))
		a, err := b.Register(mem)
		if err != nil {
			t.Fatal(err)
		}
		place := mem[len(mem)-len(want):]
		copy(place, batch.Mem)
		batch.Mem = place
		if done, err := b.SumIn(a, &batch); done != len(batch.Ops) || err != nil || !bytes.Equal(place, want) {
			t.Errorf("%d of %d, %v, right %v", done, len(batch.Ops), err, bytes.Equal(place, want))
		}
		if done, err := b.VerifyIn(a, &batch); done != len(batch.Ops) || err != nil {
			t.Errorf("%d of %d verify, %v", done, len(batch.Ops), err)
		}
		b.onDevice(t, 2*len(batch.Ops))
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOtherSums are the CPU's.
func TestOtherSums(t *testing.T) {
	b := openFake(t, Config{})
	batch, _ := sums(digest.SHA256, 3, []int{10, 20, 300})
	batch.Algorithm = digest.SHA512
	ref := batch
	ref.Mem, ref.Ops = slices.Clone(batch.Mem), slices.Clone(batch.Ops)
	if got, want := b.Sum(&batch), digest.NewCPU().Sum(&ref); got != want || !bytes.Equal(batch.Mem, ref.Mem) {
		t.Errorf("%d, want %d", got, want)
	}
	if s := b.Stats(); s != (Stats{CPU: 3}) {
		t.Errorf("%+v", s)
	}
}

// TestWycheproofOfHMAC verifies the vectors that the CPU's forms have, of which some are forged.
func TestWycheproofOfHMAC(t *testing.T) {
	text, err := os.ReadFile("../../digest/testdata/wycheproof.txt")
	if err != nil {
		t.Fatal(err)
	}
	devices(t, 200, 200, func(t *testing.T, b *bed, _ int) {
		all := digest.Batch{Algorithm: digest.HMACSHA256}
		var valid []bool
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			field := func(i int) []byte {
				v, err := hex.DecodeString(strings.Trim(f[i], "-"))
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			at, msg, mac := uint32(len(all.Mem)), field(4), field(5)
			all.Mem = slices.Concat(all.Mem, msg, mac)
			all.Keys = append(all.Keys, digest.NewKey(field(3)))
			all.Ops = append(all.Ops, digest.Op{Data: at, Len: uint32(len(msg)), Sum: at + uint32(len(msg)), SumLen: uint8(len(mac)), Key: uint32(len(all.Ops))})
			valid = append(valid, f[2] == "valid")
		}
		if b.Verify(&all); len(all.Ops) < 170 {
			t.Errorf("only %d vectors", len(all.Ops))
		}
		for i, op := range all.Ops {
			if op.Result == digest.Done != valid[i] || op.Result != digest.Done && op.Result != digest.Wrong {
				t.Errorf("vector %d: %v, valid: %v", i+1, op.Result, valid[i])
			}
		}
		b.onDevice(t, len(all.Ops))
	})
}
