package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCached finds what is in the page cache, and what is not.
func TestCached(t *testing.T) {
	const size = 1 << 20
	root := folder(t, map[string]string{"f": strings.Repeat("x", size)})
	f, err := os.Open(filepath.Join(root, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	q := NewRequest("GET", "/f", "/f", "", nil)
	a, err := site(t, Options{Root: root}).Answer(&q, Later)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if n := a.Cached(size / 2); n != size/2 {
		t.Errorf("%d of %d bytes are cached right after they were written", n, size/2)
	}
	a.Advance(size - 100)
	if fd, at := a.File(); fd < 0 || at != size-100 || a.Left() != 100 || a.Cached(size) != 100 {
		t.Errorf("file %d at %d, %d left, %d cached", fd, at, a.Left(), a.Cached(size))
	}
	a.Advance(100)
	if n := a.Cached(1); n != 0 {
		t.Errorf("%d bytes behind the end are cached", n)
	}
	a.at, a.left = 0, size
	const hole = size / 2
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	for at := int64(hole); at < size; at += 4096 { // a folder in memory keeps them
		_ = unix.Fadvise(int(f.Fd()), at, 4096, unix.FADV_DONTNEED)
	}
	if !a.has(hole + 1) {
		if n := a.Cached(size); n == 0 || n > hole {
			t.Errorf("%d bytes are cached, and %d are", n, hole)
		}
	}
	if err := os.Truncate(filepath.Join(root, "f"), 100); err != nil {
		t.Fatal(err)
	}
	if n := a.Cached(size); n > probeStep {
		t.Errorf("%d bytes are cached of a file that has 100", n)
	}
}

// TestCachedWithoutCount: where the kernel does not count the pages of a file, some bytes stand for all.
func TestCachedWithoutCount(t *testing.T) {
	root := folder(t, map[string]string{"f": strings.Repeat("x", 100_000)})
	q := NewRequest("GET", "/f", "/f", "", nil)
	a, err := site(t, Options{Root: root}).Answer(&q, Later)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if n := a.sampled(100_000); n != 100_000 {
		t.Errorf("%d of 100000 bytes", n)
	}
	if n := a.sampled(200_000); n <= 100_000-probeStep || n > 100_000+probeStep {
		t.Errorf("%d bytes of a file with 100000", n)
	}
	if text := (&Answer{fd: -1, text: []byte("abc"), left: 3}); text.Cached(3) != 0 {
		t.Error("a text is no file")
	}
}
