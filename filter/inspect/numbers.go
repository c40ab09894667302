package inspect

import (
	"encoding/binary"
	"strconv"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
)

// isDataAt counts as Suricata does: a relative one asks for so many bytes, an absolute one for the byte at a
// place.
func (e *evaluator) isDataAt(t *signature.IsDataAt, prev int) bool {
	at := t.At
	if t.Var > 0 {
		at = int(min(e.vars[t.Var-1], 1<<30))
	}
	if t.Relative {
		return (prev+at <= len(e.b)) != t.Not
	}
	return (at-e.base < len(e.b)) != t.Not
}

// read reads a number and returns where it ends. A mask selects bits, which are shifted to the lowest ones: rules compare the value of
// a field in the middle of a byte.
func (e *evaluator) read(n *signature.Number, prev int) (v uint64, end int, ok bool) {
	at := n.Offset
	if n.OffsetVar > 0 {
		at = int(min(e.vars[n.OffsetVar-1], 1<<30))
	}
	if n.Relative {
		at += prev
	} else {
		at -= e.base
	}
	if at < 0 || at+n.Bytes > len(e.b) {
		return 0, 0, false
	}
	b := e.b[at : at+n.Bytes]
	size := n.Bytes
	if n.Text {
		if n.Bytes == 0 {
			b = e.b[at:min(len(e.b), at+maxDigits)]
		}
		v, size, ok = digits(b, n.Base)
		if !ok {
			return 0, 0, false
		}
	} else {
		var full [8]byte
		if n.Little {
			copy(full[:], b)
			v = binary.LittleEndian.Uint64(full[:])
		} else {
			copy(full[8-len(b):], b)
			v = binary.BigEndian.Uint64(full[:])
		}
	}
	if n.Mask != 0 {
		v &= n.Mask
		for m := n.Mask; m&1 == 0; m >>= 1 {
			v >>= 1
		}
	}
	return v, at + size, true
}

// maxDigits bounds the digits read of a number of any length.
const maxDigits = 23

// digits reads a number as strtoull does: white space, a sign or "0x" may come before it.
func digits(b []byte, base int) (v uint64, size int, ok bool) {
	i := 0
	for i < len(b) && (b[i] == ' ' || b[i] >= 9 && b[i] <= 13) {
		i++
	}
	if i < len(b) && b[i] == '+' {
		i++
	}
	if base == 16 && len(b)-i > 2 && b[i] == '0' && b[i+1]|32 == 'x' {
		i += 2
	}
	from := i
	for i < len(b) && ascii.Digit(b[i]) < base {
		i++
	}
	v, err := strconv.ParseUint(string(b[from:i]), base, 64)
	return v, i, err == nil
}

// byteTest does byte_test. A number that is not there fails it, also where the test is negated: nothing was compared.
func (e *evaluator) byteTest(n *signature.Number, prev int) bool {
	v, _, ok := e.read(n, prev)
	if !ok {
		return false
	}
	w := n.Value
	if n.ValueVar > 0 {
		w = e.vars[n.ValueVar-1]
	}
	switch n.Op {
	case signature.Less:
		ok = v < w
	case signature.Greater:
		ok = v > w
	case signature.Equal:
		ok = v == w
	case signature.LessEqual:
		ok = v <= w
	case signature.GreaterEqual:
		ok = v >= w
	case signature.And:
		ok = v&w != 0
	case signature.Or:
		ok = v^w != 0
	}
	return ok != n.Not
}

// number does byte_jump, byte_extract and byte_math, and returns where the next test begins. Values are the sender's: one that moves
// the position is cut to 30 bits, so that no sum overflows.
func (e *evaluator) number(t *signature.Test, prev int) (int, bool) {
	n := t.Number
	v, end := uint64(0), 0
	if n.Relative { // where there is no number to read
		end = prev + n.Offset
	}
	if n.Bytes > 0 || n.Text {
		var ok bool
		if v, end, ok = e.read(n, prev); !ok {
			return prev, false
		}
	}
	if n.Multiplier > 0 {
		v *= n.Multiplier
	}
	if a := uint64(n.Align); a > 0 && v%a != 0 {
		v += a - v%a
	}
	switch t.Kind {
	case signature.TestExtract:
		e.vars[n.Var] = v
		return end, true
	case signature.TestMath:
		return end, e.math(n, v)
	}
	post := n.Post
	if n.PostVar > 0 {
		post = int(min(e.vars[n.PostVar-1], 1<<30))
	}
	at := int(min(v, 1<<30)) + post
	switch {
	case n.FromStart:
		at -= e.base
	case n.FromEnd:
		at += len(e.b)
	default:
		at += end
	}
	if at < 0 && e.base == 0 { // before the begin is the begin
		at = 0
	}
	return at, at >= 0 && at <= len(e.b)
}

// integer returns the number that a buffer holds.
func integer(b []byte) (n uint64) {
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// math assigns the result of byte_math to its variable. A division by zero, which the packet may choose, fails the test.
func (e *evaluator) math(n *signature.Number, v uint64) bool {
	w := n.Value
	if n.ValueVar > 0 {
		w = e.vars[n.ValueVar-1]
	}
	switch n.Op {
	case signature.Add:
		v += w
	case signature.Subtract:
		v -= w
	case signature.Multiply:
		v *= w
	case signature.Divide:
		if w == 0 {
			return false
		}
		v /= w
	case signature.ShiftLeft:
		v <<= w
	case signature.ShiftRight:
		v >>= w
	}
	e.vars[n.Var] = v
	return true
}

// base64 fills base64_data, which parts behind it are evaluated on (rank).
func (e *evaluator) base64(t *signature.Base64, prev int) bool {
	at := t.Offset
	if t.Relative {
		at += prev
	}
	if at < 0 || at >= len(e.b) {
		return false
	}
	b := e.b[at:]
	if t.Bytes > 0 && t.Bytes < len(b) {
		b = b[:t.Bytes]
	}
	out := ascii.FromBase64(b)
	e.decoded = out
	return len(out) > 0
}
