package field25519

// Powers is memory for Invert and PowerP58.
type Powers struct{ t [6]Element }

// PowersRows is the number of rows that a Powers takes.
const PowersRows = 6 * rows

// NewPowers makes a Powers of PowersRows rows, which the caller clears.
func NewPowers(memory []Row) *Powers {
	p := new(Powers)
	for i := range p.t {
		p.t[i] = memory[i*rows:][:rows]
	}
	return p
}

// Invert sets dst to 1/z, and to 0 where z is: z^(p-2) (RFC 7748 5), with p - 2 = 2^255 - 21.
func (p *Powers) Invert(f *Form, dst, z Element) {
	p.ones(f, z)
	f.Squares(dst, p.t[2], 5)
	f.Multiply(dst, dst, p.t[0])
}

// PowerP58 sets dst to z^((p-5)/8), with (p - 5)/8 = 2^252 - 3: square roots are made of it (RFC 8032 5.1.3).
func (p *Powers) PowerP58(f *Form, dst, z Element) {
	p.ones(f, z)
	f.Squares(dst, p.t[2], 2)
	f.Multiply(dst, dst, z)
}

// ones sets t[2] to z^(2^250 - 1), and t[0] to z^11. dst of the callers may be z itself, which is read before.
func (p *Powers) ones(f *Form, z Element) {
	z11, ones, t, u := p.t[0], p.t[1], p.t[2], p.t[3]
	f.Square(z11, z)     // z^2
	f.Squares(t, z11, 2) // z^8
	f.Multiply(t, t, z)  // z^9
	f.Multiply(z11, z11, t)
	f.Square(u, z11)
	f.Multiply(ones, u, t)                    // z^(2^5 - 1)
	double := func(to, from Element, n int) { // to is z^(2^2n - 1), from z^(2^n - 1)
		f.Squares(u, from, n)
		f.Multiply(to, u, from)
	}
	double(t, ones, 5)    // 2^10 - 1
	double(p.t[4], t, 10) // 2^20 - 1
	double(p.t[5], p.t[4], 20)
	f.Squares(u, p.t[5], 10)
	f.Multiply(p.t[4], u, t) // 2^50 - 1
	double(t, p.t[4], 50)    // 2^100 - 1
	double(p.t[5], t, 100)   // 2^200 - 1
	f.Squares(u, p.t[5], 50)
	f.Multiply(t, u, p.t[4]) // 2^250 - 1
}
