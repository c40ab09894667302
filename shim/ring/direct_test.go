package ring

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestDirectCounts: the node counts what was read, over the end of the indexes, and sees that both directions have left.
func TestDirectCounts(t *testing.T) {
	d, fd, err := CreateDirect(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 1); err != unix.EPERM {
		t.Errorf("truncated: %v", err)
	}
	from, to := d.direction(0), d.direction(1)
	from.head.Store(1000)
	to.head.Store(50)
	if n := d.Count(); n != 1050 || d.Moved() {
		t.Errorf("%d bytes, moved %v", n, d.Moved())
	}
	from.head.Store(1 << 33)
	from.gone.Store(1)
	if n := d.Count(); n != 1<<33-1000 || d.Moved() {
		t.Errorf("%d bytes, moved %v", n, d.Moved())
	}
	from.head.Store(7) // no head goes back
	to.tail.Store(50 | tailLeft)
	if n := d.Count(); n != 0 || !d.Moved() {
		t.Errorf("%d bytes, moved %v", n, d.Moved())
	}
}
