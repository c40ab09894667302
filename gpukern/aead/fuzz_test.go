package aead

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// FuzzForms compares the forms with one another and with the standards, for operations of the input's lengths.
func FuzzForms(f *testing.F) {
	f.Add(uint64(1), []byte{0, 0, 64, 0, 8, 1, 5, 128, 0, 12})
	f.Fuzz(func(t *testing.T, seed uint64, shape []byte) {
		m := &maker{Rand: rand.New(rand.NewPCG(seed, 0))}
		for range 2 {
			for _, a := range everyAlgorithm {
				m.key(t, a)
			}
		}
		for ; len(shape) >= 5 && len(m.b.Ops) < 64; shape = shape[5:] {
			m.add(t, int(shape[0])%len(m.keys), int(binary.BigEndian.Uint16(shape[1:])), int(binary.BigEndian.Uint16(shape[3:])%2048))
		}
		mem, ops := slices.Clone(m.b.Mem), slices.Clone(m.b.Ops)
		for form := range forms {
			c, err := NewForm(form)
			if err != nil {
				continue
			}
			copy(m.b.Mem, mem)
			copy(m.b.Ops, ops)
			m.roundTrip(t, c)
		}
	})
}

// FuzzOps has operations of any content: none may reach outside of the memory.
func FuzzOps(f *testing.F) {
	f.Add(uint32(0), uint32(100), uint32(200), uint16(8), uint32(0), uint16(300))
	f.Fuzz(func(t *testing.T, text, size, aad uint32, aadSize uint16, key uint32, memory uint16) {
		all := make([]byte, int(memory)+128)
		for i := range all {
			all[i] = 0xa5
		}
		b := Batch{Mem: all[64 : 64+int(memory)]}
		for _, a := range everyAlgorithm {
			k, err := NewKey(a, make([]byte, a.KeySize()))
			if err != nil {
				t.Fatal(err)
			}
			b.Keys = append(b.Keys, k)
		}
		b.Ops = []Op{{Text: text, Len: size, AAD: aad, AADLen: aadSize, Key: key}}
		for form := range forms {
			c, _ := NewForm(form)
			if n := c.Seal(&b) + c.Open(&b); n != 0 && n != 2 {
				t.Errorf("%v: %d of two done, %v", form, n, b.Ops[0].Result)
			}
		}
		for i, v := range all {
			if (i < 64 || i >= 64+int(memory)) && v != 0xa5 {
				t.Fatalf("byte %d outside of the memory has changed", i-64)
			}
		}
	})
}
