package aead

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/millrace/millrace/internal/testkit/guardpages"
)

// TestGuardPages has texts and associated data that begin or end where the memory does, as an arena's first and last packets
// may: a load beyond it would be a fault.
func TestGuardPages(t *testing.T) {
	size := uint32(2 * os.Getpagesize())
	mem := guardpages.New(t, int(size))
	everyForm(t, func(t *testing.T, c *CPU) {
		for _, a := range everyAlgorithm {
			m := &maker{Rand: rand.New(rand.NewPCG(7, uint64(a)))}
			m.key(t, a)
			b := Batch{Mem: mem, Keys: m.b.Keys}
			step, aad := uint32(1), uint32(13)
			if a.cbc() {
				step, aad = 16, 12
			}
			for n := uint32(0); n < 1200; n += step {
				for _, op := range []Op{
					{Text: size - n - TagSize, Len: n, AADLen: uint16(aad)},
					{Text: 0, Len: n, AAD: size - aad, AADLen: uint16(aad)},
				} {
					b.Ops = append(b.Ops[:0], op)
					if c.Seal(&b) != 1 || c.Open(&b) != 1 {
						t.Fatalf("%v, %+v: %v", a, op, b.Ops[0].Result)
					}
				}
			}
		}
	})
}
