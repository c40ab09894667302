package main

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// built builds a program as `go build` does, with some flags, and returns its path.
func built(t *testing.T, dir string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", append([]string{"build", "-o", path}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// needs returns the interpreter and the libraries that a program needs; none of a static one.
func needs(t *testing.T, path string) (list []string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			list = append(list, "an interpreter")
		}
	}
	libs, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	return append(list, libs...)
}

// loaded returns the bytes of a program's sections that it loads: its size without symbols.
func loaded(t *testing.T, path string) (size uint64) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Type != elf.SHT_NOBITS {
			size += s.Size
		}
	}
	return size
}

// inEmptyRoot runs a program that is the only file of its root.
func inEmptyRoot(t *testing.T, program, in string, args ...string) (code int, out string) {
	t.Helper()
	root := t.TempDir()
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "millrace"), text, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/millrace", args...)
	var both bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = []string{}, "/", strings.NewReader(in), &both, &both
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	err = cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("%v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), both.String()
}

// TestTheProgramOfGoBuildIsStatic runs it as a container from scratch does: beside it there is no file at all.
func TestTheProgramOfGoBuildIsStatic(t *testing.T) {
	program := built(t, ".", ".")
	if list := needs(t, program); len(list) > 0 {
		t.Fatalf("the program needs %v", list)
	}
	if size := loaded(t, program); size > 40e6 {
		t.Errorf("the program has %d bytes: what has brought them? go build -ldflags=-dumpdep shows a type's methods kept for reflection", size)
	}
	testnet.For(t, "mr-static") // root, or a skip
	const file = "listeners: [{name: l, address: 0.0.0.0:80, protocol: HTTP}]\nroutes: [{name: r, rules: [{filters: [{type: FixedResponse}]}]}]\n"
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"version", exitOK, "gpu      none (static)"},
		{"gateway check -c -", exitOK, "the configuration is valid"},
		{"doctor --json", exitFailure, "this program is static, built without support for GPUs"}, // /proc is missing
		{"bench kern --engine cuda --time 1ms", exitFailure, "this program is built without support for GPUs"},
	} {
		if code, out := inEmptyRoot(t, program, file, strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%s: code %d, want %d with %q\n%s", c.args, code, c.code, c.says, out)
		}
	}
}

// TestTheProgramWithGPUsIsLinkedDynamically, and programs that import the root package are not.
func TestTheProgramWithGPUsIsLinkedDynamically(t *testing.T) {
	program := built(t, ".", "-tags", "cuda", ".")
	if list := needs(t, program); len(list) == 0 {
		t.Error("the program with the tag cuda needs no library, so it cannot load the driver")
	}
	if out, err := exec.Command(program, "version").CombinedOutput(); err != nil || !strings.Contains(string(out), "gpu      cuda (linked dynamically)") {
		t.Errorf("%v\n%s", err, out)
	}
	if list := needs(t, built(t, "../../examples/httpserver", ".")); len(list) > 0 {
		t.Errorf("examples/httpserver, which imports the root package, needs %v", list)
	}
}
