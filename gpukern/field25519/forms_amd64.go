//go:build amd64 && !purego

package field25519

import "golang.org/x/sys/cpu"

// ifmaForm and avx2Form are computed by the instructions that they are named after.
var (
	ifmaForm = &Form{
		name: "IFMA", lanes: 8, radix: digitBits, bias: ifmaBias(), run: cpu.X86.HasAVX512F && cpu.X86.HasAVX512IFMA,
		multiply: multiplyIFMA, square: squareIFMA, scale: scaleIFMA, addSubtract: addSubtractIFMA, swap: swapIFMA,
		choose: chooseIFMA, gather: gatherIFMA, butterfly: butterflyIFMA, permute: permuteIFMA,
	}
	avx2Form = &Form{
		name: "AVX2", lanes: 4, radix: halfBits, bias: avx2Bias(), run: cpu.X86.HasAVX2,
		multiply: multiplyAVX2, square: squareAVX2, scale: scaleAVX2, addSubtract: addSubtractAVX2, swap: swapAVX2,
		choose: chooseAVX2, gather: gatherAVX2,
	}
	forms = []*Form{ifmaForm, avx2Form, plainForm}
)

//go:noescape
func multiplyIFMA(dst, a, b *Row)

//go:noescape
func squareIFMA(dst, a *Row)

//go:noescape
func scaleIFMA(dst, a, b, factors *Row)

//go:noescape
func addSubtractIFMA(sum, difference, a, b, bias *Row)

//go:noescape
func swapIFMA(a, b, swap *Row)

//go:noescape
func butterflyIFMA(dst, src, index, bias *Row, sums uint64)

//go:noescape
func permuteIFMA(dst, src, index *Row, keep uint64)

//go:noescape
func chooseIFMA(dst *Row, window *uint64, index *Row)

//go:noescape
func gatherIFMA(dst *Row, base *uint64, offsets *Row, words, stride uint64)

//go:noescape
func multiplyAVX2(dst, a, b *Row)

//go:noescape
func squareAVX2(dst, a *Row)

//go:noescape
func scaleAVX2(dst, a, b, factors *Row)

//go:noescape
func addSubtractAVX2(sum, difference, a, b, bias *Row)

//go:noescape
func swapAVX2(a, b, swap *Row)

//go:noescape
func chooseAVX2(dst *Row, window *uint64, index *Row)

//go:noescape
func gatherAVX2(dst *Row, base *uint64, offsets *Row, words, stride uint64)
