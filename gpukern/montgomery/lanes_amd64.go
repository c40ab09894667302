//go:build amd64 && !purego

package montgomery

import "golang.org/x/sys/cpu"

// supported is what the machine can do. Tests switch it off to reach the plain form.
var supported = cpu.X86.HasAVX512F && cpu.X86.HasAVX512IFMA

//go:noescape
func multiplyIFMA(t, a, b *row, blocks int)

//go:noescape
func squareIFMA(t, a *row, blocks int)

//go:noescape
func reduceIFMA(dst, t, modulus, k0, m *row, blocks int)

//go:noescape
func chooseIFMA(dst, table, index *row, entries, blocks int)
