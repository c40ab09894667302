package aead

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// maker makes batches of random operations, whose memory has guard bytes between all parts.
type maker struct {
	*rand.Rand
	b    Batch
	keys [][]byte
	text [][]byte // plaintexts
	want [][]byte // ciphertexts with tags
}

func (m *maker) bytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(m.Uint32())
	}
	return p
}

func (m *maker) key(t testing.TB, a Algorithm) {
	t.Helper()
	key := m.bytes(a.KeySize())
	k, err := NewKey(a, key)
	if err != nil {
		t.Fatal(err)
	}
	m.keys, m.b.Keys = append(m.keys, key), append(m.b.Keys, k)
}

// add adds an operation under the key of that index.
func (m *maker) add(t testing.TB, key, size, aadSize int) {
	t.Helper()
	k := m.b.Keys[key]
	if k.algorithm.cbc() {
		size, aadSize = size&^15, 8+aadSize&4
	}
	op := Op{Key: uint32(key), Len: uint32(size), AADLen: uint16(aadSize), Packet: uint32(len(m.b.Ops))}
	copy(op.Nonce[:], m.bytes(16))
	text, aad := m.bytes(size), m.bytes(aadSize)
	m.guard()
	op.AAD = uint32(len(m.b.Mem))
	m.b.Mem = append(m.b.Mem, aad...)
	m.guard()
	op.Text = uint32(len(m.b.Mem))
	m.b.Mem = append(append(m.b.Mem, text...), make([]byte, TagSize)...)
	m.guard()
	m.b.Ops = append(m.b.Ops, op)
	m.text = append(m.text, text)
	m.want = append(m.want, reference(t, k.algorithm, m.keys[key], op.Nonce[:k.algorithm.NonceSize()], aad, text))
}

// guard adds 1 to 70 bytes, so that offsets have all alignments.
func (m *maker) guard() { m.b.Mem = append(m.b.Mem, bytes.Repeat([]byte{0xa5}, 1+m.IntN(70))...) }

// expect compares the memory with what was and with the text that each operation should have. Nothing else may change.
func (m *maker) expect(t *testing.T, before []byte, texts func(i int) []byte) {
	t.Helper()
	want := slices.Clone(before)
	for i := range m.b.Ops {
		copy(want[m.b.Ops[i].Text:], texts(i))
	}
	if bytes.Equal(m.b.Mem, want) {
		return
	}
	for i := range m.b.Ops {
		op := &m.b.Ops[i]
		if end := op.Text + op.Len + TagSize; !bytes.Equal(m.b.Mem[op.Text:end], want[op.Text:end]) {
			t.Fatalf("operation %d, %v, %d bytes, %d of associated data, %v:\n%x, want\n%x",
				i, m.b.Keys[op.Key].algorithm, op.Len, op.AADLen, op.Result, m.b.Mem[op.Text:end], want[op.Text:end])
		}
	}
	t.Fatal("bytes outside of the texts have changed")
}

// roundTrip seals the batch and opens it again, with every seventh operation forged.
func (m *maker) roundTrip(t *testing.T, c *CPU) {
	t.Helper()
	before := slices.Clone(m.b.Mem)
	if n := c.Seal(&m.b); n != len(m.b.Ops) {
		t.Errorf("sealed %d of %d", n, len(m.b.Ops))
	}
	m.expect(t, before, func(i int) []byte { return m.want[i] })
	forged := func(i int) bool { return i%7 == 3 }
	good := 0
	for i := range m.b.Ops {
		op := &m.b.Ops[i]
		op.Result = Pending
		if !forged(i) {
			good++
			continue
		}
		parts := [][]byte{m.b.Mem[op.Text : op.Text+op.Len+TagSize], m.b.Mem[op.AAD : op.AAD+uint32(op.AADLen)]}
		part := parts[m.IntN(2)]
		if len(part) == 0 {
			part = parts[0]
		}
		part[m.IntN(len(part))] ^= 1 << m.IntN(8)
	}
	before = slices.Clone(m.b.Mem)
	if n := c.Open(&m.b); n != good {
		t.Errorf("opened %d, want %d", n, good)
	}
	for i := range m.b.Ops {
		want := Done
		if forged(i) {
			want = Forged
		}
		if got := m.b.Ops[i].Result; got != want {
			t.Fatalf("operation %d, %v, %d bytes: %v, want %v", i, m.b.Keys[m.b.Ops[i].Key].algorithm, m.b.Ops[i].Len, got, want)
		}
	}
	m.expect(t, before, func(i int) []byte {
		if forged(i) {
			return make([]byte, m.b.Ops[i].Len)
		}
		return m.text[i]
	})
}
