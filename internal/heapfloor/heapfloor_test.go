package heapfloor

import (
	"bytes"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/fstest"
	"unsafe"

	"golang.org/x/sys/unix"
)

const megabyte = 1 << 20

// goal returns the size of the heap at which the next collection begins.
func goal() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// resident returns how many bytes of memory are in pages.
func resident(t *testing.T, b []byte) (bytes int) {
	t.Helper()
	pages := make([]byte, len(b)/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		t.Fatal(errno)
	}
	for _, p := range pages {
		bytes += int(p&1) * os.Getpagesize()
	}
	return bytes
}

func TestAFloorKeepsCollectionsApart(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(usual))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	used := bytes.Repeat([]byte{1}, 64*megabyte) // garbage, in whose place the floor may come
	runtime.KeepAlive(used)
	without := goal()
	f := Hold(32 * megabyte)
	if touched := resident(t, f.unused); touched > megabyte || f.Size() > 32*megabyte {
		t.Errorf("a floor of %d bytes has %d resident", f.Size(), touched)
	}
	if with := goal(); with < 64*megabyte || without > 32*megabyte {
		t.Errorf("a collection at %d bytes without a floor, at %d with one", without, with)
	}
	f.Release()
	if after := goal(); after > 32*megabyte || f.Size() != 0 {
		t.Errorf("a collection at %d bytes after the floor was released", after)
	}
}

// TestTheUsersChoiceStands: GOGC and GOMEMLIMIT are the user's.
func TestTheUsersChoiceStands(t *testing.T) {
	for _, c := range []struct {
		percent int
		limit   int64
	}{{50, math.MaxInt64}, {400, math.MaxInt64}, {-1, math.MaxInt64}, {usual, 1 << 30}} {
		func() {
			defer debug.SetGCPercent(debug.SetGCPercent(c.percent))
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(c.limit))
			f := Hold(megabyte)
			if f != nil {
				t.Errorf("GOGC %d, GOMEMLIMIT %d: there is a floor", c.percent, c.limit)
			}
			f.Release()
		}()
	}
}

func TestAFloorIsAPartOfWhatIsAvailable(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	machine := file("MemTotal:       24684084 kB\nMemFree: 1 kB\n")
	for name, c := range map[string]struct {
		root  fstest.MapFS
		bytes uint64
		floor int
	}{
		"nothing is known": {fstest.MapFS{}, 0, 32 * megabyte},
		"the machine":      {fstest.MapFS{"proc/meminfo": machine}, 24684084 << 10, 32 * megabyte},
		"no limit": {fstest.MapFS{
			"proc/meminfo": machine, "proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/a/b/memory.max": file("max\n"),
		}, 24684084 << 10, 32 * megabyte},
		"of a group above": {fstest.MapFS{
			"proc/meminfo": machine, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("1073741824\n"), "sys/fs/cgroup/a/memory.max": file("134217728\n"),
		}, 128 * megabyte, 8 * megabyte},
		"of the root of a container": {fstest.MapFS{
			"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("268435456\n"),
		}, 256 * megabyte, 16 * megabyte},
		"version 1": {fstest.MapFS{
			"proc/meminfo": machine, "proc/self/cgroup": file("4:memory:/a\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("67108864\n"),
		}, 64 * megabyte, 4 * megabyte},
	} {
		got := available(c.root)
		if got != c.bytes || size(32*megabyte, got) != c.floor {
			t.Errorf("%s: %d bytes, a floor of %d", name, got, size(32*megabyte, got))
		}
	}
}
