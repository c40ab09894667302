package digest

import (
	"encoding/binary"
	"slices"
	"testing"
)

// FuzzForms compares the forms with one another and with references, for operations of the input's lengths.
func FuzzForms(f *testing.F) {
	f.Add(uint64(1), uint8(0), []byte{0, 0, 0, 64, 5, 128})
	f.Fuzz(func(t *testing.T, seed uint64, algorithm uint8, lengths []byte) {
		m := newMaker(SHA256+Algorithm(algorithm)%(algorithms-1), seed)
		for ; len(lengths) >= 2 && len(m.b.Ops) < 64; lengths = lengths[2:] {
			m.add(int(binary.BigEndian.Uint16(lengths)%8192), 0)
		}
		mem, ops := slices.Clone(m.b.Mem), slices.Clone(m.b.Ops)
		for form := range forms {
			c, err := NewForm(form)
			if err != nil {
				continue
			}
			copy(m.b.Mem, mem)
			copy(m.b.Ops, ops)
			m.check(t, c)
		}
	})
}

// FuzzOps has operations of any content: none may reach outside of the memory.
func FuzzOps(f *testing.F) {
	f.Add(uint8(0), uint32(0), uint32(100), uint32(200), uint32(0), uint8(4), uint16(300))
	f.Fuzz(func(t *testing.T, algorithm uint8, data, size, sum, key uint32, sumLen uint8, memory uint16) {
		all := make([]byte, int(memory)+128)
		for i := range all {
			all[i] = 0x45
		}
		b := Batch{Algorithm: Algorithm(algorithm), Mem: all[64 : 64+int(memory)], Keys: []*Key{NewKey(all[:9])}}
		b.Ops = []Op{{Data: data, Len: size, Sum: sum, Key: key, SumLen: sumLen}}
		for form := range forms {
			c, _ := NewForm(form)
			if n := c.Sum(&b) + c.Verify(&b); n != 0 && n != 2 {
				t.Errorf("%v: %d of two done, %v", form, n, b.Ops[0].Result)
			}
		}
		for i, v := range all {
			if (i < 64 || i >= 64+int(memory)) && v != 0x45 {
				t.Fatalf("byte %d outside of the memory has changed", i-64)
			}
		}
	})
}
