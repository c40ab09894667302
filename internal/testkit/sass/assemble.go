package sass

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/checkout"
)

// tool finds a program of NVIDIA's: installed, or brought by make.
func tool(t *testing.T, name, from string) string {
	t.Helper()
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(root, ".deps", from, "nvidia/*/bin", name))
	if err != nil || len(found) == 0 {
		t.Skipf("%s is not installed, nor brought by `make %s`: the machine code is not read here", name, from)
	}
	p, err := filepath.Abs(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Kernels returns the machine code for an architecture of all PTX files in a folder of the package under test, by the kernels' names. A
// machine without ptxas and nvdisasm skips the test. A kernel that spills registers fails it: a secret would stay in memory that no
// kernel can overwrite.
func Kernels(t *testing.T, dir, arch string) map[string]*Program {
	t.Helper()
	ptxas, nvdisasm := tool(t, "ptxas", "ptxas"), tool(t, "nvdisasm", "nvdisasm")
	files, err := filepath.Glob(filepath.Join(dir, "*.ptx"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	all := map[string]*Program{}
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
		programs, err := Parse(string(text))
		if err != nil {
			t.Fatalf("%s for %s: %v", file, arch, err)
		}
		for name, p := range programs {
			all[name] = p
		}
	}
	return all
}
