package ring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDirectLayout compares offsets with what a C compiler says about direct.h.
func TestDirectLayout(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc)")
	}
	dir := t.TempDir()
	source := `#include "direct.h"
#include <stdio.h>
#define D(f) offsetof(struct direct_direction, f)
#define P(f) offsetof(struct direct_page, f)
int main(void) {
	printf("%d %d %d %zu %zu %zu %zu %zu | ", DIRECT_MAGIC, DIRECT_VERSION, DIRECT_HEADER, P(magic), P(version), P(size), P(ended), P(direction));
	printf("%zu %zu %zu %zu %zu %zu %zu %zu %zu | ", sizeof(struct direct_direction), D(notifier), D(tail), D(want), D(cpu), D(closes), D(head), D(space), D(asked));
	printf("%d %d %d %u %u\n", DIRECT_ASLEEP, DIRECT_WOKEN, DIRECT_SLEEPS, DIRECT_LEFT, DIRECT_INDEX);
}`
	file, bin := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-std=c11", "-I../preload", "-o", bin, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintln(DirectMagic, DirectVersion, directHeader, magicAt, versionAt, sizeAt, directEndedAt, directAt, "|",
		directDirectionSize, directNotifierAt, directTailAt, directWantAt, directCPUAt, directClosesAt, directHeadAt, directSpaceAt, directAskedAt, "|", directAsleep, directWoken, directSleeps, directLeft, directIndex)
	if string(got) != want {
		t.Errorf("C:  %sGo: %s", got, want)
	}
}

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
	heads := [2]int{directAt + directHeadAt, directAt + directDirectionSize + directHeadAt}
	d.word(heads[0]).Store(1000)
	d.word(heads[1]).Store(50)
	if n := d.Count(); n != 1050 || d.Moved() {
		t.Errorf("%d bytes, moved %v", n, d.Moved())
	}
	d.word(heads[0]).Store(directLeft | 3)
	if n := d.Count(); n != 3-1000+1<<31 || d.Moved() {
		t.Errorf("%d bytes, moved %v", n, d.Moved())
	}
	d.word(heads[1] - directHeadAt + directTailAt).Store(directLeft | 50)
	if n := d.Count(); n != 0 || !d.Moved() {
		t.Errorf("%d bytes, moved %v", n, d.Moved())
	}
}
