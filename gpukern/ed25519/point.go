package ed25519

import (
	"slices"

	"github.com/millrace/millrace/gpukern/field25519"
)

const rows = field25519.ElementRows

// element is a number modulo 2^255 - 19 for each lane.
type element = field25519.Element

// point is a point of each lane: x/z, y/z, and t = xy/z (H. Hisil, K. Wong, G. Carter, E. Dawson, Twisted Edwards curves revisited,
// 2008). The formulas are complete: no point is an exception.
type point struct{ x, y, z, t element }

const pointRows = 4 * rows

// newPoint makes a point of memory.
func newPoint(m []field25519.Row) point {
	return point{element(m[:rows]), element(m[rows:][:rows]), element(m[2*rows:][:rows]), element(m[3*rows:][:rows])}
}

func (p *point) set(q *point) {
	copy(p.x, q.x)
	copy(p.y, q.y)
	copy(p.z, q.z)
	copy(p.t, q.t)
}

// constants are the same in all lanes.
type constants struct{ zero, one, two, d, d2, root element }

// constantsOf are those of each form.
var constantsOf = func() map[*field25519.Form]*constants {
	all := map[*field25519.Form]*constants{}
	for _, f := range field25519.Forms() {
		set := func(b [32]byte) element {
			e := element(field25519.Rows(rows))
			f.SetAll(e, &b)
			return e
		}
		c := &constants{zero: set([32]byte{}), one: set([32]byte{1}), two: set([32]byte{2})}
		c.d = set(little("52036cee2b6ffe738cc740797779e89800700a4d4141d8ab75eb4dca135978a3"))    // RFC 8032 5.1
		c.d2 = set(little("2406d9dc56dffce7198e80f2eef3d13000e0149a8283b156ebd69b9426b2f159"))   // 2d
		c.root = set(little("2b8324804fc1df0b2b4d00993dfbd7a72f431806ad2fe478c4ee1b274a0ea0b0")) // of -1
		all[f] = c
	}
	return all
}()

// The generator (RFC 8032 5.1).
var (
	generatorX = little("216936d3cd6e53fec0a4e231fdd6dc5c692cc7609525a7b2c9562d608f25d51a")
	generatorY = little("6666666666666666666666666666666666666666666666666666666666666658")
)

// little returns the bytes of a number in hexadecimal digits.
func little(digits string) (b [32]byte) {
	for i := range digits {
		v := digits[i] - '0'
		if v > 9 {
			v = digits[i] - 'a' + 10
		}
		b[31-i/2] |= v << (4 * (1 - i%2))
	}
	return b
}

// arithmetic has the form, constants and temporaries of formulas.
type arithmetic struct {
	f *field25519.Form
	c *constants
	t [8]element // temporaries
}

const arithmeticRows = 8 * rows

func newArithmetic(f *field25519.Form, m []field25519.Row) arithmetic {
	a := arithmetic{f: f, c: constantsOf[f]}
	for i := range a.t {
		a.t[i] = element(m[i*rows:][:rows])
	}
	return a
}

// infinity sets p to the neutral element.
func (a *arithmetic) infinity(p *point) {
	copy(p.x, a.c.zero)
	copy(p.y, a.c.one)
	copy(p.z, a.c.one)
	copy(p.t, a.c.zero)
}

// double sets p to 2p. It leaves t as it is unless asked: only additions need it.
func (a *arithmetic) double(p *point, withT bool) {
	f := a.f
	xx, yy, zz, e, g, h, unused := a.t[0], a.t[1], a.t[2], a.t[3], a.t[4], a.t[5], a.t[6]
	f.AddSubtract(e, unused, p.x, p.y)
	f.Square(xx, p.x)
	f.Square(yy, p.y)
	f.Square(zz, p.z)
	f.Square(e, e)
	f.AddSubtract(h, g, xx, yy)
	f.AddSubtract(unused, e, h, e)
	f.AddSubtract(zz, unused, zz, zz)
	f.AddSubtract(zz, unused, zz, g) // F
	a.finish(p, e, zz, g, h, withT)
}

// finish sets p from the factors of the formulas.
func (a *arithmetic) finish(p *point, e, f, g, h element, withT bool) {
	a.f.Multiply(p.x, e, f)
	a.f.Multiply(p.y, g, h)
	a.f.Multiply(p.z, f, g)
	if withT {
		a.f.Multiply(p.t, e, h)
	}
}

// addEntry adds an affine point: y + x, y - x and 2dxy, side by side.
func (a *arithmetic) addEntry(p *point, entry []field25519.Row) {
	a.f.AddSubtract(a.t[4], a.t[7], p.z, p.z)
	a.add(p, entry)
}

// addProjective adds a point: y + x, y - x, 2dt and 2z, side by side.
func (a *arithmetic) addProjective(p *point, entry []field25519.Row) {
	a.f.Multiply(a.t[4], p.z, element(entry[3*rows:]))
	a.add(p, entry)
}

