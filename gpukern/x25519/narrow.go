package x25519

import "github.com/millrace/millrace/gpukern/field25519"

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
	sameLanes  = field25519.Row{0, 1, 2, 3, 4, 5, 6, 7}
	otherTerms = field25519.Row{0, 1, 1, 0, 4, 5, 5, 4} // A, B, B, A
	exchanged  = field25519.Row{1, 0, 0, 0, 5, 4, 4, 4} // BB, AA
	divisors   = field25519.Row{1, 1, 1, 1, 5, 5, 5, 5} // z2
	narrow24   = field25519.Row{0, 121665, 1, 1, 0, 121665, 1, 1}
)

// Bits of lanes.
const (
	allLanes  = 0xff
	evenLanes = 0x55
	lanesOfX3 = 0x44
	firstTwo  = 0x33
)

// MultiplyFew is Multiply for up to two products: for them it takes half of the time. The form has eight lanes.
func (p *Pass) MultiplyFew(products, scalars, points [][Size]byte) {
	defer p.Clear()
	state, one := p.left[:rows], &p.first[0]
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
	p.f.Permute(p.left[rows:], state, &divisors, allLanes)
	p.divide()
	for n := range scalars {
		p.f.Bytes(&products[n], p.left[:rows], 4*n)
	}
}

// narrowLadder is the loop of RFC 7748 5. An exchange of the sides is an order of the lanes, which the first instruction of a step
// has in a register.
func (p *Pass) narrowLadder(state field25519.Element) {
	m, n, q := p.t[0], p.t[1], p.t[2]
	for t := 254; t >= 0; t-- {
		for lane := range Lanes {
			bit := uint64(p.scalars[lane/4][t/8]>>(t%8)) & 1
			p.swap[lane] = uint64(lane) ^ (p.previous[lane]^bit)<<1
			p.previous[lane] = bit
		}
		p.f.Butterfly(m, state, p.swap, evenLanes)
		p.f.Permute(n, m, &otherTerms, allLanes)
		p.f.Multiply(q, m, n)
		p.f.Butterfly(m, q, &sameLanes, lanesOfX3)
		p.f.Permute(n, q, &exchanged, firstTwo)
		p.f.Scale(n, m, n, &narrow24)
		p.f.Multiply(q, m, n)
		p.f.Multiply(state, q, p.first)
	}
	// Bit 0 of a clamped scalar is clear: the exchange that RFC 7748 has here does nothing.
}
