package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedFilesAreCurrent: the committed files are what layout.txt gives.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	l, err := read("../layout.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outputs {
		want, err := o.write(l)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("..", o.path))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from layout.txt (%v): go generate ./shim/ring", o.path, err)
		}
	}
}

// TestCompilersAgree: the offsets of layout.txt are those of the structs, in C and in the form of CUDA for the CPU. The headers assert them.
func TestCompilersAgree(t *testing.T) {
	for _, tc := range []struct {
		compilers []string
		args      []string
	}{
		{[]string{"cc"}, []string{"-std=c11", "-fsyntax-only", "-Wall", "-Werror", "-x", "c", "../../preload/ring.h"}},
		{[]string{"clang++-19", "c++"}, []string{"-std=c++17", "-fsyntax-only", "-DGK_HOST", "-x", "c++", "../../../gpukern/cuda/sharedring.h"}},
	} {
		var cc string
		for _, name := range tc.compilers {
			if path, err := exec.LookPath(name); err == nil && cc == "" {
				cc = path
			}
		}
		if cc == "" {
			t.Skip("no compiler: ", tc.compilers)
		}
		if out, err := exec.Command(cc, tc.args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", cc, err, out)
		}
	}
}

// TestAssertions: the headers assert the size of each struct and the offset of each field, so that TestCompilersAgree finds what is wrong.
func TestAssertions(t *testing.T) {
	l, err := parse("struct line 64 of words\nfield a u32 4 producer first\nfield b u64 16 producer second\n")
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.c()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"uint8_t unused_0[4];", "_Atomic uint32_t a;", "uint8_t unused_8[8];", "_Atomic uint64_t b;", "uint8_t unused_24[40];",
		`_Static_assert(sizeof(struct ring_line) == 64, "line");`, `_Static_assert(offsetof(struct ring_line, b) == 16, "b");`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in\n%s", want, b)
		}
	}
}

// TestDescriptionIsChecked: among others that each line of a cache has one writer.
func TestDescriptionIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"struct s 64 x\nfield a u32 0 producer x\nfield b u32 4 consumer x\n": "another writer",
		"struct s 64 x\nfield a u64 0 producer x\nfield b u32 4 producer x\n": "overlaps",
		"struct s 64 x\nfield a u64 4 producer x\n":                           "not aligned",
		"struct s 8 x\nfield a u64 8 producer x\n":                            "bytes in",
		"struct s 8 x\nfield a word 0 producer x\n":                           "has the type",
		"struct s 8 x\nvalue A\n":                                             "in no enum",
		"enum E x\nfield a u32 0 producer x\n":                                "in no struct",
		"const A x1\n":                                                        "invalid syntax",
		"line\n":                                                              "is no const",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := parse("struct s 128 x\nfield a u32 0 producer x\nfield b u32 64 consumer x\n"); err != nil {
		t.Error(err)
	}
}
