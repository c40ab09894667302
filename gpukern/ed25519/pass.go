package ed25519

import (
	standard "crypto/ed25519"
	"crypto/sha512"
	"fmt"

	"github.com/millrace/millrace/gpukern/field25519"
)

// MaxLanes is the most operations that a pass has.
const MaxLanes = field25519.MaxLanes

// form is the fastest one of this CPU. Tests exchange it.
var form = field25519.Best()

// Supported reports whether the CPU computes the lanes in vector units. Without, crypto/ed25519 is faster.
func Supported() bool { return form.Vector() }

// AtOnce returns how many operations a pass has at most.
func AtOnce() int { return form.Lanes() }

// Key is a private key with a table for its public key. It is read only until Clear, and safe for concurrent use.
type Key struct {
	f       *field25519.Form
	public  [32]byte
	prefix  [32]byte // of the hash that nonces come from (RFC 8032 5.1.5)
	a       scalar   // times R modulo the order
	inverse table    // of minus the public key
}

// NewKey prepares a key. The table takes 123 KB.
func NewKey(key standard.PrivateKey) (*Key, error) {
	if len(key) != standard.PrivateKeySize {
		return nil, fmt.Errorf("ed25519: a private key of %d bytes, not %d", len(key), standard.PrivateKeySize)
	}
	k := &Key{f: form, public: [32]byte(key[32:])}
	b := newTableBuilder(form)
	if right := b.decompress(&b.p, b.powers, [][32]byte{k.public}); !right[0] {
		return nil, fmt.Errorf("ed25519: the public key %x is no point of the curve", k.public)
	}
	b.negate(&b.p)
	k.inverse = b.build()
	h := sha512.Sum512(key[:32])
	defer clear(h[:])
	k.prefix = [32]byte(h[32:])
	h[0] &= 248
	h[31] = h[31]&63 | 64
	a := scalarOf(h[:32])
	k.a = product(&a, &r2)
	clear(a[:])
	return k, nil
}

// Clear overwrites the private key. It must not be used afterwards.
func (k *Key) Clear() {
	clear(k.prefix[:])
	clear(k.a[:])
}

// Pass is memory for as many operations as the form has lanes. It is not safe for concurrent use.
type Pass struct {
	arithmetic
	generator table
	rows      []field25519.Row
	powers    *field25519.Powers
	sum, key  point
	entry     []field25519.Row // of four elements
	multiples []field25519.Row // of the keys: 16 of four elements
	index     *field25519.Row
	r, k, s   [MaxLanes]scalar
}

// NewPass returns the memory of a pass: 33 KB.
func NewPass() *Pass {
	const parts = arithmeticRows + field25519.PowersRows + 3*pointRows + field25519.Entries*pointRows + 1
	p := &Pass{generator: generatorOf(form), rows: field25519.Rows(parts)}
	rest := p.rows
	cut := func(n int) []field25519.Row {
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	p.arithmetic = newArithmetic(form, cut(arithmeticRows))
	p.powers = field25519.NewPowers(cut(field25519.PowersRows))
	p.sum, p.key, p.entry = newPoint(cut(pointRows)), newPoint(cut(pointRows)), cut(pointRows)
	p.multiples, p.index = cut(field25519.Entries*pointRows), &cut(1)[0]
	return p
}

// Lanes returns how many operations a pass has at most.
func (p *Pass) Lanes() int { return p.f.Lanes() }

// Clear overwrites the memory of secrets.
func (p *Pass) Clear() {
	clear(p.rows)
	clear(p.r[:])
	clear(p.s[:])
	clear(p.k[:])
}

// hash returns SHA-512 of the parts modulo the order.
func hash(parts ...[]byte) scalar {
	h := sha512.New()
	for _, b := range parts {
		h.Write(b)
	}
	var sum [64]byte
	h.Sum(sum[:0])
	s := reduce(&sum)
	clear(sum[:])
	return s
}

// setIndex sets the index to a window of the scalars.
func (p *Pass) setIndex(scalars *[MaxLanes]scalar, w int) {
	for lane := range p.f.Lanes() {
		p.index[lane] = scalars[lane].window(w)
	}
}

// addPublic adds a public multiple of the point of each lane's table.
func (p *Pass) addPublic(tables *[MaxLanes]table, scalars *[MaxLanes]scalar) {
	var at [MaxLanes][]uint64
	for w := range windows {
		p.setIndex(scalars, w)
		for lane := range p.f.Lanes() {
			at[lane] = tables[lane].window(w)
		}
		p.f.Gather(p.entry, &at, p.index)
		p.addEntry(&p.sum, p.entry)
	}
}

// generators returns the generator's table for each lane.
func (p *Pass) generators() (t [MaxLanes]table) {
	for lane := range t {
		t[lane] = p.generator
	}
	return t
}
