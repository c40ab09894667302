//go:build !amd64 || purego

package ecdsa

// supported is never set here.
var supported bool

func multiplyP256(dst, a, b *row)                                                   {}
func multiply5(dst, a, b *row, m *modulus)                                          {}
func multiply8(dst, a, b *row, m *modulus)                                          {}
func multiplyAddP256(dst, a, b, c, d *row)                                          {}
func multiplyAdd8(dst, a, b, c, d *row, m *modulus)                                 {}
func subtract5(dst, a, b *row, m *modulus)                                          {}
func subtract8(dst, a, b *row, m *modulus)                                          {}
func combineP256(dst, a, b, c *row, m *modulus)                                     {}
func combineP384(dst, a, b, c *row, m *modulus)                                     {}
func choose(dst *row, window *uint64, index, negative *row, digits int, m *modulus) {}
