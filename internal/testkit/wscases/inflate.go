package wscases

import "errors"

var errInflate = errors.New("not DEFLATE data")

// The bases and extra bits of lengths and distances (RFC 1951 3.2.5).
var (
	lengthBase   = [29]int{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
	lengthExtra  = [29]int{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	distBase     = [30]int{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}
	distExtra    = [30]int{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}
	lengthsOrder = [19]int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
)

// bitReader reads bits, the lowest of each byte first (RFC 1951 3.1.1).
type bitReader struct {
	in   []byte
	pos  int // in bits
	fail bool
}

func (r *bitReader) bits(n int) (v int) {
	for i := range n {
		if r.pos>>3 >= len(r.in) {
			r.fail = true
			return 0
		}
		v |= int(r.in[r.pos>>3]>>(r.pos&7)&1) << i
		r.pos++
	}
	return v
}

// huffman is a code by its lengths: how many symbols each length has, and the symbols in order
// (RFC 1951 3.2.2).
type huffman struct {
	count   [16]int
	symbols []int
}

func newHuffman(lengths []int) (h huffman) {
	for length := 1; length < 16; length++ {
		for symbol, l := range lengths {
			if l == length {
				h.count[length]++
				h.symbols = append(h.symbols, symbol)
			}
		}
	}
	return h
}

func (h *huffman) decode(r *bitReader) int {
	code, first, index := 0, 0, 0
	for length := 1; length < 16 && !r.fail; length++ {
		code |= r.bits(1)
		if code-first < h.count[length] {
			return h.symbols[index+code-first]
		}
		index += h.count[length]
		first = (first + h.count[length]) << 1
		code <<= 1
	}
	r.fail = true
	return 0
}

// Inflate decompresses a message slowly, to judge those that do it fast. It appends to history, which
// references may reach back into by at most window bytes, until the input ends after a block.
func Inflate(history, in []byte, window int) ([]byte, error) {
	r, out := &bitReader{in: in}, history
	for len(r.in)*8-r.pos > 7 {
		final := r.bits(1) == 1
		var err error
		switch kind := r.bits(2); kind {
		case 0:
			out, err = stored(r, out)
		case 1, 2:
			literals, distances := fixedCodes()
			if kind == 2 {
				literals, distances, err = dynamicCodes(r)
			}
			if err == nil {
				out, err = compressed(r, out, literals, distances, window)
			}
		default:
			err = errInflate
		}
		if err != nil || r.fail {
			return out, errInflate
		}
		if final { // RFC 7692 7.2.3.5: what follows begins at a byte
			r.pos = (r.pos + 7) &^ 7
		}
	}
	return out, nil
}

func stored(r *bitReader, out []byte) ([]byte, error) {
	r.pos = (r.pos + 7) &^ 7
	n, inverse := r.bits(16), r.bits(16)
	start := r.pos >> 3
	if r.fail || n != inverse^0xFFFF || len(r.in)-start < n {
		return out, errInflate
	}
	r.pos += 8 * n
	return append(out, r.in[start:start+n]...), nil
}

func fixedCodes() (literals, distances huffman) {
	lengths := make([]int, 288)
	for i := range lengths {
		switch {
		case i < 144:
			lengths[i] = 8
		case i < 256:
			lengths[i] = 9
		case i < 280:
			lengths[i] = 7
		default:
			lengths[i] = 8
		}
	}
	five := make([]int, 30)
	for i := range five {
		five[i] = 5
	}
	return newHuffman(lengths), newHuffman(five)
}

func dynamicCodes(r *bitReader) (literals, distances huffman, err error) {
	nl, nd, nc := r.bits(5)+257, r.bits(5)+1, r.bits(4)+4
	lengths := make([]int, 19)
	for i := range nc {
		lengths[lengthsOrder[i]] = r.bits(3)
	}
	code := newHuffman(lengths)
	lengths = nil
	for len(lengths) < nl+nd && !r.fail {
		symbol, repeat, value := code.decode(r), 1, 0
		switch symbol {
		case 16:
			if len(lengths) == 0 {
				return literals, distances, errInflate
			}
			value, repeat = lengths[len(lengths)-1], 3+r.bits(2)
		case 17:
			repeat = 3 + r.bits(3)
		case 18:
			repeat = 11 + r.bits(7)
		default:
			value = symbol
		}
		for range repeat {
			lengths = append(lengths, value)
		}
	}
	if r.fail || len(lengths) != nl+nd {
		return literals, distances, errInflate
	}
	return newHuffman(lengths[:nl]), newHuffman(lengths[nl:]), nil
}

func compressed(r *bitReader, out []byte, literals, distances huffman, window int) ([]byte, error) {
	for !r.fail {
		symbol := literals.decode(r)
		switch {
		case symbol < 256:
			out = append(out, byte(symbol))
			continue
		case symbol == 256:
			return out, nil
		case symbol > 285:
			return out, errInflate
		}
		length := lengthBase[symbol-257] + r.bits(lengthExtra[symbol-257])
		symbol = distances.decode(r)
		if r.fail || symbol > 29 {
			break
		}
		distance := distBase[symbol] + r.bits(distExtra[symbol])
		if distance > len(out) || distance > window {
			break
		}
		for range length {
			out = append(out, out[len(out)-distance])
		}
	}
	return out, errInflate
}
