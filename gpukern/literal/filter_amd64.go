//go:build amd64 && !purego

package literal

import "golang.org/x/sys/cpu"

// What the CPU has. Both are variables so that tests can take them away.
var (
	has512 = cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VBMI && cpu.X86.HasBMI2
	has2   = cpu.X86.HasAVX2
)

// candidates512 sets bit i of masks, counted through, where text+i, up to 64*blocks, may begin an anchor;
// text counts as an even position. size is how many bytes there are from text on; zeros stand for those
// behind them. There are 1 << bits words.
//
//go:noescape
func candidates512(text *byte, size int, words *uint32, bits uint32, masks *uint64, blocks int)

// candidates2 is candidates512 for blocks behind which there are 8 bytes or more.
//
//go:noescape
func candidates2(text *byte, words *uint32, bits uint32, masks *uint64, blocks int)

// candidates is plain, as fast as the CPU can.
func (f *pairFilter) candidates(text []byte, from, end int, masks []uint64) {
	switch {
	case has512:
		candidates512(&text[from], len(text)-from, &f.words[0], f.bits, &masks[0], len(masks))
	case has2:
		f.candidates2(text, from, end, masks)
	default:
		f.plain(text, from, end, masks)
	}
	if rest := (end - from) % 64; rest != 0 {
		masks[len(masks)-1] &= 1<<rest - 1
	}
}

// candidates2 does the last block or two on a copy, with zeros behind it.
func (f *pairFilter) candidates2(text []byte, from, end int, masks []uint64) {
	n := max(0, min(end, len(text)-8)-from) / 64
	if n > 0 {
		candidates2(&text[from], &f.words[0], f.bits, &masks[0], n)
	}
	if n < len(masks) {
		var last [2*64 + 8]byte
		copy(last[:], text[from+64*n:])
		candidates2(&last[0], &f.words[0], f.bits, &masks[n], len(masks)-n)
	}
}

// equal512 compares the size bytes of a record with text.
//
//go:noescape
func equal512(record *uint64, text *byte, size int) bool

// equal is equalPlain, as fast as the CPU can.
func equal(r []uint64, t []byte) bool {
	if !has512 {
		return equalPlain(r, t)
	}
	return equal512(&r[0], &t[0], len(t))
}
