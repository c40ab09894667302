package aead

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/millrace/millrace/packet"
)

var everyAlgorithm = []Algorithm{ChaCha20Poly1305, AES128GCM, AES256GCM, AES128CBCSHA256, AES256CBCSHA256}

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

// reference seals as the standards are written, one text at a time: the tag is behind the result.
func reference(t testing.TB, a Algorithm, key, nonce, aad, text []byte) []byte {
	t.Helper()
	must := func(x cipher.AEAD, err error) cipher.AEAD {
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	if a == ChaCha20Poly1305 {
		return must(chacha20poly1305.New(key)).Seal(nil, nonce, text, aad)
	}
	size := 16
	if a == AES256GCM || a == AES256CBCSHA256 {
		size = 32
	}
	block, err := aes.NewCipher(key[:size])
	if err != nil {
		t.Fatal(err)
	}
	if !a.cbc() {
		return must(cipher.NewGCM(block)).Seal(nil, nonce, text, aad)
	}
	// Cipher block chaining by hand (SP 800-38A 6.2), and RFC 4303's order of what is authenticated.
	var out []byte
	last := nonce
	for ; len(text) > 0; text = text[16:] {
		x := make([]byte, 16)
		for i := range x {
			x[i] = text[i] ^ last[i]
		}
		block.Encrypt(x, x)
		out, last = append(out, x...), x
	}
	m := hmac.New(sha256.New, key[size:])
	if len(aad) == 12 {
		m.Write(slices.Concat(aad[:4], aad[8:], nonce, out, aad[4:8]))
	} else {
		m.Write(slices.Concat(aad, nonce, out))
	}
	return append(out, m.Sum(nil)[:16]...)
}

// TestEveryLength has each length of text up to several chunks of all forms, one algorithm at a time.
func TestEveryLength(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		for _, a := range everyAlgorithm {
			m := &maker{Rand: rand.New(rand.NewPCG(1, uint64(a)))}
			m.key(t, a)
			for size := 0; size <= 5000; size++ {
				m.add(t, 0, size, m.IntN(40))
				if len(m.b.Ops) == 300 || size == 5000 {
					m.roundTrip(t, c)
					m.b.Mem, m.b.Ops, m.text, m.want = nil, nil, nil, nil
				}
			}
		}
	})
}

// TestManyKeys mixes algorithms, keys and lengths in a batch.
func TestManyKeys(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		for seed := range uint64(60) {
			m := &maker{Rand: rand.New(rand.NewPCG(2, seed))}
			for range 1 + m.IntN(20) {
				m.key(t, everyAlgorithm[m.IntN(len(everyAlgorithm))])
			}
			for range m.IntN(130) {
				size := m.IntN(300)
				switch m.IntN(4) {
				case 0:
					size = 1408
				case 1:
					size = m.IntN(20000)
				}
				m.add(t, m.IntN(len(m.keys)), size, m.IntN(3)*m.IntN(100))
			}
			m.roundTrip(t, c)
		}
	})
}

// TestLargeText has more blocks than a counter of 16 bits.
func TestLargeText(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		for _, a := range everyAlgorithm {
			m := &maker{Rand: rand.New(rand.NewPCG(3, uint64(a)))}
			m.key(t, a)
			m.add(t, 0, 1<<20+5, 300)
			m.roundTrip(t, c)
		}
	})
}

