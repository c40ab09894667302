//go:build amd64 && !purego

package roce

import "testing"

// eachForm runs a test with every form that the machine has.
func eachForm(t *testing.T, f func(t *testing.T)) {
	fold, wide := canFold, useAVX512
	t.Cleanup(func() { canFold, useAVX512 = fold, wide })
	for _, form := range []struct {
		name       string
		fold, wide bool
	}{
		{"AVX-512", true, true}, {"SSE", true, false}, {"Go", false, false},
	} {
		t.Run(form.name, func(t *testing.T) {
			if form.fold && !fold || form.wide && !wide {
				t.Skipf("this machine has no %s form", form.name)
			}
			canFold, useAVX512 = form.fold, form.wide
			f(t)
		})
	}
}
