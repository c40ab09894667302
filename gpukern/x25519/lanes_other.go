//go:build !amd64 || purego

package x25519

// supported is never set here.
var supported bool

func multiplyIFMA(dst, a, b *row)                      {}
func squareIFMA(dst, a *row)                           {}
func scaleIFMA(dst, a, b, factors *row)                {}
func addSubtractIFMA(sum, difference, a, b, bias *row) {}
func swapIFMA(a, b, swap *row)                         {}

func butterflyIFMA(dst, src, index, bias *row, sums uint64) {}
func permuteIFMA(dst, src, index *row, keep uint64)         {}
