package symmetric

import (
	"testing"

	"github.com/millrace/millrace/internal/testkit/sass"
)

// TestMachineCodeHidesSecrets: no branch and no address of a kernel depends on a key, a text, a tag or a sum.
func TestMachineCodeHidesSecrets(t *testing.T) {
	for _, arch := range []string{"sm_80", "sm_90"} {
		t.Run(arch, func(t *testing.T) {
			all := sass.Kernels(t, "ptx", arch)
			if len(all) != 4 {
				t.Errorf("%d kernels", len(all))
			}
			for name, p := range all {
				leaks := p.Leaks()
				for _, l := range leaks[:min(len(leaks), 5)] {
					t.Errorf("%s: %s", name, l)
				}
			}
		})
	}
}
