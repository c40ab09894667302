package digest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// everyForm calls f with a CPU of each form that this machine has.
func everyForm(t *testing.T, f func(t *testing.T, c *CPU)) {
	t.Helper()
	for form := range forms {
		c, err := NewForm(form)
		if err != nil {
			t.Logf("this machine has no form %v", form)
			continue
		}
		t.Run(form.String(), func(t *testing.T) { f(t, c) })
	}
}

// crcSlow divides by the reflected polynomial, a bit at a time.
func crcSlow(polynomial uint32, data []byte) []byte {
	crc := ^uint32(0)
	for _, v := range data {
		crc ^= uint32(v)
		for range 8 {
			crc = crc>>1 ^ polynomial&-(crc&1)
		}
	}
	crc = ^crc
	return []byte{byte(crc), byte(crc >> 8), byte(crc >> 16), byte(crc >> 24)}
}

// maskedSlow returns what the invariant CRC of a packet is computed over.
func maskedSlow(p []byte) []byte {
	m := slices.Concat(bytes.Repeat([]byte{0xff}, 8), p)
	ones := []int{1, 8, 10, 11, 20 + 6, 20 + 7, 28 + 4}
	if p[0]>>4 == 6 {
		ones = []int{1, 2, 3, 7, 40 + 6, 40 + 7, 48 + 4}
		m[8] |= 0x0f
	}
	for _, i := range ones {
		m[8+i] = 0xff
	}
	return m
}

// reference computes a sum with packages or bit by bit, one at a time. The data of ICRC is made a packet first.
func reference(a Algorithm, key, data []byte) []byte {
	switch a {
	case SHA256:
		h := sha256.Sum256(data)
		return h[:]
	case HMACSHA256:
		m := hmac.New(sha256.New, key)
		m.Write(data)
		return m.Sum(nil)
	case CRC32C:
		return crcSlow(0x82f63b78, data)
	case ICRC:
		return crcSlow(0xedb88320, maskedSlow(data))
	}
	return slowHash(a, data)
}

// maker makes batches of random data, with guard bytes between all parts.
type maker struct {
	*rand.Rand
	b    Batch
	keys [][]byte
	want [][]byte
}

func (m *maker) bytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(m.Uint32())
	}
	return p
}

func (m *maker) guard() { m.b.Mem = append(m.b.Mem, bytes.Repeat([]byte{0xa5}, 1+m.IntN(70))...) }

func (m *maker) add(size, sumLen int) {
	data := m.bytes(size)
	var key []byte
	op := Op{Len: uint32(size), SumLen: uint8(sumLen), Packet: uint32(len(m.b.Ops))}
	switch m.b.Algorithm {
	case HMACSHA256:
		op.Key = uint32(m.IntN(len(m.keys)))
		key = m.keys[op.Key]
	case ICRC:
		if size < 40 || size < 60 && size%2 == 1 {
			return
		}
		data[0], data[9] = 0x45, 17
		if size%2 == 1 {
			data[0], data[6] = 0x60|data[0]&15, 17
		}
	}
	m.guard()
	op.Data = uint32(len(m.b.Mem))
	m.b.Mem = append(m.b.Mem, data...)
	m.guard()
	op.Sum = uint32(len(m.b.Mem))
	want := reference(m.b.Algorithm, key, data)
	if sumLen > 0 {
		want = want[:sumLen]
	}
	m.b.Mem = append(m.b.Mem, make([]byte, len(want))...)
	m.guard()
	m.b.Ops, m.want = append(m.b.Ops, op), append(m.want, want)
}

// check computes all sums, and verifies them with some changed.
func (m *maker) check(t *testing.T, c *CPU) {
	t.Helper()
	want := slices.Clone(m.b.Mem)
	if n := c.Sum(&m.b); n != len(m.b.Ops) {
		t.Errorf("%v: %d of %d", m.b.Algorithm, n, len(m.b.Ops))
	}
	for i, op := range m.b.Ops {
		copy(want[op.Sum:], m.want[i])
		if got := m.b.Mem[op.Sum:][:len(m.want[i])]; !bytes.Equal(got, m.want[i]) {
			t.Fatalf("%v, operation %d, %d bytes: %x, want %x", m.b.Algorithm, i, op.Len, got, m.want[i])
		}
	}
	if !bytes.Equal(m.b.Mem, want) {
		t.Fatalf("%v: bytes outside of the sums have changed", m.b.Algorithm)
	}
	right := 0
	changed := func(i int) bool { return i%7 == 3 }
	for i, op := range m.b.Ops {
		if !changed(i) {
			right++
			continue
		}
		at := op.Sum + uint32(m.IntN(len(m.want[i])))
		m.b.Mem[at] ^= 1 << m.IntN(8)
	}
	want = slices.Clone(m.b.Mem)
	if n := c.Verify(&m.b); n != right {
		t.Errorf("%v: %d verified, want %d", m.b.Algorithm, n, right)
	}
	for i, op := range m.b.Ops {
		if got := op.Result == Wrong; got != changed(i) {
			t.Errorf("%v, operation %d: %v", m.b.Algorithm, i, op.Result)
		}
	}
	if !bytes.Equal(m.b.Mem, want) {
		t.Fatalf("%v: verifying has changed the memory", m.b.Algorithm)
	}
}

