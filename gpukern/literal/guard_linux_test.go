package literal

import (
	"bytes"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/guardpages"
)

// TestNoReadBeyondTheText lays texts at the end and at the start of a page between two that nobody may read.
func TestNoReadBeyondTheText(t *testing.T) { forms(t, noReadBeyondTheText) }

func noReadBeyondTheText(t *testing.T) {
	size := unix.Getpagesize()
	page := guardpages.New(t, size)
	set := []Pattern{{[]byte("abc"), true, 1}, {[]byte("bcab"), false, 2}, {[]byte("abcabcabcab"), true, 3}}
	s := compile(t, set)
	for n := 1; n <= 300; n++ {
		for _, text := range [][]byte{page[:n], page[size-n:]} {
			for i := range text {
				text[i] = "abc"[i%3]
			}
			agree(t, s, set, nil, text, 0)
			agree(t, s, set, text[:n/2], text[n/2:], 0)
		}
	}
}

// TestLimitEndsTheSearch: where matches are everywhere, the search stops soon behind the last that is reported. What is
// further on cannot be read.
func TestLimitEndsTheSearch(t *testing.T) {
	set := hardSets()["a"]
	s := compile(t, set)
	agree(t, s, set, nil, bytes.Repeat([]byte("a"), 300), 100)
	const readable = 1 << 16
	memory, err := unix.Mmap(-1, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	copy(memory, bytes.Repeat([]byte("a"), readable))
	if err := unix.Mprotect(memory[readable:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("the first 16 matches are in the first bytes, and the search reads beyond %d: %v", readable, p)
		}
	}()
	s.Scan(nil, memory, 16, nil)
}
