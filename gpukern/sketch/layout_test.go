package sketch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/internal/testkit/hostkern"
)

// TestCellLayout compares the counter with that of the C compiler.
func TestCellLayout(t *testing.T) {
	cc, err := exec.LookPath("clang++-19")
	if err != nil {
		t.Skip("no clang++-19: run `make deps`")
	}
	var text strings.Builder
	text.WriteString("#include \"sketch.cuh\"\n")
	assert := func(what string, n uintptr) { fmt.Fprintf(&text, "static_assert(%s == %d, \"\");\n", what, n) }
	assert("sizeof(struct gk_cell)", unsafe.Sizeof(cell{}))
	assert("offsetof(struct gk_cell, bytes)", unsafe.Offsetof(cell{}.bytes))
	src := filepath.Join(t.TempDir(), "layout.cc")
	if err := os.WriteFile(src, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-std=c++17", "-DGK_HOST", "-fsyntax-only", "-I"+hostkern.Sources(), src).CombinedOutput(); err != nil {
		t.Errorf("sketch.cuh differs from Go:\n%s", out)
	}
}
