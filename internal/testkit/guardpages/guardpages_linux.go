// Package guardpages gives tests memory beside which every access is a fault.
package guardpages

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// New returns n bytes, a number of pages, between two pages that nothing may touch. They go with the test.
func New(t testing.TB, n int) []byte {
	t.Helper()
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, n+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	for _, p := range [][]byte{mem[:page], mem[page+n:]} {
		if err := unix.Mprotect(p, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return mem[page : page+n : page+n]
}
