package ratelimit

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// Nearly all keys are in their first bucket while half of those are in use that the table is for, and buckets do not overflow with all.
func TestMostKeysAreInTheirFirstBucket(t *testing.T) {
	const keys = 200_000
	l := New(Options{Requests: 1, Interval: time.Hour, Keys: keys})
	r := rand.New(rand.NewPCG(3, 4))
	var names []uint64
	share := func() float64 {
		first := 0
		for _, key := range names {
			if a, _ := l.table.of(key); a.find(key).tat != nil {
				first++
			}
		}
		return float64(first) / float64(len(names))
	}
	for _, step := range []struct {
		used  int
		least float64
	}{{keys / 2, 0.95}, {keys, 0.75}} {
		for len(names) < step.used {
			names = append(names, r.Uint64()|1)
			l.Take(1, names[len(names)-1])
		}
		for _, key := range names {
			if l.Take(1, key).Allowed {
				t.Fatalf("key %x has no place", key)
			}
		}
		if s := share(); s < step.least {
			t.Errorf("%d keys: %.3f are in their first bucket", step.used, s)
		}
	}
	if n := l.Evicted(); n != 0 {
		t.Errorf("%d keys were evicted", n)
	}
}

// flagsOf returns the flags of the mapping that has an address (proc(5), VmFlags).
func flagsOf(t *testing.T, at uintptr) string {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	within := false
	for s := bufio.NewScanner(f); s.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(s.Text(), "%x-%x ", &from, &to); n == 2 {
			within = from <= at && at < to
		}
		if flags, ok := strings.CutPrefix(s.Text(), "VmFlags:"); ok && within {
			return flags + " "
		}
	}
	t.Fatalf("%x is mapped nowhere", at)
	return ""
}

// A large table asks for huge pages, from its first bucket to its last.
func TestLargeTablesAskForHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skip("the kernel has no huge pages to ask for")
	}
	large := newTable(2 * hugeLeast / 32)
	for _, b := range []*bucket{&large.buckets[0], &large.buckets[len(large.buckets)-1]} {
		if flags := flagsOf(t, uintptr(unsafe.Pointer(b))); !strings.Contains(flags, " hg ") {
			t.Errorf("flags %q", flags)
		}
	}
}