func newMaker(a Algorithm, seed uint64) *maker {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, uint64(a)))}
	m.b.Algorithm = a
	for i := range 10 {
		key := m.bytes(i * 13)
		m.keys, m.b.Keys = append(m.keys, key), append(m.b.Keys, NewKey(key))
	}
	return m
}

func TestEveryLength(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		for a := SHA256; a < algorithms; a++ {
			m := newMaker(a, 1)
			for size := 0; size <= 5000; size++ {
				if m.add(size, 0); size%300 == 299 || size == 5000 {
					m.check(t, c)
					m.b.Mem, m.b.Ops, m.want = nil, nil, nil
				}
			}
		}
	})
}

// TestBatches have any number of operations, of lengths that differ much or not at all.
func TestBatches(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		for a := SHA256; a < algorithms; a++ {
			for n := range 70 {
				m := newMaker(a, uint64(n))
				spread := []int{1, 100, 3000, 20000}[n%4]
				for range n {
					m.add(m.IntN(spread)+m.IntN(2)*1408, m.IntN(2)*(1+m.IntN(a.Size())))
				}
				m.check(t, c)
			}
		}
	})
}

func TestWycheproof(t *testing.T) {
	text, err := os.ReadFile("testdata/wycheproof.txt")
	if err != nil {
		t.Fatal(err)
	}
	everyForm(t, func(t *testing.T, c *CPU) {
		b := Batch{Algorithm: HMACSHA256}
		var valid []bool
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			size, _ := strconv.Atoi(f[0])
			key, _ := hex.DecodeString(strings.Trim(f[3], "-"))
			message, _ := hex.DecodeString(strings.Trim(f[4], "-"))
			tag, _ := hex.DecodeString(f[5])
			at := uint32(len(b.Mem))
			b.Mem = slices.Concat(b.Mem, message, tag)
			b.Keys = append(b.Keys, NewKey(key))
			b.Ops = append(b.Ops, Op{Data: at, Len: uint32(len(message)), Sum: at + uint32(len(message)), SumLen: uint8(size), Key: uint32(len(b.Ops))})
			valid = append(valid, f[2] == "valid")
		}
		if c.Verify(&b); len(b.Ops) < 170 {
			t.Errorf("only %d vectors", len(b.Ops))
		}
		for i, op := range b.Ops {
			if op.Result == Done != valid[i] || op.Result != Done && op.Result != Wrong {
				t.Errorf("vector %d: %v, valid: %v", i+1, op.Result, valid[i])
			}
		}
	})
}

