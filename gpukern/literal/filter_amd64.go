//go:build amd64 && !purego

package literal

import "golang.org/x/sys/cpu"

var has512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasBMI2

// candidates512 sets bit i of masks, counted through, where the eight bytes from text+i on may be an
// anchor's, for i up to 64*blocks. size is how many bytes there are from text on; zeros stand for those
// behind them. filter has 1 << bits words.
//
//go:noescape
func candidates512(text *byte, size int, filter *uint32, bits uint32, masks *uint64, blocks int)

// candidates sets bit i of masks, counted through, where position from+i may be an anchor's.
func (s *Set) candidates(text []byte, from, end int, masks []uint64) {
	if !has512 {
		s.candidatesPlain(text, from, end, masks)
		return
	}
	candidates512(&text[from], len(text)-from, &s.filter[0], s.bits, &masks[0], len(masks))
	if rest := (end - from) % 64; rest != 0 {
		masks[len(masks)-1] &= 1<<rest - 1
	}
}
