//go:build amd64 && !purego

package wire

// force returns sumLong on a machine that has only these registers.
func force(avx512, avx2 bool) func([]byte, uint32) uint32 {
	return func(b []byte, acc uint32) uint32 {
		has512, has2 := useAVX512, useAVX2
		defer func() { useAVX512, useAVX2 = has512, has2 }()
		useAVX512, useAVX2 = avx512, avx2
		return sumLong(b, acc)
	}
}

func init() {
	forms["long, generic"] = force(false, false)
	if useAVX512 {
		forms["avx512"] = force(true, true)
	}
	if useAVX2 {
		forms["avx2"] = force(false, true)
	}
}