func TestWycheproof(t *testing.T) {
	text, err := os.ReadFile("testdata/wycheproof.txt")
	if err != nil {
		t.Fatal(err)
	}
	everyForm(t, func(t *testing.T, c *CPU) {
		ran := 0
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			a := Algorithm(slices.Index(algorithmNames[:], f[0]))
			field := func(i int) []byte {
				b, err := hex.DecodeString(strings.Trim(f[i], "-"))
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			k, err := NewKey(a, field(3))
			if err != nil {
				t.Fatal(err)
			}
			aad, msg, ct, tag := field(5), field(6), field(7), field(8)
			op := Op{AADLen: uint16(len(aad)), Text: uint32(len(aad)), Len: uint32(len(msg))}
			copy(op.Nonce[:], field(4))
			b := Batch{Keys: []*Key{k}, Ops: []Op{op}}
			want, result := Forged, make([]byte, len(msg))
			if f[2] == "valid" {
				want, result = Done, msg
				b.Mem = slices.Concat(aad, msg, make([]byte, TagSize))
				if c.Seal(&b); !bytes.Equal(b.Mem, slices.Concat(aad, ct, tag)) {
					t.Errorf("%s %s: sealed %x", f[0], f[1], b.Mem)
				}
			}
			b.Mem = slices.Concat(aad, ct, tag)
			if c.Open(&b); b.Ops[0].Result != want || !bytes.Equal(b.Mem, slices.Concat(aad, result, tag)) {
				t.Errorf("%s %s: %v, %x", f[0], f[1], b.Ops[0].Result, b.Mem)
			}
			ran++
		}
		if ran < 400 {
			t.Errorf("only %d vectors", ran)
		}
	})
}

// TestCBCVector has RFC 3602 4, case 1. HMAC-SHA-256 has vectors in gpukern/digest.
func TestCBCVector(t *testing.T) {
	aes, _ := hex.DecodeString("06a9214036b8a15b512e03d534120006")
	iv, _ := hex.DecodeString("3dafba429d9eb430b422da802c9fac41")
	k, err := NewKey(AES128CBCSHA256, append(aes, make([]byte, 32)...))
	if err != nil {
		t.Fatal(err)
	}
	b := Batch{Mem: append([]byte("Single block msg"), make([]byte, TagSize+8)...), Keys: []*Key{k}}
	b.Ops = []Op{{Nonce: [16]byte(iv), Len: 16, AAD: 32, AADLen: 8}}
	NewCPU().Seal(&b)
	if got := hex.EncodeToString(b.Mem[:16]); got != "e353779c1079aeb82708942dbe77181a" {
		t.Errorf("%v: %s", b.Ops[0].Result, got)
	}
}

// TestNonceReuse: the first operation with a nonce is sealed, later ones are left as they are.
func TestNonceReuse(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		for _, a := range everyAlgorithm {
			m := &maker{Rand: rand.New(rand.NewPCG(4, uint64(a)))}
			m.key(t, a)
			m.key(t, a)
			m.keys, m.b.Keys = append(m.keys, m.keys[0]), append(m.b.Keys, m.b.Keys[0]) // the same key again
			for i := range 300 {
				m.add(t, i%3, 64, 8)
			}
			ops := m.b.Ops
			for i := range ops[:200] {
				ops[i].Nonce = [16]byte{}
				binary.BigEndian.PutUint64(ops[i].Nonce[4:], uint64(i/3))
			}
			ops[299].Nonce, ops[297].Nonce = ops[298].Nonce, ops[298].Nonce
			if !a.cbc() {
				ops[299].Nonce[12] ^= 1 // does not count
			}
			// 297 and 299 have one key. So have 0 and 2, 3 and 5, and so on, which count alike.
			reused := map[int]bool{299: true}
			for i := 2; i < 200; i += 3 {
				reused[i] = true
			}
			before := slices.Clone(m.b.Mem)
			for range 3 { // the set is reused
				copy(m.b.Mem, before)
				c.Seal(&m.b)
				for i := range ops {
					if got := ops[i].Result == NonceReused; got != reused[i] {
						t.Fatalf("%v: operation %d: %v", a, i, ops[i].Result)
					}
					end := ops[i].Text + ops[i].Len + TagSize
					if same := bytes.Equal(before[ops[i].Text:end], m.b.Mem[ops[i].Text:end]); same != reused[i] {
						t.Fatalf("%v: operation %d has changed: %v", a, i, !same)
					}
				}
			}
		}
	})
}

