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

	"github.com/millrace/millrace/clock"
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
			if a, _ := l.table.of(key); a.find(key) != nil {
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

// Look-ups read one cache line, not two: keys are in the first line of their first bucket, nearly all while half of those are in use that the
// table is for, and as many where keys come and go, as those that come take the first places that are free.
func TestMostKeysAreInTheFirstLine(t *testing.T) {
	const keys = 100_000
	l := New(Options{Requests: 1, Interval: time.Second, Keys: keys})
	if at := uintptr(unsafe.Pointer(&l.table.buckets[0])); at%64 != 0 || unsafe.Sizeof(bucket{}) != 128 {
		t.Fatalf("buckets of %d bytes begin at %x", unsafe.Sizeof(bucket{}), at)
	}
	r := rand.New(rand.NewPCG(5, 6))
	now := clock.Time(1)
	for round := range 3 { // all keys of a round are free in the next
		for _, step := range []struct {
			used  int
			least float64
		}{{keys / 2, 0.96}, {keys, 0.75}} {
			now += clock.Time(2 * time.Second)
			first := 0
			names := make([]uint64, step.used)
			for i := range names {
				names[i] = r.Uint64() | 1
				l.Take(now, names[i])
			}
			for _, key := range names {
				a, _ := l.table.of(key)
				for i := range a[:ways/2] {
					if a[i].key.Load() == key {
						first++
					}
				}
			}
			if share := float64(first) / float64(step.used); share < step.least {
				t.Errorf("round %d, %d keys: %.3f are in the first line", round, step.used, share)
			}
		}
	}
}

// A bucket gives its first free place, and where it has none that of the key which has the least to lose, though not one that is claimed.
func TestPlacesOfABucket(t *testing.T) {
	const now = 10
	for _, c := range []struct {
		name        string
		tats        [ways]int64
		place, free int
	}{
		{"empty", [ways]int64{}, 0, 8},
		{"two free", [ways]int64{11, 12, 10, 13, 5, 14, 15, 16}, 2, 2},
		{"full", [ways]int64{15, 12, 19, 11, 13, 14, 18, 17}, 3, 0},
		{"full, the least claimed", [ways]int64{15, 12, 19, claimed, 13, 14, 18, 17}, 1, 0},
		{"a free one after a claimed one", [ways]int64{claimed, 12, 19, 11, 13, 14, 18, 1}, 7, 1},
	} {
		var b bucket
		for i, tat := range c.tats {
			b[i].tat.Store(tat)
		}
		if p, tat, free := b.scan(now); p != &b[c.place] || tat != c.tats[c.place] || free != c.free {
			t.Errorf("%s: time %d, %d free", c.name, tat, free)
		}
	}
	var all bucket
	for i := range all {
		all[i].tat.Store(claimed)
	}
	if _, tat, _ := all.scan(now); tat != claimed {
		t.Errorf("a place of a bucket that is claimed as a whole: time %d", tat)
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

// A key in the second bucket is found with as few keys in the first as send one there, and a key that has no place is looked for in one
// line while its first bucket has none of its places taken.
func TestKeysOfTheSecondBucketAreFound(t *testing.T) {
	l := New(Options{Requests: 1, Interval: time.Hour, Keys: 1000})
	r := rand.New(rand.NewPCG(7, 8))
	first := &l.table.buckets[17]
	for in := range ways {
		var key uint64
		for a, b := (*bucket)(nil), first; a != first || b[0].tat.Load() != 0; a, b = l.table.of(key) {
			key = r.Uint64() | 1
		}
		if l.table.find(key) != nil {
			t.Fatalf("a key without a place is found beside %d", in)
		}
		l.Take(1, key)
		if second := first.find(key) == nil; second != (in >= spill) {
			t.Fatalf("key %d is in its second bucket: %v", in, second)
		}
		if l.Take(1, key).Allowed {
			t.Fatalf("key %d of its first bucket is not found", in)
		}
	}
}
