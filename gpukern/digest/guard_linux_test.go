package digest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// guarded returns n bytes between two pages that nothing may touch. n is a number of pages.
func guarded(t *testing.T, n int) []byte {
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

// TestGuardPages has data that begins or ends where the memory does, as an arena's first and last packets may: a load beyond it
// would be a fault.
func TestGuardPages(t *testing.T) {
	size := uint32(2 * os.Getpagesize())
	mem := guarded(t, int(size))
	everyForm(t, func(t *testing.T, c *CPU) {
		for _, a := range []Algorithm{SHA256, HMACSHA256, SHA512, BLAKE2s, CRC32C} {
			b := Batch{Algorithm: a, Mem: mem, Keys: []*Key{NewKey([]byte("key"))}}
			for n := range uint32(700) {
				b.Ops = b.Ops[:0]
				for i := range uint32(8) { // more than crypto/sha256 is left with
					b.Ops = append(b.Ops,
						Op{Data: size - n, Len: n, Sum: 64 * i},
						Op{Data: 0, Len: n, Sum: size - 64*(i+1)})
				}
				if done := c.Sum(&b); done != len(b.Ops) {
					t.Fatalf("%v, %d bytes: %d done", a, n, done)
				}
			}
		}
	})
}