// TestRefused has operations that reach outside of their memory or do not fit their algorithm, beside one that is right.
func TestRefused(t *testing.T) {
	gcm, err := NewKey(AES128GCM, make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	cbc, _ := NewKey(AES128CBCSHA256, make([]byte, 48))
	cleared, _ := NewKey(ChaCha20Poly1305, make([]byte, 32))
	cleared.Clear()
	ops := []Op{
		{Len: 100, AAD: 200, AADLen: 10, Result: Done},
		{Nonce: [16]byte{1}, Text: 200, Len: 40, Result: Done}, // to the last byte
		{Nonce: [16]byte{2}, Text: 200, Len: 41, Result: BadRange},
		{Text: 1 << 31, Len: 1 << 31, Result: BadRange},
		{Text: ^uint32(0), Len: ^uint32(0), Result: BadRange},
		{AAD: 250, AADLen: 7, Result: BadRange},
		{Text: 100, Len: 16, AAD: 115, AADLen: 1, Result: BadRange},
		{Text: 100, Len: 16, AAD: 131, AADLen: 1, Result: BadRange}, // the tag's last byte
		{Text: 100, Len: 16, AAD: 92, AADLen: 9, Result: BadRange},
		{Key: 1, Text: 120, Len: 8, AADLen: 8, Result: BadLength},
		{Key: 1, Text: 120, Len: 16, AADLen: 4, Result: BadLength},
		{Key: 1, Text: 120, Len: 16, AADLen: 8, Nonce: [16]byte{3}, Result: Done},
		{Key: 2, Result: BadKey},
		{Key: 3, Result: BadKey},
		{Key: 4, Result: BadKey},
		{Key: 5, Result: BadKey},
		{Key: ^uint32(0), Result: BadKey},
	}
	everyForm(t, func(t *testing.T, c *CPU) {
		b := Batch{Mem: make([]byte, 256), Keys: []*Key{gcm, cbc, cleared, nil, {}}, Ops: slices.Clone(ops)}
		if n := c.Seal(&b); n != 3 {
			t.Errorf("%d sealed", n)
		}
		for i := range ops {
			if b.Ops[i].Result != ops[i].Result {
				t.Errorf("operation %d: sealing returns %v, want %v", i, b.Ops[i].Result, ops[i].Result)
			}
		}
		c.Open(&b)
		for i := range ops {
			if got := b.Ops[i].Result; got != ops[i].Result && ops[i].Result != Done {
				t.Errorf("operation %d: opening returns %v, want %v", i, got, ops[i].Result)
			}
		}
		empty := Batch{}
		if c.Seal(&empty)+c.Open(&empty) != 0 {
			t.Error("an empty batch has operations")
		}
	})
}

func TestKeys(t *testing.T) {
	for a := range Algorithm(20) {
		for size := range 100 {
			k, err := NewKey(a, make([]byte, size))
			if err == nil && k.Algorithm() != a {
				t.Errorf("a key of %v is of %v", a, k.Algorithm())
			}
			want := ErrKeySize
			switch {
			case a == 0 || a >= algorithms:
				want = ErrAlgorithm
			case size == a.KeySize():
				want = nil
			}
			if err != want {
				t.Errorf("%v, %d bytes: %v", a, size, err)
			}
		}
	}
}

// TestExpansion compares the last round keys with FIPS 197 A.1 and A.3.
func TestExpansion(t *testing.T) {
	for text, last := range map[string]string{
		"2b7e151628aed2a6abf7158809cf4f3c":                                 "d014f9a8c9ee2589e13f0cc8b6630ca6",
		"603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4": "fe4890d1e6188d0b046df344706c631e",
	} {
		key, _ := hex.DecodeString(text)
		k := &Key{}
		k.expandAES(key)
		n := 16 * k.image.Rounds
		if got := hex.EncodeToString(k.image.Round[n : n+16]); got != last {
			t.Errorf("the last round key is %s, want %s", got, last)
		}
	}
	// The S-box is a permutation that has these four values (FIPS 197, figure 7).
	for _, substitute := range []func(uint32) uint32{substitute, substitutePlain} {
		seen := map[uint32]bool{}
		for i := range uint32(256) {
			seen[substitute(i)&0xff] = true
		}
		if len(seen) != 256 || substitute(0x53ff0001) != 0xed16637c {
			t.Errorf("%d values, %#x", len(seen), substitute(0x53ff0001))
		}
	}
}

// TestClear looks for the key's bytes afterwards.
func TestClear(t *testing.T) {
	for _, a := range everyAlgorithm {
		k, err := NewKey(a, bytes.Repeat([]byte{0x77}, a.KeySize()))
		if err != nil {
			t.Fatal(err)
		}
		k.Clear()
		if *k.Image() != (Image{}) {
			t.Errorf("%v: %x is left", a, *k.Image())
		}
		c := NewCPU()
		b := Batch{Mem: make([]byte, 32), Keys: []*Key{k}, Ops: []Op{{}}}
		if c.Seal(&b) != 0 || b.Ops[0].Result != BadKey {
			t.Errorf("%v: %v", a, b.Ops[0].Result)
		}
	}
}

// TestScratch: no key, key stream or tag is left in a CPU.
func TestScratch(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		for _, a := range everyAlgorithm {
			m := &maker{Rand: rand.New(rand.NewPCG(6, uint64(a)))}
			m.key(t, a)
			for _, size := range []int{0, 64, 1000, 1008, 2000, 5000} {
				m.add(t, 0, size, 8)
			}
			m.roundTrip(t, c)
			if c.chacha != (chachaBatch{}) || c.tag != [TagSize]byte{} {
				t.Errorf("%v leaves secrets", a)
			}
		}
	})
}

