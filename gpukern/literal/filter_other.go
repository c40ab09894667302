//go:build !amd64 || purego

package literal

// candidates is plain, as fast as the CPU can.
func (f *pairFilter) candidates(text []byte, from, end int, masks []uint64) {
	f.plain(text, from, end, masks)
}

// equal is equalPlain, as fast as the CPU can.
func equal(r []uint64, t []byte) bool { return equalPlain(r, t) }
