package inflate

// huffman is a canonical code of at most 15 bits (RFC 1951 3.2.2): codes of one length are consecutive numbers in the order of their
// symbols, and begin where those of the length before end. So lengths alone describe it, and count and symbol decode it: a code
// of n bits is less than the first one of n bits plus count[n], or it is longer.
type huffman struct {
	count  [16]uint16        // codes by length
	symbol [288]uint16       // in the order of their codes
	fast   [1 << fast]uint16 // by the next bits: symbol<<4 | length, 0 for longer codes
}

// fast is the number of bits by which most symbols are found in one step, at 1 KiB a table: literals of texts have 7 to 9.
const fast = 9

// What decode returns beside symbols.
const (
	codeMissing = -1 // more input is needed
	codeWrong   = -2
)

// build makes the code of lengths. It reports false where there are more codes than the lengths allow. Fewer are accepted, as zlib
// accepts a single distance code of one bit (RFC 1951 3.2.7); a code that is not there fails when it is decoded.
func (h *huffman) build(lengths []uint8) bool {
	*h = huffman{}
	for _, n := range lengths {
		h.count[n]++
	}
	h.count[0] = 0
	left := 1
	var at, code [16]uint16
	for n := 1; n < 16; n++ {
		if left = left<<1 - int(h.count[n]); left < 0 {
			return false
		}
		if n < 15 {
			at[n+1] = at[n] + h.count[n]
			code[n+1] = (code[n] + h.count[n]) << 1
		}
	}
	for s, n := range lengths {
		if n == 0 {
			continue
		}
		h.symbol[at[n]] = uint16(s)
		at[n]++
		if n <= fast {
			for i := int(reversed(code[n], n)); i < len(h.fast); i += 1 << n {
				h.fast[i] = uint16(s)<<4 | uint16(n)
			}
		}
		code[n]++
	}
	return true
}

// reversed returns a code with its first bit lowest, as it lies in the accumulator.
func reversed(code uint16, n uint8) (r uint16) {
	for range n {
		r = r<<1 | code&1
		code >>= 1
	}
	return r
}

// decode reads a symbol. Codes lie in the stream with their first bit lowest in a byte, unlike all other numbers (RFC 1951 3.1.1): so
// the slow path takes them bit by bit.
func (h *huffman) decode(z *inflater) int {
	if z.bits < 15 {
		z.fill()
	}
	if e := h.fast[z.acc&(1<<fast-1)]; e != 0 && uint(e&15) <= z.bits {
		z.acc >>= e & 15
		z.bits -= uint(e & 15)
		return int(e >> 4)
	}
	code, first, index := 0, 0, 0
	for n := uint(1); n <= 15; n++ {
		if n > z.bits {
			return codeMissing
		}
		code |= int(z.acc >> (n - 1) & 1)
		count := int(h.count[n])
		if code-count < first {
			z.acc >>= n
			z.bits -= n
			return int(h.symbol[index+code-first])
		}
		index += count
		first, code = (first+count)<<1, code<<1
	}
	return codeWrong
}

// fixedCodes sets the codes of a block that has none of its own (RFC 1951 3.2.6).
func (z *inflater) fixedCodes() {
	var n [288]uint8
	for i := range n {
		switch {
		case i < 144:
			n[i] = 8
		case i < 256:
			n[i] = 9
		case i < 280:
			n[i] = 7
		default:
			n[i] = 8
		}
	}
	z.codes.build(n[:])
	for i := range 30 {
		n[i] = 5
	}
	z.distances.build(n[:30])
}

// codesResult is the outcome of the header of a block with codes of its own.
type codesResult uint8

const (
	codesRead codesResult = iota
	codesMissing
	codesWrong
)

// codeOrder is the order in which the lengths of the code for lengths are sent: those at the end are mostly 0, and left out.
var codeOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// dynamicCodes reads the codes of a block (RFC 1951 3.2.7):
//
//	| literals - 257 5 | distances - 1 5 | lengths - 4 4 | lengths of the code for lengths, 3 each | lengths by that code |
//
// The lengths of both codes are one sequence, so that a repetition may begin in one and end in the other.
func (z *inflater) dynamicCodes() codesResult {
	literals, ok := z.take(5)
	distances, ok2 := z.take(5)
	order, ok3 := z.take(4)
	if !ok || !ok2 || !ok3 {
		return codesMissing
	}
	literals, distances = literals+257, distances+1
	if literals > 286 || distances > 30 {
		return codesWrong
	}
	var lengths [320]uint8
	for i := range order + 4 {
		n, ok := z.take(3)
		if !ok {
			return codesMissing
		}
		lengths[codeOrder[i]] = uint8(n)
	}
	if !z.codes.build(lengths[:19]) {
		return codesWrong
	}
	clear(lengths[:19])
	if r := z.codeLengths(lengths[:literals+distances]); r != codesRead {
		return r
	}
	if !z.codes.build(lengths[:literals]) || !z.distances.build(lengths[literals:literals+distances]) {
		return codesWrong
	}
	return codesRead
}

// codeLengths reads lengths by the code for them: 16 repeats the one before 3 to 6 times, 17 is 3 to 10 zeros and 18 is 11 to 138.
func (z *inflater) codeLengths(lengths []uint8) codesResult {
	for i := 0; i < len(lengths); {
		s := z.codes.decode(z)
		switch {
		case s == codeMissing:
			return codesMissing
		case s < 0 || s == 16 && i == 0:
			return codesWrong
		case s < 16:
			lengths[i] = uint8(s)
			i++
			continue
		}
		extra, base, value := [3]uint{2, 3, 7}[s-16], [3]int{3, 3, 11}[s-16], uint8(0)
		if s == 16 {
			value = lengths[i-1]
		}
		n, ok := z.take(extra)
		if !ok {
			return codesMissing
		}
		if n += base; i+n > len(lengths) {
			return codesWrong
		}
		for ; n > 0; n-- {
			lengths[i] = value
			i++
		}
	}
	return codesRead
}