// TestLayout makes operations for packets of ESP in an arena.
func TestLayout(t *testing.T) {
	esp := Layout{AAD: 34, AADLen: 8, Text: 50} // Ethernet, IPv4; SPI, sequence number, IV
	d := packet.Desc{Off: 4096 + 64, Len: 1000}
	op, ok := esp.Op(&d, 7)
	if want := (Op{Text: 4160 + 50, Len: 1000 - 16 - 50, AAD: 4160 + 34, AADLen: 8, Key: 7}); !ok || op != want {
		t.Errorf("%+v, %v", op, ok)
	}
	for _, d := range []packet.Desc{{Len: 65}, {}, {Len: 1000, Flags: packet.FlagMore}} {
		if op, ok := esp.Op(&d, 0); ok {
			t.Errorf("%+v has %+v", d, op)
		}
	}
	if op, ok := esp.Op(&packet.Desc{Len: 66}, 0); !ok || op.Len != 0 {
		t.Errorf("an empty text: %+v, %v", op, ok)
	}
	if _, ok := (Layout{AAD: 90, AADLen: 11}).Op(&packet.Desc{Len: 100}, 0); ok {
		t.Error("associated data behind the packet")
	}
}

func TestSizes(t *testing.T) {
	if s := unsafe.Sizeof(Op{}); s != 40 {
		t.Errorf("Op has %d bytes: it is read by GPUs", s)
	}
	if s := unsafe.Sizeof(Image{}); s%16 != 0 || unsafe.Offsetof(Image{}.Round) != 16 {
		t.Errorf("Image has %d bytes", s)
	}
}

// TestAllocations: batches need none, once scratch memory has its size. x/crypto allocates where it has no assembly.
func TestAllocations(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		m := &maker{Rand: rand.New(rand.NewPCG(5, 0))}
		for _, a := range everyAlgorithm[:3] {
			if a == ChaCha20Poly1305 && c.Form(a) == FormStandard {
				continue
			}
			m.key(t, a)
			for range 40 {
				m.add(t, len(m.keys)-1, 1408, 8)
			}
		}
		c.Seal(&m.b)
		if n := testing.AllocsPerRun(5, func() {
			c.Seal(&m.b)
			c.Open(&m.b)
		}); n > 0 {
			t.Errorf("%.0f allocations", n)
		}
	})
}
