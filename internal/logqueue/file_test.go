package logqueue

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallDisk returns a folder on a disk of its own with room for some pages.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("no disk of its own: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// eventually waits until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// lines returns the lines of a file, each of which must be whole.
func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		t.Errorf("the file ends within a line: %q", text[bytes.LastIndexByte(text, '\n')+1:])
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// What a full disk does not take waits, is written as a whole once there is room, and what did not fit the buffer is counted.
func TestAFullDiskLosesNoLineThatFitsTheBuffer(t *testing.T) {
	for name, limit := range map[string]int{"all fit": 1 << 20, "few fit": 2000} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t)
			ballast, path := filepath.Join(dir, "ballast"), filepath.Join(dir, "log")
			if err := os.WriteFile(ballast, make([]byte, 8<<10), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			w := New(f, limit, nil)
			var mu sync.Mutex
			var states []bool
			w.OnError(func(err error) {
				mu.Lock()
				defer mu.Unlock()
				states = append(states, errors.Is(err, unix.ENOSPC))
			})
			const records = 120
			for i := range records { // 12 KB for 8
				fmt.Fprintf(w, "%0100d\n", i)
				if i%20 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			eventually(t, "the disk is not full", func() bool { mu.Lock(); defer mu.Unlock(); return len(states) > 0 })
			lines(t, path)
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			if !w.Close(30 * time.Second) {
				t.Error("not all is written")
			}
			if limit > 10000 && w.Dropped() != 0 {
				t.Errorf("%d records are dropped although all fit", w.Dropped())
			}
			got := lines(t, path)
			for i, line := range got {
				if len(line) != 100 || i > 0 && line <= got[i-1] {
					t.Fatalf("line %d is %q", i, line)
				}
			}
			if n := uint64(len(got)) + w.Dropped(); n != records {
				t.Errorf("%d lines and %d dropped of %d", len(got), w.Dropped(), records)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(states) > 0 && !states[0] {
				t.Error("the error is not that of a full disk")
			}
		})
	}
}

// The end of a program does not wait for a disk that stays full, and says what it has lost.
func TestCloseGivesAFullDiskUp(t *testing.T) {
	f, err := Open("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	w := New(f, 1000, nil)
	fmt.Fprintf(w, "a\nb\n")
	fmt.Fprintf(w, "c\n")
	if w.Close(20 * time.Millisecond) {
		t.Error("Close says that all is written")
	}
	eventually(t, "the records are not counted", func() bool { return w.Dropped() == 3 && w.Waiting() == 0 })
}

// An error that does not pass costs the records of the write, at once.
func TestAFileThatIsClosedTakesNothing(t *testing.T) {
	f, err := Open(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w := New(f, 1000, nil)
	fmt.Fprintf(w, "a\n")
	eventually(t, "the record is not counted", func() bool { return w.Dropped() == 1 })
	if w.Close(time.Minute); w.Waiting() != 0 {
		t.Error("something waits")
	}
}

// A line that a program before has not completed does not join the next.
func TestATornLineEndsBeforeTheNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]string{"": "next\n", "whole\n": "whole\nnext\n", "to": "to\nnext\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("next\n")); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// The file that takes the place of one that is written, under the same name, begins with no empty line: it was opened in the middle
// of a line, as a writer of another goroutine may be.
func TestAFileTakesThePlaceInTheMiddleOfALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var next *File
	for _, part := range []string{"to", "gether\n"} {
		if _, err := f.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
		if next == nil {
			if next, err = Open(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Swap(next); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("next\n")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "together\nnext\n" {
		t.Errorf("the file is %q", got)
	}
}

// A pipe without a reader is an error with a remedy, and does not hang.
func TestAPipeWithoutAReaderIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, unix.ENXIO) || !strings.Contains(err.Error(), "reader") {
		t.Errorf("%v", err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte("a\n")); err != nil {
		t.Error(err)
	}
	got := make([]byte, 10)
	if n, err := reader.Read(got); string(got[:n]) != "a\n" {
		t.Errorf("%q, %v", got[:n], err)
	}
}

// The file that takes the place of a full one begins with a whole line.
func TestAFileTakesThePlaceOfAFullOne(t *testing.T) {
	dir := smallDisk(t)
	f, err := Open(filepath.Join(dir, "full"))
	if err != nil {
		t.Fatal(err)
	}
	w := New(f, 1<<20, nil)
	for i := range 300 {
		fmt.Fprintf(w, "%0100d\n", i)
	}
	eventually(t, "the disk is not full", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.failing })
	path := filepath.Join(t.TempDir(), "next")
	next, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Swap(next); err != nil {
		t.Fatal(err)
	}
	if !w.Close(30 * time.Second) {
		t.Error("not all is written")
	}
	if n := len(lines(t, filepath.Join(dir, "full"))) + len(lines(t, path)); n != 300 {
		t.Errorf("%d lines of 300", n)
	}
}
