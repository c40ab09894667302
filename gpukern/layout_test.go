package gpukern_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/internal/testkit/hostkern"
)

// TestStateLayout compares what State lays out, and hostkern.Pass, with the C compiler's structs.
func TestStateLayout(t *testing.T) {
	cc, err := exec.LookPath("clang++-19")
	if err != nil {
		t.Skip("no clang++-19: run `make deps`")
	}
	var text strings.Builder
	text.WriteString("#include \"flow.cuh\"\n")
	assert := func(what string, n uintptr) { fmt.Fprintf(&text, "static_assert(%s == %d, \"\");\n", what, n) }
	var at []int
	m := State(newFlows(t, flow.Config{Flows: 1}))
	for _, p := range m.Parts {
		at = append(at, p.At)
	}
	for i, field := range []string{"flows.tags", "flows.entries", "flows.counts"} {
		assert("offsetof(struct gk_state, "+field+")", uintptr(at[i]))
	}
	assert("sizeof(struct gk_state)", uintptr(len(m.Struct)))
	assert("offsetof(struct gk_flows, lines)", 24)
	assert("offsetof(struct gk_flows, idle)", 28)
	assert("offsetof(struct gk_flows, key)", 32)
	assert("sizeof(struct gk_pass)", unsafe.Sizeof(hostkern.Pass{}))
	assert("offsetof(struct gk_pass, state)", unsafe.Offsetof(hostkern.Pass{}.State))
	assert("offsetof(struct gk_pass, epoch)", unsafe.Offsetof(hostkern.Pass{}.Epoch))
	assert("offsetof(struct gk_pass, generation)", unsafe.Offsetof(hostkern.Pass{}.Generation))
	src := filepath.Join(t.TempDir(), "layout.cc")
	if err := os.WriteFile(src, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-std=c++17", "-DGK_HOST", "-fsyntax-only", "-I"+hostkern.Sources(), src).CombinedOutput(); err != nil {
		t.Errorf("state.h differs from Go:\n%s", out)
	}
}
