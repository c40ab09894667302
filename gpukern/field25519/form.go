package field25519

import (
	"slices"
	"unsafe"
)

// Size is the length of an encoded number in bytes.
const Size = 32

// MaxLanes is the most lanes that a form has.
const MaxLanes = 8

// rows is the number of rows of an element.
const rows = 5

// Row is 64 bytes of an element: a digit of eight lanes, or two of four.
type Row [MaxLanes]uint64

// Element is a number for each lane. Products are below 2^255 + 2^216, sums and differences of two below 2^257, and factors may have
// 260 bits. What is subtracted is a product, a constant, or was set.
type Element []Row

// Form is a way to compute. It is read only.
type Form struct {
	name  string
	lanes int
	radix uint    // the bits of a limb: a digit, or two of them
	bias  Element // 2*(2^255 - 19): a difference is positive with it
	run   bool    // this CPU has the instructions

	multiply    func(dst, a, b *Row)
	square      func(dst, a *Row)
	scale       func(dst, a, b, factors *Row)
	addSubtract func(sum, difference, a, b, bias *Row)
	swap        func(a, b, swap *Row)
	choose      func(dst *Row, window *uint64, index *Row)
	gather      func(dst *Row, base *uint64, offsets *Row, words, stride uint64)

	// Of forms with eight lanes alone.
	butterfly func(dst, src, index, bias *Row, sums uint64)
	permute   func(dst, src, index *Row, keep uint64)
}

// Forms returns the forms that this CPU computes, the fastest first. The last one is plain.
func Forms() []*Form {
	return slices.DeleteFunc(slices.Clone(forms), func(f *Form) bool { return !f.run })
}

// Best returns the fastest form of this CPU.
func Best() *Form { return Forms()[0] }

// Name returns what the documentation calls the form.
func (f *Form) Name() string { return f.name }

// Lanes returns how many numbers an element has.
func (f *Form) Lanes() int { return f.lanes }

// Vector reports whether the form has instructions of its own: the plain one is slower than the standard library.
func (f *Form) Vector() bool { return f != plainForm }

// Wide reports whether the form has Butterfly and Permute.
func (f *Form) Wide() bool { return f.butterfly != nil }

// Rows returns n rows that begin on a cache line: others would take two accesses each.
func Rows(n int) []Row {
	words := make([]uint64, (n+1)*MaxLanes)
	skip := 0
	for uintptr(unsafe.Pointer(&words[skip]))%unsafe.Sizeof(Row{}) != 0 {
		skip++
	}
	return unsafe.Slice((*Row)(unsafe.Pointer(&words[skip])), n)
}

// ElementRows is the length of an Element.
const ElementRows = rows

// Multiply sets dst to a*b.
func (f *Form) Multiply(dst, a, b Element) { f.multiply(&dst[0], &a[0], &b[0]) }

// Square sets dst to a*a.
func (f *Form) Square(dst, a Element) { f.square(&dst[0], &a[0]) }

// Squares sets dst to a after n squares.
func (f *Form) Squares(dst, a Element, n int) {
	f.Square(dst, a)
	for range n - 1 {
		f.Square(dst, dst)
	}
}

// Scale sets dst to factors*a + b. A factor, one for each lane, is below 2^17.
func (f *Form) Scale(dst, a, b Element, factors *Row) { f.scale(&dst[0], &a[0], &b[0], factors) }

// AddSubtract sets sum to a + b, and difference to a - b.
func (f *Form) AddSubtract(sum, difference, a, b Element) {
	f.addSubtract(&sum[0], &difference[0], &a[0], &b[0], &f.bias[0])
}

// Swap exchanges the two elements at a, side by side, with those at b, in the lanes where swap is 1.
func (f *Form) Swap(a, b []Row, swap *Row) {
	_, _ = a[2*rows-1], b[2*rows-1]
	f.swap(&a[0], &b[0], swap)
}

// Butterfly orders the lanes of src by index. It sets odd lanes to the difference of their pair, and even ones to the sum where sums has
// their bit.
func (f *Form) Butterfly(dst, src Element, index *Row, sums uint64) {
	f.butterfly(&dst[0], &src[0], index, &f.bias[0], sums)
}

// Permute orders the lanes of src by index, and sets those to 0 whose bit keep does not have.
func (f *Form) Permute(dst, src Element, index *Row, keep uint64) {
	f.permute(&dst[0], &src[0], index, keep)
}
