package flow

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

// TestEntryLayout compares the entry and the constants with those of the C compiler.
func TestEntryLayout(t *testing.T) {
	cc, err := exec.LookPath("clang++-19")
	if err != nil {
		t.Skip("no clang++-19: run `make deps`")
	}
	var text strings.Builder
	text.WriteString("#include \"flow.cuh\"\n")
	assert := func(what string, n uintptr) { fmt.Fprintf(&text, "static_assert(%s == %d, \"\");\n", what, n) }
	var e entry
	assert("sizeof(struct gk_flow_entry)", unsafe.Sizeof(e))
	assert("offsetof(struct gk_flow_entry, first)", unsafe.Offsetof(e.first))
	assert("offsetof(struct gk_flow_entry, packets)", unsafe.Offsetof(e.packets))
	assert("offsetof(struct gk_flow_entry, memo)", unsafe.Offsetof(e.memo))
	for name, v := range map[string]uintptr{
		"GK_FLOW_LINE": lineTags, "GK_FLOW_WINDOW": lineWindow, "GK_FLOW_DELETED": tagDeleted, "GK_FLOW_BUSY": tagBusy,
		"GK_FLOW_EPOCH": tagEpoch, "GK_FLOW_HALF": tagHalf, "GK_FLOW_INSERTS": countInserts,
		"GK_FLOW_TAKEN_OVER": countTakenOver, "GK_FLOW_FULL": countFull, "GK_FLOW_DELETES": countDeletes,
	} {
		assert(name, v)
	}
	src := filepath.Join(t.TempDir(), "layout.cc")
	if err := os.WriteFile(src, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-std=c++17", "-DGK_HOST", "-fsyntax-only", "-I"+hostkern.Sources(), src).CombinedOutput(); err != nil {
		t.Errorf("flow.cuh differs from Go:\n%s", out)
	}
}
