//go:build !amd64 || purego

package x25519

// supported is never set here.
var supported bool

func multiplyIFMA(dst, a, b *row)                      {}
func squareIFMA(dst, a *row)                           {}
func scaleIFMA(dst, a, b *row, factor uint64)          {}
func addSubtractIFMA(sum, difference, a, b, bias *row) {}
func swapIFMA(a, b, swap *row)                         {}