// add is the rest of both, with twice the product of z in t[4].
func (a *arithmetic) add(p *point, entry []field25519.Row) {
	f := a.f
	sum, difference, c, e, d, h := a.t[0], a.t[1], a.t[2], a.t[3], a.t[4], a.t[5]
	f.AddSubtract(sum, difference, p.y, p.x)
	f.Multiply(sum, sum, element(entry[:rows]))
	f.Multiply(difference, difference, element(entry[rows:][:rows]))
	f.Multiply(c, p.t, element(entry[2*rows:][:rows]))
	f.AddSubtract(h, e, sum, difference)
	f.AddSubtract(d, c, d, c) // G, F
	a.finish(p, e, c, d, h, true)
}

// projective sets entry, of four elements, to what addProjective takes of p.
func (a *arithmetic) projective(entry []field25519.Row, p *point) {
	f := a.f
	f.AddSubtract(element(entry[:rows]), element(entry[rows:]), p.y, p.x)
	f.Multiply(element(entry[2*rows:]), p.t, a.c.d2)
	f.AddSubtract(element(entry[3*rows:]), a.t[7], p.z, p.z)
}

// negate sets p to -p.
func (a *arithmetic) negate(p *point) {
	a.f.AddSubtract(a.t[0], p.x, a.c.zero, p.x)
	a.f.AddSubtract(a.t[0], p.t, a.c.zero, p.t)
	// What is subtracted later must be a product.
	a.f.Multiply(p.x, p.x, a.c.one)
	a.f.Multiply(p.t, p.t, a.c.one)
}

// decompress sets p to the points that keys encode (RFC 8032 5.1.3), and reports which do. As crypto/ed25519 it takes y that are not
// below the prime, and a sign of x = 0.
func (a *arithmetic) decompress(p *point, powers *field25519.Powers, encoded [][32]byte) (right [field25519.MaxLanes]bool) {
	f := a.f
	for lane := range f.Lanes() {
		f.Set(p.y, lane, &encoded[min(lane, len(encoded)-1)])
	}
	copy(p.z, a.c.one)
	u, v, v3, root, t, unused := a.t[0], a.t[1], a.t[2], a.t[3], a.t[4], a.t[5]
	f.Square(v, p.y)
	f.AddSubtract(unused, u, v, a.c.one) // y^2 - 1
	f.Multiply(v, v, a.c.d)
	f.AddSubtract(v, unused, v, a.c.one) // dy^2 + 1
	f.Square(v3, v)
	f.Multiply(v3, v3, v)
	f.Square(t, v3)
	f.Multiply(t, t, v)
	f.Multiply(t, t, u) // uv^7
	powers.PowerP58(f, root, t)
	f.Multiply(root, root, v3)
	f.Multiply(root, root, u)
	f.Square(t, root)
	f.Multiply(t, t, v) // u, or -u: then the root of u/v is this one times that of -1
	f.Multiply(u, u, a.c.one)
	f.Multiply(v3, root, a.c.root)
	f.AddSubtract(v, unused, t, u)
	for lane := range f.Lanes() {
		var is, want, sum [32]byte
		f.Bytes(&is, t, lane)
		f.Bytes(&want, u, lane)
		f.Bytes(&sum, v, lane)
		right[lane] = is == want || sum == [32]byte{}
		if is != want {
			f.CopyLane(root, lane, v3, lane)
		}
	}
	a.setSigns(p, root, encoded)
	return right
}

// setSigns sets x to the root, or to minus it, by the topmost bit of the encodings.
func (a *arithmetic) setSigns(p *point, root element, encoded [][32]byte) {
	f, other := a.f, a.t[2]
	f.AddSubtract(a.t[0], other, a.c.zero, root)
	f.Multiply(other, other, a.c.one)
	for lane := range f.Lanes() {
		var x [32]byte
		f.Bytes(&x, root, lane)
		from := root
		if x[0]&1 != encoded[min(lane, len(encoded)-1)][31]>>7 {
			from = other
		}
		f.CopyLane(p.x, lane, from, lane)
	}
	f.Multiply(p.t, p.x, p.y)
}

// encode sets to to the encodings of p (RFC 8032 5.1.2), and p to affine coordinates.
func (a *arithmetic) encode(to [][32]byte, p *point, powers *field25519.Powers) {
	f, inverse := a.f, a.t[0]
	powers.Invert(f, inverse, p.z)
	f.Multiply(p.x, p.x, inverse)
	f.Multiply(p.y, p.y, inverse)
	for lane := range to {
		a.encodeLane(&to[lane], p, lane)
	}
}

// encodeLane is encode for one lane, which is affine.
func (a *arithmetic) encodeLane(to *[32]byte, p *point, lane int) {
	var x [32]byte
	a.f.Bytes(to, p.y, lane)
	a.f.Bytes(&x, p.x, lane)
	to[31] |= x[0] << 7
}

// same reports whether two encodings are equal. They are public.
func same(a, b []byte) bool { return slices.Equal(a, b) }
