package aead

import (
	"fmt"
	"testing"
)

// BenchmarkSeal has batches of 32 texts under 32 keys, with 8 bytes of associated data, as ESP has.
func BenchmarkSeal(b *testing.B) { benchmark(b, false) }

// BenchmarkSealAndOpen: a text is decrypted in place, so that each round seals it first, and the time is of both.
func BenchmarkSealAndOpen(b *testing.B) { benchmark(b, true) }

func benchmark(b *testing.B, both bool) {
	for _, a := range everyAlgorithm {
		for form := range forms {
			c, err := NewForm(form)
			if err != nil || c.Form(a) != form {
				continue
			}
			for _, size := range []int{64, 256, 1408, 16384} {
				b.Run(fmt.Sprintf("%v/%v/%d", a, form, size), func(b *testing.B) {
					batch := benchmarkBatch(b, a, size)
					b.SetBytes(int64(size * len(batch.Ops)))
					for b.Loop() {
						c.Seal(batch)
						if both && c.Open(batch) != len(batch.Ops) {
							b.Fatal("forged")
						}
					}
				})
			}
		}
	}
}

func benchmarkBatch(b *testing.B, a Algorithm, size int) *Batch {
	const n, header = 32, 16
	frame := (header + size + TagSize + 63) &^ 63
	batch := &Batch{Mem: make([]byte, n*frame)}
	for i := range n {
		key := make([]byte, a.KeySize())
		key[0] = byte(i)
		k, err := NewKey(a, key)
		if err != nil {
			b.Fatal(err)
		}
		batch.Keys = append(batch.Keys, k)
		at := uint32(i * frame)
		batch.Ops = append(batch.Ops, Op{Text: at + header, Len: uint32(size), AAD: at, AADLen: 8, Key: uint32(i)})
	}
	return batch
}
