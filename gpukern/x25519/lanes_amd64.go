//go:build amd64 && !purego

package x25519

import "golang.org/x/sys/cpu"

// supported is what the machine can do. Tests switch it off to reach the plain form.
var supported = cpu.X86.HasAVX512F && cpu.X86.HasAVX512IFMA

//go:noescape
func multiplyIFMA(dst, a, b *row)

//go:noescape
func squareIFMA(dst, a *row)

//go:noescape
func scaleIFMA(dst, a, b, factors *row)

//go:noescape
func addSubtractIFMA(sum, difference, a, b, bias *row)

//go:noescape
func swapIFMA(a, b, swap *row)

//go:noescape
func butterflyIFMA(dst, src, index, bias *row, sums uint64)

//go:noescape
func permuteIFMA(dst, src, index *row, keep uint64)
