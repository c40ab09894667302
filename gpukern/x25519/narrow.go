package x25519

// A lone exchange has two products, which would leave six lanes of a pass idle. Here each product has four lanes: x2, z2, x3 and z3 of
// RFC 7748 5. A step of the ladder multiplies four times in them, where one lane multiplies ten times:
//
//	lanes          x2           z2             x3         z3
//	butterfly      A            B              C          D
//	multiply       AA = A*A     BB = B*B       CB = C*B   DA = D*A
//	butterfly      AA           E = AA - BB    CB + DA    CB - DA
//	multiply by    BB           AA + a24*E     CB + DA    CB - DA
//	multiply by    1            1              1          x1
//
// A factor of a step is never above 2^257, as in a pass of eight products.

// Few is the number of products that MultiplyFew makes at most.
const Few = 2

// Orders of lanes, for both products, and what a step multiplies E and its neighbours by.
var (
	sameLanes  = row{0, 1, 2, 3, 4, 5, 6, 7}
	otherTerms = row{0, 1, 1, 0, 4, 5, 5, 4} // A, B, B, A
	exchanged  = row{1, 0, 0, 0, 5, 4, 4, 4} // BB, AA
	divisors   = row{1, 1, 1, 1, 5, 5, 5, 5} // z2
	narrow24   = row{0, 121665, 1, 1, 0, 121665, 1, 1}
)

// Bits of lanes.
const (
	allLanes  = 0xff
	evenLanes = 0x55
	lanesOfX3 = 0x44
	firstTwo  = 0x33
)

// MultiplyFew is Multiply for up to two products: for them it takes half of the time.
func (p *Pass) MultiplyFew(products, scalars, points [][Size]byte) {
	defer p.Clear()
	state, one := p.left[:digits], &p.first[0]
	for n := range scalars {
		x2 := 4 * n
		p.set(n, x2+3, &scalars[n], &points[n])
		one[x2], one[x2+1], one[x2+2] = 1, 1, 1
		for i := range state {
			state[i][x2+2] = p.first[i][x2+3] // x3 = x1
		}
		state[0][x2], state[0][x2+3] = 1, 1 // x2, z3
	}
	p.narrowLadder(state)
	permute(p.left[digits:], state, &divisors, allLanes)
	p.divide()
	for n := range scalars {
		p.result(&products[n], 4*n)
	}
}

// narrowLadder is the loop of RFC 7748 5. An exchange of the sides is an order of the lanes, which the first instruction of a step
// has in a register.
func (p *Pass) narrowLadder(state element) {
	m, n, q := p.t[0], p.t[1], p.t[2]
	for t := 254; t >= 0; t-- {
		for lane := range Lanes {
			bit := uint64(p.scalars[lane/4][t/8]>>(t%8)) & 1
			p.swap[lane] = uint64(lane) ^ (p.previous[lane]^bit)<<1
			p.previous[lane] = bit
		}
		butterfly(m, state, p.swap, evenLanes)
		permute(n, m, &otherTerms, allLanes)
		multiply(q, m, n)
		butterfly(m, q, &sameLanes, lanesOfX3)
		permute(n, q, &exchanged, firstTwo)
		scale(n, m, n, &narrow24)
		multiply(q, m, n)
		multiply(state, q, p.first)
	}
	// Bit 0 of a clamped scalar is clear: the exchange that RFC 7748 has here does nothing.
}

// butterfly orders the lanes of src by index. It sets odd lanes to the difference of their pair, and even ones to the sum where sums has
// their bit.
func butterfly(dst, src element, index *row, sums uint64) {
	if supported {
		butterflyIFMA(&dst[0], &src[0], index, &bias[0], sums)
	} else {
		butterflyPlain(dst, src, index, sums)
	}
}

// permute orders the lanes of src by index, and sets those to 0 whose bit keep does not have.
func permute(dst, src element, index *row, keep uint64) {
	if supported {
		permuteIFMA(&dst[0], &src[0], index, keep)
	} else {
		permutePlain(dst, src, index, keep)
	}
}
