package ecdsa

// This file verifies the signatures of a pass, all together. Every signature says R = (e/s)*G + (r/s)*Q. The pass knows R,
// of which r has only x, so that the sum of all R is compared with the sum of the right sides. That takes one multiple of G
// and one of each key, an eighth of it in each lane. A wrong signature makes the sums differ, unless others
// are wrong by what cancels it: that is no fault of a machine. Everything here is public.

// summand is a point to be added.
type summand struct {
	t        *table // nil: the R of signature index
	window   int
	index    uint64
	negative bool
}

// verify reports whether all signatures are right.
func (p *Pass) verify() bool {
	f := p.c.n
	u1, u2, product, x := p.t[0], p.t[1], p.t[2], p.t[3]
	p.c.p.multiply(x, p.x, p.c.p.unit)
	f.multiply(u2, p.w, f.r2)
	f.multiply(product, u2, p.s) // 1: w is derived from what s is, not from s
	f.multiply(u1, u2, p.e)
	f.multiply(u2, u2, p.r)
	for _, e := range []element{u1, u2, product, x} {
		p.lower(e)
	}
	var multipleOfG [maxDigits]uint64
	multiples := make(map[*Key][]uint64, 1)
	var order []*Key
	for i, k := range p.keys[:p.n] {
		if !sameLane(product, f.unit, i) || !sameLane(p.r, x, i) || sameLane(p.r, p.c.zero, i) || sameLane(p.s, p.c.zero, i) {
			return false
		}
		if multiples[k] == nil {
			multiples[k] = make([]uint64, f.digits)
			order = append(order, k)
		}
		f.accumulate(multipleOfG[:f.digits], u1, i)
		f.accumulate(multiples[k], u2, i)
	}
	summands := f.summands(make([]summand, 0, 256), p.c.generator, multipleOfG[:f.digits])
	for _, k := range order {
		summands = f.summands(summands, k.public, multiples[k])
	}
	for i := range p.n {
		summands = append(summands, summand{index: uint64(i), negative: true})
	}
	return len(summands) >= 2*Lanes && p.sumIsZero(summands)
}

// accumulate adds a lane of x to sum, modulo n.
func (f *field) accumulate(sum []uint64, x element, lane int) {
	var carry uint64
	for i := range sum {
		v := sum[i] + x[i][lane] + carry
		sum[i], carry = v&digitMask, v>>digitBits
	}
	f.lower(sum)
}

// sameLane reports whether a lane of x and y has the same digits.
func sameLane(x, y element, lane int) bool {
	for i := range x {
		if x[i][lane] != y[i][lane] {
			return false
		}
	}
	return true
}

// summands appends the entries of a table that make up a multiple k.
func (f *field) summands(to []summand, t *table, k []uint64) []summand {
	if f.isZero(k) {
		return to
	}
	r := f.recode(k, t.bits, t.windows)
	for w := range t.windows {
		index, negative := r.window(w)
		to = append(to, summand{t: t, window: w, index: index, negative: negative^r.odd^1 != 0})
	}
	return to
}

// sumIsZero adds the summands, eight at once, and reports whether the sum is the point at infinity. There are 16 or more.
func (p *Pass) sumIsZero(summands []summand) bool {
	f := p.c.p
	for lane := range Lanes {
		p.setSummand(p.sum.x, p.sum.y, lane, summands[lane], 0)
	}
	copy(p.sum.z, f.one)
	for round := 1; round*Lanes < len(summands); round++ {
		left := summands[round*Lanes:]
		n := min(Lanes, len(left))
		for lane := range n {
			p.setSummand(p.entryX, p.entryY, lane, left[lane], round)
		}
		if n < Lanes { // the other lanes keep what they have, negated as the sums are
			p.other.set(&p.sum)
			f.negate(&p.other, p.c.zero)
		}
		f.addAffine(&p.sum, p.entryX, p.entryY, &p.t)
		for lane := n; lane < Lanes; lane++ {
			p.sum.copyLane(&p.other, lane, lane)
		}
	}
	for _, distance := range []int{4, 2} {
		for lane := range Lanes {
			p.other.copyLane(&p.sum, lane, lane^distance)
		}
		f.add(&p.sum, &p.other, &p.t)
	}
	return p.lanesAreInverse()
}

// copyLane sets a lane of p to a lane of q.
func (p *point) copyLane(q *point, to, from int) {
	for i := range p.x {
		p.x[i][to], p.y[i][to], p.z[i][to] = q.x[i][from], q.y[i][from], q.z[i][from]
	}
}

// setSummand sets a lane of x and y to a summand of a round.
func (p *Pass) setSummand(x, y element, lane int, s summand, round int) {
	negative := s.negative != (flip(round) != 0)
	if s.t == nil {
		for i := range x {
			x[i][lane], y[i][lane] = p.x[i][s.index], p.y[i][s.index]
		}
	} else {
		entries := s.t.entries()
		window := s.t.window(s.window)[s.index:]
		for i := range x {
			x[i][lane], y[i][lane] = window[i*entries], window[(len(x)+i)*entries]
		}
	}
	if negative {
		negateLane(y, lane, p.c.p)
	}
}

// negateLane sets a lane of y, which is below 4, to the bias less y.
func negateLane(y element, lane int, f *field) {
	var borrow uint64
	for i := range y {
		v := f.m.bias[i] - y[i][lane] - borrow
		y[i][lane], borrow = v&digitMask, v>>63
	}
}

// lanesAreInverse reports whether the sums in lanes 0 and 1 are points other than infinity, and inverses: an addition of
// them would have z = 0 as one with a fault may have.
func (p *Pass) lanesAreInverse() bool {
	f := p.c.p
	for lane := range 2 {
		p.other.copyLane(&p.sum, lane, lane^1)
	}
	x, y, z, zz := p.t[0], p.t[1], p.t[2], p.t[3]
	f.multiply(zz, p.other.z, p.other.z)
	f.multiply(x, p.sum.x, zz)
	f.multiply(zz, zz, p.other.z)
	f.multiply(y, p.sum.y, zz)
	f.multiply(x, x, f.unit)
	f.multiply(y, y, f.unit)
	f.multiply(z, p.sum.z, f.unit)
	var d [2][3][maxDigits]uint64
	for lane := range d {
		for i, e := range []element{x, y, z} {
			laneOf(d[lane][i][:], e, lane)
			f.lower(d[lane][i][:f.digits])
		}
		if f.isZero(d[lane][2][:f.digits]) {
			return false
		}
	}
	sum := d[0][1][:f.digits]
	f.accumulate(sum, y, 1)
	return d[0][0] == d[1][0] && f.isZero(sum)
}
