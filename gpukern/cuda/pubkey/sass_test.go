package pubkey

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/testkit/sass"
)

// publicKernels work on what everybody may know, and may branch by it: the analysis has to find that they do.
var publicKernels = []string{"pk_ed25519", "pk_mlkem_matrix", "pk_p256_verify", "pk_p384_verify"}

// TestMachineCodeHidesSecrets reads the machine code of the kernels. Everything that comes from memory counts as secret,
// but for 64-bit words that are read with the scope of the system, which are keys' addresses and public exponents: no
// branch, no predicate of a memory access and no address may depend on it. So the branches that there are depend on
// counters, the grid and parameters alone.
func TestMachineCodeHidesSecrets(t *testing.T) {
	for _, arch := range []string{"sm_80", "sm_90"} {
		t.Run(arch, func(t *testing.T) {
			all := sass.Kernels(t, "ptx", arch)
			if len(all) != 19 {
				t.Errorf("%d kernels", len(all))
			}
			for name, p := range all {
				leaks := p.Leaks()
				public := slices.Contains(publicKernels, name)
				if public && len(leaks) == 0 {
					t.Errorf("%s: the analysis does not see that it branches by what it reads", name)
				}
				if !public {
					for _, l := range leaks[:min(len(leaks), 5)] {
						t.Errorf("%s: %s", name, l)
					}
				}
			}
		})
	}
}
