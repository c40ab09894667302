//go:build amd64 && !purego

package ecdsa

import "golang.org/x/sys/cpu"

// supported is what the machine can do. Tests switch it off to reach the plain form.
var supported = cpu.X86.HasAVX512F && cpu.X86.HasAVX512IFMA

//go:noescape
func multiplyP256(dst, a, b *row)

//go:noescape
func multiply5(dst, a, b *row, m *modulus)

//go:noescape
func multiply8(dst, a, b *row, m *modulus)

//go:noescape
func multiplyAddP256(dst, a, b, c, d *row)

//go:noescape
func multiplyAdd8(dst, a, b, c, d *row, m *modulus)

//go:noescape
func subtract5(dst, a, b *row, m *modulus)

//go:noescape
func subtract8(dst, a, b *row, m *modulus)

//go:noescape
func combineP256(dst, a, b, c *row, m *modulus)

//go:noescape
func combineP384(dst, a, b, c *row, m *modulus)

// choose sets the 2*digits rows of dst: x, then y.
//
//go:noescape
func choose(dst *row, window *uint64, index, negative *row, digits int, m *modulus)
