package pubkey

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// publicKernels work on what everybody may know, and may branch by it: the analysis has to find that they do.
var publicKernels = []string{"pk_ed25519", "pk_mlkem_matrix", "pk_p256_verify", "pk_p384_verify"}

// tool finds a program of NVIDIA's: installed, or brought by make.
func tool(t *testing.T, name, from string) string {
	t.Helper()
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	found, err := filepath.Glob("../../../.deps/" + from + "/nvidia/*/bin/" + name)
	if err != nil || len(found) == 0 {
		t.Skipf("%s is not installed, nor brought by `make %s`: the machine code is not read here", name, from)
	}
	p, err := filepath.Abs(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// kernels returns the machine code of all kernels for an architecture, by name.
func kernels(t *testing.T, arch string) map[string]*program {
	t.Helper()
	ptxas, nvdisasm := tool(t, "ptxas", "ptxas"), tool(t, "nvdisasm", "nvdisasm")
	files, err := filepath.Glob("ptx/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	all := map[string]*program{}
	for _, file := range files {
		cubin := filepath.Join(t.TempDir(), "cubin")
		out, err := exec.Command(ptxas, "-arch="+arch, "-v", "-o", cubin, file).CombinedOutput()
		if err != nil {
			t.Fatalf("%s for %s: %v\n%s", file, arch, err, out)
		}
		// A register that is spilled stays in memory that no kernel can overwrite.
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "spill stores") && !strings.Contains(line, " 0 bytes spill stores, 0 bytes spill loads") {
				t.Errorf("%s for %s: %s", file, arch, strings.TrimSpace(line))
			}
		}
		text, err := exec.Command(nvdisasm, "-c", cubin).Output()
		if err != nil {
			t.Fatalf("%s for %s: %v", file, arch, err)
		}
		programs, err := parseSASS(string(text))
		if err != nil {
			t.Fatalf("%s for %s: %v", file, arch, err)
		}
		for name, p := range programs {
			all[name] = p
		}
	}
	return all
}

// TestMachineCodeHidesSecrets reads the machine code of the kernels. Everything that comes from memory counts as secret,
// but for 64-bit words that are read with the scope of the system, which are keys' addresses and public exponents: no
// branch, no predicate of a memory access and no address may depend on it. So the branches that there are depend on
// counters, the grid and parameters alone.
func TestMachineCodeHidesSecrets(t *testing.T) {
	for _, arch := range []string{"sm_80", "sm_90"} {
		t.Run(arch, func(t *testing.T) {
			all := kernels(t, arch)
			if len(all) != 19 {
				t.Errorf("%d kernels", len(all))
			}
			for name, p := range all {
				leaks := p.leaks()
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

// snippet wraps instructions as nvdisasm prints them.
func snippet(lines ...string) string {
	s := "\t.section\t.text.pk_x,\"ax\",@progbits\n.text.pk_x:\n"
	for i, l := range lines {
		if strings.HasSuffix(l, ":") {
			s += l + "\n"
			continue
		}
		s += fmt.Sprintf("        /*%04x*/                   %s ;\n", 16*i, l)
	}
	return s
}

// TestLeaksAreSeen is for the analysis itself.
func TestLeaksAreSeen(t *testing.T) {
	const load = "LD.E R4, desc[UR4][R2.64]"
	for name, c := range map[string]struct {
		code []string
		want int
	}{
		"nothing":                   {[]string{load, "IADD3 R4, R4, 0x1, RZ", "ST.E desc[UR4][R2.64], R4", "EXIT"}, 0},
		"a branch":                  {[]string{load, "ISETP.NE.AND P0, PT, R4, RZ, PT", "@P0 BRA `(.L_x_0)", ".L_x_0:", "EXIT"}, 1},
		"a branch on a counter":     {[]string{"MOV R0, RZ", ".L_x_0:", "IADD3 R0, R0, 0x1, RZ", load, "ISETP.NE.AND P0, PT, R0, 0x8, PT", "@P0 BRA `(.L_x_0)", "EXIT"}, 0},
		"by a carry":                {[]string{load, "IADD3 R5, P1, R4, R4, RZ", "IADD3.X R6, RZ, RZ, RZ, P1, !PT", "ISETP.NE.AND P0, PT, R6, RZ, PT", "@P0 EXIT", "EXIT"}, 1},
		"by a product's upper half": {[]string{load, "IMAD.WIDE.U32 R6, R4, R4, RZ", "ISETP.NE.AND P0, PT, R7, RZ, PT", "@!P0 EXIT", "EXIT"}, 1},
		"by predicates":             {[]string{load, "ISETP.NE.AND P2, PT, R4, RZ, PT", "PLOP3.LUT P0, PT, PT, PT, P2, 0x80, 0x0", "@P0 EXIT", "EXIT"}, 1},
		"an address":                {[]string{load, "IADD3 R6, P0, R4, R2, RZ", "IADD3.X R7, RZ, R3, RZ, P0, !PT", "LD.E R8, desc[UR4][R6.64]", "EXIT"}, 1},
		"a constant's address":      {[]string{load, "LDC R5, c[0x3][R4]", "EXIT"}, 1},
		"a predicated store":        {[]string{load, "ISETP.NE.AND P0, PT, R4, RZ, PT", "@P0 ST.E desc[UR4][R2.64], R5", "EXIT"}, 1},
		"a selection":               {[]string{load, "ISETP.NE.AND P0, PT, R4, RZ, PT", "SEL R5, R6, R7, P0", "@P0 MOV R6, R7", "ST.E desc[UR4][R2.64], R5", "EXIT"}, 0},
		"a moved secret":            {[]string{load, "ISETP.NE.AND P0, PT, RZ, RZ, PT", "@P0 MOV R5, R4", "ISETP.NE.AND P1, PT, R5, RZ, PT", "@P1 EXIT", "EXIT"}, 1},
		"by a uniform register":     {[]string{load, "R2UR UR6, R4", "UISETP.NE.AND UP0, UPT, UR6, 0x2, UPT", "PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0", "@P0 EXIT", "EXIT"}, 1},
		"a public word":             {[]string{"LD.E.64.STRONG.SYS R6, desc[UR4][R2.64]", "LD.E R8, desc[UR4][R6.64]", "EXIT"}, 0},
		"a function": {[]string{
			"MOV R20, 0x100", load, "MOV R5, R4", "CALL.REL.NOINC `($pk_x$f)", "ISETP.NE.AND P0, PT, R7, RZ, PT", "@P0 EXIT", "EXIT",
			"$pk_x$f:", "IADD3 R7, R5, 0x1, RZ", "RET.REL.NODEC R20 `(pk_x)",
		}, 1},
		"a function that keeps a counter": {[]string{
			"MOV R20, 0x100", "MOV R6, RZ", load, "CALL.REL.NOINC `($pk_x$f)", "ISETP.NE.AND P0, PT, R6, RZ, PT", "@P0 EXIT",
			"MOV R6, R4", "CALL.REL.NOINC `($pk_x$f)", "EXIT", "$pk_x$f:", "IADD3 R7, R6, 0x1, RZ", "RET.REL.NODEC R20 `(pk_x)",
		}, 0},
	} {
		programs, err := parseSASS(snippet(c.code...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if leaks := programs["pk_x"].leaks(); len(leaks) != c.want {
			t.Errorf("%s: %q, want %d", name, leaks, c.want)
		}
	}
	if _, err := parseSASS(snippet("FROB R1, R2")); err == nil {
		t.Error("an instruction that nobody knows is taken")
	}
}
