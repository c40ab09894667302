package logqueue

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// bounded returns a file that is rotated, and the errors of that.
func bounded(t *testing.T, path string, r Rotation) (*File, *[]error) {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	errs := new([]error)
	f.Rotate(r, func(err error) { *errs = append(*errs, err) })
	return f, errs
}

// All lines are in the files, whole and in their order, no file is larger than the bound, and the oldest are gone.
func TestFilesAreRotatedWithoutLossOfLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, errs := bounded(t, path, Rotation{Size: 1000, Keep: 100})
	w := New(f, 1<<20, nil)
	w.Gather(time.Millisecond)
	var want []string
	want = append(want, "before")
	for i := range 500 {
		line := strings.Repeat("x", i%90) + fmt.Sprint(i)
		want = append(want, line)
		fmt.Fprintln(w, line)
	}
	if !w.Close(30*time.Second) || len(*errs) > 0 {
		t.Fatalf("not all is written: %v", *errs)
	}
	names, err := filepath.Glob(path + ".*")
	if err != nil || len(names) < 20 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	var got []string
	for n := len(names); n >= 0; n-- {
		name := path
		if n > 0 {
			name = fmt.Sprintf("%s.%d", path, n)
		}
		if st, err := os.Stat(name); err != nil || st.Size() > 1000 || n > 0 && st.Size() < 900 {
			t.Errorf("%s has %d bytes, %v", name, st.Size(), err)
		}
		got = append(got, lines(t, name)...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d lines in other order than %d", len(got), len(want))
	}
}

func TestOnlySomeFilesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, _ := bounded(t, path, Rotation{Size: 10, Keep: 2})
	for i := range 9 {
		if n, err := fmt.Fprintf(f, "line %03d\n", i); n != 9 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	for name, want := range map[string]string{path: "line 008\n", path + ".1": "line 007\n", path + ".2": "line 006\n", path + ".3": ""} {
		if got, _ := os.ReadFile(name); string(got) != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// A line that is longer than the bound is written whole, in a file of its own.
func TestALineLongerThanTheBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, _ := bounded(t, path, Rotation{Size: 10, Keep: 9})
	long := strings.Repeat("x", 30)
	if _, err := fmt.Fprintf(f, "a\n%s\nb\nc\n", long); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path: "b\nc\n", path + ".1": long + "\n", path + ".2": "a\n"} {
		if got, _ := os.ReadFile(name); string(got) != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// Where a file cannot be renamed lines go on in it, and the error is reported once for each bound's worth of bytes.
func TestARotationThatFailsLosesNoLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.MkdirAll(filepath.Join(path+".1", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, errs := bounded(t, path, Rotation{Size: 90, Keep: 1})
	for i := range 45 {
		fmt.Fprintf(f, "line %03d\n", i)
	}
	if n := len(lines(t, path)); n != 45 || len(*errs) != 4 {
		t.Errorf("%d lines, %d errors: %v", n, len(*errs), *errs)
	}
	if err := os.RemoveAll(path + ".1"); err != nil {
		t.Fatal(err)
	}
	for i := range 15 {
		fmt.Fprintf(f, "line %03d\n", i)
	}
	if n := len(lines(t, path)) + len(lines(t, path+".1")); n != 60 {
		t.Errorf("%d lines", n)
	}
}

// A file that another program has renamed is not renamed again: another has its name.
func TestAFileThatWasRenamedIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, errs := bounded(t, path, Rotation{Size: 10, Keep: 3})
	fmt.Fprintf(f, "line 001\n")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, "line 002\n")
	if err := os.Rename(path, path+".older"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, "3\n")
	fmt.Fprintf(f, "line 004\n")
	for name, want := range map[string]string{path: "line 004\n", path + ".1": "a\n", path + ".old": "line 001\n", path + ".older": "line 002\n"} {
		if got, _ := os.ReadFile(name); !strings.Contains(string(got), want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if len(*errs) > 0 {
		t.Error(*errs)
	}
}
