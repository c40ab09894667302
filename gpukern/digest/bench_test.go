package digest

import (
	"fmt"
	"testing"
)

// BenchmarkSum has batches of 32 pieces of data.
func BenchmarkSum(b *testing.B) {
	for a := SHA256; a < algorithms; a++ {
		for form := range forms {
			c, err := NewForm(form)
			if err != nil || c.Form(a) != form {
				continue
			}
			for _, size := range []int{64, 256, 1408, 16384} {
				b.Run(fmt.Sprintf("%v/%v/%d", a, form, size), func(b *testing.B) {
					m := newMaker(a, 1)
					for range 32 {
						m.add(size, 0)
					}
					b.SetBytes(int64(32 * size))
					for b.Loop() {
						if c.Sum(&m.b) != 32 {
							b.Fatal("not done")
						}
					}
				})
			}
		}
	}
}
