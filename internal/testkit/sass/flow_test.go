package sass

import (
	"fmt"
	"strings"
	"testing"
)

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
		"an address under the predicate that it was made under": {[]string{load, "ISETP.NE.AND P0, PT, R0, RZ, PT", "@!P0 MOV R4, R2", "@!P0 LD.E R8, desc[UR4][R4]", "EXIT"}, 0},
		"and under another":       {[]string{load, "ISETP.NE.AND P0, PT, R0, RZ, PT", "@!P0 MOV R4, R2", "@P0 LD.E R8, desc[UR4][R4]", "EXIT"}, 1},
		"and under a new one":     {[]string{load, "ISETP.NE.AND P0, PT, R0, RZ, PT", "@P0 MOV R4, R2", "ISETP.NE.AND P0, PT, R1, RZ, PT", "@P0 LD.E R8, desc[UR4][R4]", "EXIT"}, 1},
		"and after another write": {[]string{load, "ISETP.NE.AND P0, PT, R0, RZ, PT", "@P0 MOV R4, R2", load, "@P0 LD.E R8, desc[UR4][R4]", "EXIT"}, 1},
		"and without one":         {[]string{load, "ISETP.NE.AND P0, PT, R0, RZ, PT", "@P0 MOV R4, R2", "LD.E R8, desc[UR4][R4]", "EXIT"}, 1},
		"on one way of two": {[]string{
			load, "ISETP.NE.AND P0, PT, R0, RZ, PT", "ISETP.NE.AND P1, PT, R1, RZ, PT", "@P1 BRA `(.L_x_0)", "@P0 MOV R4, R2", ".L_x_0:", "@P0 LD.E R8, desc[UR4][R4]", "EXIT",
		}, 1},
		"a predicate that was put by":            {[]string{load, "ISETP.NE.AND P2, PT, R4, RZ, PT", "P2R R5, PR, RZ, 0x4", "ISETP.NE.AND P0, PT, R5, RZ, PT", "@P0 EXIT", "EXIT"}, 1},
		"and another one":                        {[]string{load, "ISETP.NE.AND P2, PT, R4, RZ, PT", "P2R R5, PR, RZ, 0x2", "ISETP.NE.AND P0, PT, R5, RZ, PT", "@P0 EXIT", "EXIT"}, 0},
		"on the way of lanes that have not come": {[]string{load, "BRA.CONV ~URZ, `(.L_x_0)", "ISETP.NE.AND P0, PT, R4, RZ, PT", "@P0 EXIT", ".L_x_0:", "EXIT"}, 1},
		"another lane's":                         {[]string{load, "SHFL.IDX PT, R5, R4, RZ, 0x1f", "ISETP.NE.AND P0, PT, R5, RZ, PT", "@P0 EXIT", "EXIT"}, 1},
		"a vote":                                 {[]string{load, "ISETP.NE.AND P1, PT, R4, RZ, PT", "VOTE.ANY R0, PT, P1", "ISETP.NE.AND P0, PT, R0, RZ, PT", "@P0 EXIT", "EXIT"}, 1},
		"a vote's result":                        {[]string{load, "ISETP.NE.AND P1, PT, R4, RZ, PT", "VOTE.ANY R0, P0, P1", "@P0 EXIT", "EXIT"}, 1},
		"a public word":                          {[]string{"LD.E.64.STRONG.SYS R6, desc[UR4][R2.64]", "LD.E R8, desc[UR4][R6.64]", "EXIT"}, 0},
		"a function": {[]string{
			"MOV R20, 0x100", load, "MOV R5, R4", "CALL.REL.NOINC `($pk_x$f)", "ISETP.NE.AND P0, PT, R7, RZ, PT", "@P0 EXIT", "EXIT",
			"$pk_x$f:", "IADD3 R7, R5, 0x1, RZ", "RET.REL.NODEC R20 `(pk_x)",
		}, 1},
		"a vote of public words and one of secrets": {[]string{
			load, "MOV R20, 0x100", "MOV R9, R4", "CALL.REL.NOINC `($__internal_0_$__cuda_sm70_votesync)", "MOV R20, 0x100", "MOV R9, R0",
			"CALL.REL.NOINC `($__internal_0_$__cuda_sm70_votesync)", "ISETP.NE.AND P0, PT, R8, RZ, PT", "@P0 EXIT", "EXIT",
			"$__internal_0_$__cuda_sm70_votesync:", "MOV R8, R9", "RET.REL.NODEC R20 `(pk_x)",
		}, 0},
		"a vote of a secret": {[]string{
			load, "MOV R20, 0x100", "MOV R9, R0", "CALL.REL.NOINC `($__internal_0_$__cuda_sm70_votesync)", "MOV R20, 0x100", "MOV R9, R4",
			"CALL.REL.NOINC `($__internal_0_$__cuda_sm70_votesync)", "ISETP.NE.AND P0, PT, R8, RZ, PT", "@P0 EXIT", "EXIT",
			"$__internal_0_$__cuda_sm70_votesync:", "MOV R8, R9", "RET.REL.NODEC R20 `(pk_x)",
		}, 1},
		"a function that keeps a counter": {[]string{
			"MOV R20, 0x100", "MOV R6, RZ", load, "CALL.REL.NOINC `($pk_x$f)", "ISETP.NE.AND P0, PT, R6, RZ, PT", "@P0 EXIT",
			"MOV R6, R4", "CALL.REL.NOINC `($pk_x$f)", "EXIT", "$pk_x$f:", "IADD3 R7, R6, 0x1, RZ", "RET.REL.NODEC R20 `(pk_x)",
		}, 0},
	} {
		programs, err := Parse(snippet(c.code...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if leaks := programs["pk_x"].Leaks(); len(leaks) != c.want {
			t.Errorf("%s: %q, want %d", name, leaks, c.want)
		}
	}
	if _, err := Parse(snippet("FROB R1, R2")); err == nil {
		t.Error("an instruction that nobody knows is taken")
	}
}