// TestVectors has known sums: FIPS 180-4 and RFC 7693's "abc", RFC 3720 B.4's CRC-32C, and RoCEv2 packets whose ICRC network cards and
// Linux have computed (a congestion notification of a ConnectX-4 Lx and an unreliable SEND, as Scapy's tests have them).
func TestVectors(t *testing.T) {
	abc := hex.EncodeToString([]byte("abc"))
	everyForm(t, func(t *testing.T, c *CPU) {
		for _, v := range []struct {
			a         Algorithm
			data, sum string
		}{
			{SHA256, abc, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
			{SHA512, abc, "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"},
			{BLAKE2s, abc, "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982"},
			{CRC32C, strings.Repeat("00", 32), "aa36918a"},
			{CRC32C, strings.Repeat("ff", 32), "43aba862"},
			{ICRC, "45c2003c718c4000401191610a0011010a001201" + "000012b700280000" + "8100ffff40000118" + "00000000" + strings.Repeat("00", 16), "82fd002a"},
			{ICRC, "4501004004784000" + "4011b4d5" + "c0a80007c0a80007" + "c00012b7002caca2" + "2460ffff000000d300cf1710" +
				"4630818be28935d90e9a95505401be885e500000", "78f353f3"},
		} {
			data, _ := hex.DecodeString(v.data)
			b := Batch{Algorithm: v.a, Mem: append(data, make([]byte, v.a.Size())...), Ops: []Op{{Len: uint32(len(data)), Sum: uint32(len(data))}}}
			if n, sum := c.Sum(&b), hex.EncodeToString(b.Mem[len(data):]); n != 1 || sum != v.sum {
				t.Errorf("%v: %v, %s, want %s", v.a, b.Ops[0].Result, sum, v.sum)
			}
		}
	})
}

func TestRefused(t *testing.T) {
	cleared := NewKey([]byte("key"))
	cleared.Clear()
	keys := []*Key{NewKey(nil), cleared, nil, {}}
	short := []byte{0x45, 9: 17, 39: 0}
	for _, v := range []struct {
		a    Algorithm
		op   Op
		want Result
	}{
		{SHA256, Op{Len: 68, Sum: 68}, Done},
		{SHA256, Op{Len: 68, Sum: 69}, BadRange},
		{SHA256, Op{Len: 101, Sum: 0}, BadRange},
		{SHA256, Op{Len: 10, Sum: 9}, BadRange},
		{SHA256, Op{Data: 31, Len: 10, Sum: 0}, BadRange},
		{SHA256, Op{Data: 32, Len: 10, Sum: 0}, Done},
		{SHA256, Op{Sum: 50, SumLen: 33}, BadRange},
		{SHA256, Op{Data: ^uint32(0), Len: ^uint32(0)}, BadRange},
		{SHA256, Op{Sum: ^uint32(0), SumLen: 1}, BadRange},
		{CRC32C, Op{SumLen: 5, Data: 50}, BadRange},
		{HMACSHA256, Op{Sum: 10, Len: 5, Key: 0}, Done},
		{HMACSHA256, Op{Sum: 10, Len: 5, Key: 1}, BadKey},
		{HMACSHA256, Op{Sum: 10, Len: 5, Key: 2}, BadKey},
		{HMACSHA256, Op{Sum: 10, Len: 5, Key: 3}, BadKey},
		{HMACSHA256, Op{Sum: 10, Len: 5, Key: 4}, BadKey},
		{ICRC, Op{Len: 40, Sum: 40}, Done},
		{ICRC, Op{Len: 39, Sum: 40}, BadPacket},
		{ICRC, Op{Data: 1, Len: 50, Sum: 60}, BadPacket},
		{ICRC, Op{Len: 0, Sum: 40}, BadPacket},
		{0, Op{}, BadRange},
		{algorithms, Op{}, BadRange},
		{255, Op{}, BadRange},
	} {
		everyForm(t, func(t *testing.T, c *CPU) {
			b := Batch{Algorithm: v.a, Mem: make([]byte, 100), Keys: keys, Ops: []Op{v.op}}
			copy(b.Mem, short)
			before := slices.Clone(b.Mem)
			n := c.Sum(&b)
			if got := b.Ops[0].Result; got != v.want || n == 1 != (got == Done) {
				t.Errorf("%v, %+v: %v, want %v", v.a, v.op, got, v.want)
			}
			if v.want != Done && !bytes.Equal(before, b.Mem) {
				t.Errorf("%v, %+v: the memory has changed", v.a, v.op)
			}
		})
	}
	everyForm(t, func(t *testing.T, c *CPU) {
		if n := c.Sum(&Batch{Algorithm: SHA256}) + c.Verify(&Batch{Algorithm: HMACSHA256}); n != 0 {
			t.Errorf("%d of none", n)
		}
	})
}

func TestSizes(t *testing.T) {
	if s := unsafe.Sizeof(Op{}); s != 24 {
		t.Errorf("Op has %d bytes: it is read by GPUs", s)
	}
}

// TestStateEncoding: the words of a state are where FormAVX512 reads them in an encoded state of crypto/sha256.
func TestStateEncoding(t *testing.T) {
	text, err := sha256.New().(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil || len(text) != stateSize || stateWords((*[stateSize]byte)(text)) != sha256Initial {
		t.Errorf("%x, %v", text, err)
	}
	if text, _ := sha256.New().(encoding.BinaryAppender).AppendBinary(nil); !bytes.Equal(text, emptyState[:]) {
		t.Errorf("%x", text)
	}
}

// TestScratch: no state of HMAC is left in a CPU.
func TestScratch(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		m := newMaker(HMACSHA256, 3)
		for i := range 40 {
			m.add(50*i, 0)
		}
		m.check(t, c)
		if text, _ := c.hash.(encoding.BinaryAppender).AppendBinary(nil); !bytes.Equal(text, emptyState[:]) {
			t.Errorf("the hash is %x", text)
		}
		if l := &c.lanes; l.state != [8][lanes]uint32{} || l.lane != [lanes]lane{} || l.b != nil || l.c != nil || c.sum != [64]byte{} {
			t.Error("the lanes have secrets")
		}
	})
}

func TestClear(t *testing.T) {
	k := NewKey([]byte("secret"))
	k.Clear()
	if k.inner != [stateSize]byte{} || k.outer != [stateSize]byte{} {
		t.Error("the states are left")
	}
}

func TestAllocations(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		for a := SHA256; a < algorithms; a++ {
			m := newMaker(a, 9)
			for range 50 {
				m.add(1408, 0)
			}
			c.Sum(&m.b)
			if n := testing.AllocsPerRun(5, func() {
				c.Sum(&m.b)
				c.Verify(&m.b)
			}); n > 0 {
				t.Errorf("%v: %.0f allocations", a, n)
			}
		}
	})
}
