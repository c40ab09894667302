package aead

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// TestPartsFindWhatOneFinds: loops that share a batch refuse the same operations as one does.
func TestPartsFindWhatOneFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var keys []*Key
	for range 5 {
		k, err := NewKey(AES128GCM, make([]byte, 16))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	keys = append(keys, keys[0], nil) // a key that is there twice, and none
	b := Batch{Mem: make([]byte, 1000), Keys: keys}
	for i := range 3000 {
		op := Op{Key: uint32(r.IntN(len(keys) + 1)), Len: 10, Text: uint32(r.IntN(990))}
		op.Nonce[4], op.Nonce[0] = byte(i%200), byte(r.IntN(2))
		b.Ops = append(b.Ops, op)
	}
	var one Validator
	one.ForSeal(&b)
	want, reused := slices.Clone(b.Ops), 0
	for _, op := range want {
		if op.Result == NonceReused {
			reused++
		}
	}
	if reused < 500 {
		t.Fatalf("%d nonces are reused", reused)
	}
	for _, parts := range []int{1, 2, 7, 16} {
		b.Check(uint64(len(b.Mem)), 0, 1000)
		b.Check(uint64(len(b.Mem)), 1000, len(b.Ops))
		var all sync.WaitGroup
		for part := range parts {
			all.Go(func() {
				var v Validator
				v.FindReused(&b, part, parts)
			})
		}
		all.Wait()
		for i := range want {
			if b.Ops[i].Result != want[i].Result {
				t.Fatalf("%d parts, operation %d: %v, want %v", parts, i, b.Ops[i].Result, want[i].Result)
			}
		}
	}
}
