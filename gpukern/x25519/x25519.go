package x25519

import "github.com/millrace/millrace/gpukern/field25519"

// Lanes is the most products that a pass has, Size the length of scalars and points in bytes.
const (
	Lanes = field25519.MaxLanes
	Size  = field25519.Size
)

const rows = field25519.ElementRows

// form is the fastest one of this CPU. Tests exchange it.
var form = field25519.Best()

// a24 is (486662 - 2) / 4 (RFC 7748 4.1), for each lane.
var a24 = field25519.Row{121665, 121665, 121665, 121665, 121665, 121665, 121665, 121665}

// Supported reports whether the CPU computes the lanes in vector units. Without, crypto/ecdh is faster.
func Supported() bool { return form.Vector() }

// Base is the point of public keys: a private key times Base is its public key (RFC 7748 6.1).
var Base = [Size]byte{9}

// Pass is memory for as many products as the form has lanes. It is not safe for concurrent use.
type Pass struct {
	f              *field25519.Form
	rows           []field25519.Row
	first          field25519.Element // u of the points
	left, right    []field25519.Row   // x and z of either side of the ladder
	t              [6]field25519.Element
	swap, previous *field25519.Row
	powers         *field25519.Powers
	scalars        [Lanes][Size]byte
}

// NewPass returns the memory of a pass: 5 KB.
func NewPass() *Pass {
	p := &Pass{f: form, rows: field25519.Rows(11*rows + field25519.PowersRows + 2)}
	rest := p.rows
	cut := func(n int) []field25519.Row {
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	p.first, p.left, p.right = cut(rows), cut(2*rows), cut(2*rows)
	for i := range p.t {
		p.t[i] = cut(rows)
	}
	p.powers = field25519.NewPowers(cut(field25519.PowersRows))
	p.swap, p.previous = &cut(1)[0], &cut(1)[0]
	return p
}

// Lanes returns how many products Multiply makes at most.
func (p *Pass) Lanes() int { return p.f.Lanes() }

// Clear overwrites the memory of secrets.
func (p *Pass) Clear() {
	clear(p.rows)
	clear(p.scalars[:])
}

// Multiply sets products to scalars times points, of which there are up to as many as lanes (RFC 7748 5). Scalars are clamped, and the
// topmost bit of a point is ignored. It clears its memory.
func (p *Pass) Multiply(products, scalars, points [][Size]byte) {
	defer p.Clear()
	for lane := range scalars {
		p.set(lane, lane, &scalars[lane], &points[lane])
	}
	p.ladder()
	p.divide()
	for lane := range scalars {
		p.f.Bytes(&products[lane], p.left[:rows], lane)
	}
}

// set clamps scalar number n, and puts a point into a lane.
func (p *Pass) set(n, lane int, scalar, point *[Size]byte) {
	k := &p.scalars[n]
	*k = *scalar
	k[0] &= 248
	k[31] = k[31]&127 | 64
	p.f.Set(p.first, lane, point)
}

// ladder is the loop of RFC 7748 5, over the bits of the clamped scalars.
func (p *Pass) ladder() {
	lanes := p.f.Lanes()
	one := [Size]byte{1}
	p.f.SetAll(p.left[:rows], &one) // (1:0), infinity
	p.f.SetAll(p.right[rows:], &one)
	copy(p.right, p.first)
	for t := 254; t >= 0; t-- {
		for lane := range lanes {
			bit := uint64(p.scalars[lane][t/8]>>(t%8)) & 1
			p.swap[lane] = p.previous[lane] ^ bit
			p.previous[lane] = bit
		}
		p.f.Swap(p.left, p.right, p.swap)
		p.step()
	}
	// Bit 0 of a clamped scalar is clear: the exchange that RFC 7748 has here does nothing.
}

// step doubles the left side and adds it to the right one, with the names of RFC 7748 5.
func (p *Pass) step() {
	f := p.f
	x2, z2, x3, z3 := p.left[:rows], p.left[rows:], p.right[:rows], p.right[rows:]
	a, b, c, d, e, unused := p.t[0], p.t[1], p.t[2], p.t[3], p.t[4], p.t[5]
	f.AddSubtract(a, b, x2, z2)
	f.AddSubtract(c, d, x3, z3)
	f.Multiply(d, d, a) // DA
	f.Multiply(c, c, b) // CB
	f.Square(a, a)      // AA
	f.Square(b, b)      // BB
	f.AddSubtract(x3, z3, d, c)
	f.Square(x3, x3)
	f.Square(z3, z3)
	f.Multiply(z3, z3, p.first)
	f.Multiply(x2, a, b)
	f.AddSubtract(unused, e, a, b)
	f.Scale(a, e, a, &a24)
	f.Multiply(z2, e, a)
}

// divide sets x of the left side to x/z, and to 0 if z is.
func (p *Pass) divide() {
	x, z := p.left[:rows], p.left[rows:]
	p.powers.Invert(p.f, p.t[0], z)
	p.f.Multiply(x, x, p.t[0])
}
