package ring_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/ring"
)

// TestSharedArena maps the file of an arena as another process would, and sees the same bytes.
func TestSharedArena(t *testing.T) {
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 3, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	other, err := unix.Mmap(a.File(), 0, len(a.Mem), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	a.Mem[2*2048+5], other[7] = 1, 2
	if other[2*2048+5] != 1 || a.Mem[7] != 2 {
		t.Error("the bytes differ")
	}
	if err := unix.Ftruncate(a.File(), 0); err == nil {
		t.Error("the file can be truncated")
	}
	if err := unix.Munmap(other); err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil || a.File() != -1 {
		t.Error(err, a.File())
	}
	b, err := ring.NewArena(ring.ArenaConfig{Frames: 1})
	if err != nil || b.File() != -1 {
		t.Fatal(err, b.File())
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
