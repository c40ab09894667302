//go:build amd64 && !purego

package websocket

import "golang.org/x/sys/cpu"

// useAVX2 is read once. Tests switch it off to reach the other form.
var useAVX2 = cpu.X86.HasAVX2

// xorKeyAVX2 is xorKey for n bytes, a multiple of 32 and at least 32.
//
//go:noescape
func xorKeyAVX2(dst, src *byte, n int, key uint32)

// xorKeyLong is xorKeyGeneric by the widest registers that the machine has.
func xorKeyLong(dst, src []byte, key uint32) {
	if whole := len(src) &^ 31; useAVX2 && whole > 0 {
		xorKeyAVX2(&dst[0], &src[0], whole, key)
		dst, src = dst[whole:], src[whole:]
	}
	xorKeyGeneric(dst, src, key)
}
