//go:build amd64 && !purego

package literal

import "testing"

// forms runs test once with each form that the CPU has.
func forms(t *testing.T, test func(t *testing.T)) {
	was512, was2 := has512, has2
	defer func() { has512, has2 = was512, was2 }()
	if !was512 {
		t.Log("this CPU has no AVX-512: that form is not tested")
	} else {
		t.Run("avx512", test)
	}
	has512 = false
	if !was2 {
		t.Log("this CPU has no AVX2: that form is not tested")
	} else {
		t.Run("avx2", test)
	}
	has2 = false
	t.Run("plain", test)
}
