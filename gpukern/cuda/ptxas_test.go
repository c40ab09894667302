package cuda

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// ptxas finds NVIDIA's assembler: installed, or brought by `make ptxas`.
func ptxas(t *testing.T) string {
	t.Helper()
	if p, err := exec.LookPath("ptxas"); err == nil {
		return p
	}
	found, err := filepath.Glob("../../.deps/ptxas/nvidia/*/bin/ptxas")
	if err != nil || len(found) == 0 {
		t.Skip("ptxas is not installed, nor brought by `make ptxas`: the PTX is not assembled here")
	}
	p, err := filepath.Abs(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// spillRoom is how many bytes a thread of a kernel may move out of its registers: a register or four that a
// kernel's slow path needs cost less than a warp that does not fit for want of them.
const spillRoom = 16

// spillMore are the kernels that have more room, by the GPU they are assembled for.
var spillMore = map[string]int{
	"gk_ring sm_80":     128, // one warp for each slot: what is moved belongs to the service of the ring
	"gk_ring sm_90":     128,
	"gk_headers sm_80":  48, // 80 registers for three blocks on a multiprocessor; for sm_90 they suffice
	"gk_literals sm_80": 64, // kept from one take of texts to the next: without them it is no faster
	"gk_literals sm_90": 48,
}

// spills is a line of ptxas -v: it follows the one that names the function.
var spills = regexp.MustCompile(`Function properties for (\w+)\n\s+\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)

// TestPTXAssembles has NVIDIA's assembler check what clang wrote: clang looks into no inline assembly.
func TestPTXAssembles(t *testing.T) {
	bin := ptxas(t)
	for file := range committed(t) {
		for _, arch := range []string{"sm_80", "sm_90"} {
			if strings.Contains(file, ".sm_90.") && arch != "sm_90" {
				continue
			}
			out, err := exec.Command(bin, "-arch="+arch, "-v", "-o", filepath.Join(t.TempDir(), "cubin"), file).CombinedOutput()
			if err != nil {
				t.Errorf("%s for %s: %v\n%s", file, arch, err, out)
				continue
			}
			for _, complaint := range tooManySpills(arch, string(out)) {
				t.Errorf("%s: %s", file, complaint)
			}
		}
	}
}

// tooManySpills reads what ptxas -v says.
func tooManySpills(arch, text string) (complaints []string) {
	all := spills.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return []string{"ptxas tells of no function"}
	}
	for _, m := range all {
		room := max(spillRoom, spillMore[m[1]+" "+arch])
		stores, _ := strconv.Atoi(m[2])
		loads, _ := strconv.Atoi(m[3])
		if max(stores, loads) > room {
			complaints = append(complaints, fmt.Sprintf("%s for %s spills %d bytes and loads %d, at most %d are right", m[1], arch, stores, loads, room))
		}
	}
	return complaints
}

func TestTooManySpills(t *testing.T) {
	const text = "ptxas info    : Function properties for gk_x\n    80 bytes stack frame, %d bytes spill stores, %d bytes spill loads\n"
	for _, c := range []struct{ stores, loads, want int }{{0, 0, 0}, {16, 16, 0}, {20, 0, 1}, {0, 20, 1}} {
		if got := tooManySpills("sm_80", fmt.Sprintf(text, c.stores, c.loads)); len(got) != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := tooManySpills("sm_80", "ptxas info : 0 bytes gmem"); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
