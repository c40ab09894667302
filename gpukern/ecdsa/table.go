package ecdsa

import (
	"math/big"
	"unsafe"
)

// Windows of signed digits in bits. The generator's tables have 110 KB for P-256 and 262 KB for P-384, and stay in the second
// cache. A key's are read by public digits, and have 41 KB and 98 KB.
const (
	generatorBits = 6
	tableEntries  = 1 << (generatorBits - 1)
	keyBits       = 4
)

// table has the odd multiples of a point times powers of two: entry e of window w is (2e + 1) * 2^(bits*w) times the
// point, affine and in Montgomery's form. A window has the digits of x, then those of y, each of all entries side by side.
type table struct {
	bits    int
	windows int
	stride  int // words of a window
	words   []uint64
}

// window returns the words of window w.
func (t *table) window(w int) []uint64 { return t.words[w*t.stride:][:t.stride] }

// entries returns the entries of a window.
func (t *table) entries() int { return 1 << (t.bits - 1) }

// newTable computes the table of a point, which is public.
func (c *Curve) newTable(x, y *big.Int, bits int) *table {
	digits := c.p.digits
	t := &table{bits: bits, windows: (c.params.BitSize + bits - 1) / bits}
	t.stride = 2 * digits * t.entries()
	rows := alignedRows((t.windows*t.stride + Lanes - 1) / Lanes)
	t.words = unsafe.Slice(&rows[0][0], t.windows*t.stride)
	b := newTableBuilder(c)
	b.powers(x, y, t)
	for first := 0; first < t.windows; first += Lanes {
		b.multiples(first, t)
	}
	return t
}

// tableBuilder has the memory for the making of a table.
type tableBuilder struct {
	c        *Curve
	p, twice point
	t        temporaries
	inverse  []row      // memory of invert
	starts   [][]uint64 // entry 0 of each window: the digits of x, y and z
	made     []point    // the multiples of the lanes' points
	products []element  // of the z of made
}

func newTableBuilder(c *Curve) *tableBuilder {
	b := &tableBuilder{c: c, inverse: alignedRows(inverseEntries * c.p.digits)}
	b.p, b.twice = c.newPoint(), c.newPoint()
	for i := range b.t {
		b.t[i] = alignedRows(c.p.digits)
	}
	return b
}

func (c *Curve) newPoint() point {
	d := c.p.digits
	rows := alignedRows(3 * d)
	return point{rows[:d:d], rows[d : 2*d : 2*d], rows[2*d:]}
}

// powers doubles the point for the first entries of all windows. All lanes have the same.
func (b *tableBuilder) powers(x, y *big.Int, t *table) {
	f := b.c.p
	for lane := range Lanes {
		setLane(b.p.x, lane, f.residue(x))
		setLane(b.p.y, lane, f.residue(y))
	}
	copy(b.p.z, f.one)
	for range t.windows {
		b.starts = append(b.starts, b.p.lane(0))
		for range t.bits {
			f.double(&b.p, b.c.zero, &b.t)
		}
	}
}

// lane returns the digits of x, y and z of a lane.
func (p *point) lane(lane int) []uint64 {
	n := len(p.x)
	d := make([]uint64, 3*n)
	laneOf(d, p.x, lane)
	laneOf(d[n:], p.y, lane)
	laneOf(d[2*n:], p.z, lane)
	return d
}

// multiples makes the entries of eight windows from first on, a window to a lane. Lanes beyond the last window are not stored.
func (b *tableBuilder) multiples(first int, t *table) {
	f, n := b.c.p, b.c.p.digits
	for lane := range Lanes {
		d := b.starts[min(first+lane, t.windows-1)]
		setLane(b.p.x, lane, d[:n])
		setLane(b.p.y, lane, d[n:2*n])
		setLane(b.p.z, lane, d[2*n:])
	}
	b.twice.set(&b.p)
	f.double(&b.twice, b.c.zero, &b.t)
	for e := range t.entries() {
		if e == len(b.made) {
			b.made, b.products = append(b.made, b.c.newPoint()), append(b.products, alignedRows(n))
		}
		b.made[e].set(&b.p)
		f.add(&b.p, &b.twice, &b.t)
		f.negate(&b.p, b.c.zero)
	}
	b.store(first, t)
}

func (p *point) set(q *point) {
	copy(p.x, q.x)
	copy(p.y, q.y)
	copy(p.z, q.z)
}

// store writes the affine coordinates of the points made. One inverse is enough for all: of the product of the z
// (P. Montgomery, Speeding the Pollard and elliptic curve methods of factorization, 1987).
func (b *tableBuilder) store(first int, t *table) {
	f, entries := b.c.p, t.entries()
	copy(b.products[0], b.made[0].z)
	for e := 1; e < entries; e++ {
		f.multiply(b.products[e], b.products[e-1], b.made[e].z)
	}
	all, zinv, zz := b.t[0], b.t[1], b.t[2]
	f.invert(all, b.products[entries-1], b.inverse)
	for e := entries - 1; e >= 0; e-- {
		p := &b.made[e]
		copy(zinv, all)
		if e > 0 {
			f.multiply(zinv, all, b.products[e-1])
			f.multiply(all, all, p.z)
		}
		f.multiply(zz, zinv, zinv)
		f.multiply(p.x, p.x, zz)
		f.multiply(zz, zz, zinv)
		f.multiply(p.y, p.y, zz)
		b.storeEntry(first, e, t)
	}
}

// storeEntry writes entry e of the lanes' windows.
func (b *tableBuilder) storeEntry(first, e int, t *table) {
	f, p := b.c.p, &b.made[e]
	d := make([]uint64, f.digits)
	for lane := range min(Lanes, t.windows-first) {
		window := t.window(first + lane)
		for i, coordinate := range [2]element{p.x, p.y} {
			laneOf(d, coordinate, lane)
			f.lower(d)
			for j, v := range d {
				window[(i*f.digits+j)*t.entries()+e] = v
			}
		}
	}
}
