//go:build !amd64 || purego

package montgomery

// supported is never set here.
var supported bool

func multiplyIFMA(t, a, b *row, blocks int)              {}
func squareIFMA(t, a *row, blocks int)                   {}
func reduceIFMA(dst, t, modulus, k0, m *row, blocks int) {}
func chooseIFMA(dst, table, index *row, entries, blocks int) {
}
