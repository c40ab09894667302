package ebpf

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

func TestLoadPinsProgramsAndMaps(t *testing.T) {
	w := newWorld(t)
	o := w.load("count.o", "")
	var names []string
	for _, p := range o.Programs {
		names = append(names, p.Name+" "+string(p.Kind))
	}
	if diff := cmp.Diff([]string{"count_in tc", "count_out tc", "count_then_drop xdp", "count_xdp xdp"}, names); diff != "" {
		t.Error(diff)
	}
	again, err := open(t, w.root).Object("count") // as another process sees it
	if err != nil {
		t.Fatal(err)
	}
	ignore := cmp.Comparer(func(a, b aboutProgram) bool { return a == b })
	if diff := cmp.Diff(o, again, ignore, cmp.AllowUnexported(Program{})); diff != "" {
		t.Error(diff)
	}
	if _, err := w.store.Load(objects+"count.o", ""); !errors.Is(err, ErrExists) {
		t.Errorf("loaded twice: %v", err)
	}
	for _, name := range []string{"../count", "a b", ".count"} {
		if _, err := w.store.Load(objects+"count.o", name); !errors.Is(err, ErrUsage) {
			t.Errorf("loaded as %q: %v", name, err)
		}
	}
	if _, err := w.store.Unload("count", false); err != nil {
		t.Error(err)
	}
	if pins := w.pins(); len(pins) > 0 {
		t.Errorf("left after unload: %v", pins)
	}
	if _, err := w.store.Object("count"); !errors.Is(err, ErrNotFound) {
		t.Errorf("after unload: %v", err)
	}
}

// The section .xdp_run_config adds to and takes from the default, which is XDP_PASS and priority 50.
func TestRunConfigIsReadFromTheObject(t *testing.T) {
	o, err := readObject(objects + "count.o")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range o.about.Programs {
		if p.Kind == KindXDP {
			got[p.Name] = strings.Join([]string{p.Actions.String(), orZero(p.Priority), map[bool]string{true: "frags"}[p.Frags]}, " ")
		}
	}
	want := map[string]string{"count_xdp": "XDP_PASS 50 frags", "count_then_drop": "XDP_DROP 20 "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func orZero(n uint32) string { return string('0'+rune(n/10)) + string('0'+rune(n%10)) }

func TestVerifierErrorsAreShortAndNameTheSource(t *testing.T) {
	w := newWorld(t)
	_, err := w.store.Load(objects+"rejected.o", "")
	var v *VerifierError
	if !errors.As(err, &v) {
		t.Fatalf("%v is no VerifierError", err)
	}
	if errors.Is(err, ErrPermission) {
		t.Errorf("a rejected program is no want of rights: %v", err)
	}
	if v.Program != "reads_beyond" || !strings.Contains(v.Reason, "invalid access to packet") {
		t.Errorf("program %q, reason %q", v.Program, v.Reason)
	}
	if !strings.HasPrefix(v.Source, "rejected.c:11: return data[20] == 6") {
		t.Errorf("source %q", v.Source)
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 2 || len(v.Log) < 5 {
		t.Errorf("%d lines of error, %d of log: %v", lines, len(v.Log), err)
	}
	if pins := w.pins(); len(pins) > 0 {
		t.Errorf("left after an error: %v", pins)
	}
}

func TestFilesThatAreNoObjectsAreRefused(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "x.o")
	if err := os.WriteFile(text, []byte("this is a text and no object, as one sees"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{text: "bad magic", self: "larger than 16 MiB|machine code for EM_"} {
		_, err := readObject(path)
		if !errors.Is(err, ErrObject) || !slices.ContainsFunc(strings.Split(want, "|"), func(s string) bool { return strings.Contains(err.Error(), s) }) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if _, err := readObject("testdata/none.o"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Options of the kernel have their values; a weak one that the kernel lacks is zero, one that is not weak is refused by name.
func TestWeakKernelOptionsAreZeroWhereAbsent(t *testing.T) {
	w := newWorld(t)
	o := w.load("kconfig.o", "")
	p, err := w.store.open(o, o.Programs[0])
	w.ok(err)
	defer p.Close()
	_, err = p.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
	w.ok(err)
	got := map[string]uint32{}
	for _, m := range []string{".data", ".bss"} {
		w.ok(w.store.DumpMap("kconfig/"+m, func(e Entry) error { return json.Unmarshal(e.Value, &got) }))
	}
	if got["version"] < 5<<16 {
		t.Errorf("the kernel's version is %x", got["version"])
	}
	delete(got, "version")
	want := map[string]uint32{"bpf": 1, "bpf_syscall": 1, "absent": 0, "absent_module": 0, "absent_number": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := w.store.Load(objects+"kconfigstrong.o", ""); err == nil || !strings.Contains(err.Error(), "CONFIG_MILLRACE_ABSENT") {
		t.Errorf("loaded without an option that is not weak: %v", err)
	}
}

// Configurations of kernels name the options that are set, compressed or not.
func TestOptionsOfKernelConfigurations(t *testing.T) {
	const text = "# CONFIG_OFF is not set\nCONFIG_ON=y\n\nCONFIG_TEXT=\"a=b\"\nOTHER=1\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	want := map[string]bool{"CONFIG_ON": true, "CONFIG_TEXT": true}
	for _, b := range [][]byte{[]byte(text), packed.Bytes()} {
		got, err := setOptions(bytes.NewReader(b))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(err, diff)
		}
	}
	if _, err := setOptions(bytes.NewReader(packed.Bytes()[:packed.Len()-9])); err == nil {
		t.Error("a cut configuration is read")
	}
}
