package datapath

import (
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/random"
)

// TestTheFreeSetHandsOutTheLowestPlace compares it with a list of booleans, at sizes around those of its words.
func TestTheFreeSetHandsOutTheLowestPlace(t *testing.T) {
	for _, size := range []int{1, 63, 64, 65, 4095, 4096, 4097} {
		r := rand.New(rand.NewPCG(uint64(size), 1))
		f, used, n := newFreeSet(size), make([]bool, size), 0
		for range 4 * size {
			if n == size || n > 0 && r.IntN(3) == 0 {
				k := r.IntN(size)
				for ; !used[k]; k = (k + 1) % size {
				}
				used[k] = false
				f.put(k)
				n--
				continue
			}
			want := 0
			for used[want] {
				want++
			}
			if got := f.take(); got != want {
				t.Fatalf("size %d: place %d, want %d", size, got, want)
			}
			used[want] = true
			n++
		}
		for k := range used {
			if used[k] {
				f.put(k)
			}
		}
		for w := range f.levels[0] {
			if !f.free64(w) {
				t.Errorf("size %d: word %d is not free at the end", size, w)
			}
		}
	}
}

// resident returns how many bytes of s the kernel backs with memory (mincore(2)).
func resident[T any](t *testing.T, s []T) int {
	t.Helper()
	var one T
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(&s[0])) &^ (page - 1)
	size := uintptr(len(s)) * unsafe.Sizeof(one)
	state := make([]byte, (size+page-1)/page)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, at, size, uintptr(unsafe.Pointer(&state[0]))); errno != 0 {
		t.Fatal(errno)
	}
	n := 0
	for _, b := range state {
		n += int(b & 1)
	}
	return n * int(page)
}

func numbered(i int) *Conn {
	return &Conn{client: addr{1, uint64(i)}, endpoint: uint32(i), state: stateEstablished}
}

func enter(tb *table, c *Conn) { tb.add(c, tb.hashesOf(c)) }
func leave(tb *table, n int)   { tb.remove(n, tb.hashesOf(&tb.conns[n])) }

// TestATableGivesMemoryBack fills a table, empties it but for some connections, and looks at the memory that backs it.
func TestATableGivesMemoryBack(t *testing.T) {
	const size, left = 150_001, 100
	tb := newTable(size, size/4, new(random.Source))
	for round := range 2 { // the second uses memory that was given back
		for i := range size {
			enter(tb, numbered(i))
		}
		for n := range tb.conns {
			tb.sequences[n], tb.closed[n] = sequences{}, closedConn{timeWait: timeWait{next: 1}}
		}
		used := resident(t, tb.conns) + resident(t, tb.index) + resident(t, tb.closed)
		now := ticks(round * 1e6)
		if tb.trim(now) {
			t.Fatal("a full table gives memory back")
		}
		keep := func(i int) bool { return i%(size/left) == 0 }
		for i := range size {
			if !keep(i) {
				k := clientKey{client: addr{1, uint64(i)}}
				leave(tb, tb.byClient(&k))
			}
		}
		steps := 0
		for pass := range 4 { // one that began early would need another
			for tb.trim(now + ticks(pass)*ticksIn(trimRest)) {
				steps++
			}
		}
		if most := (size*64+len(tb.index)*8)/(trimStep*pageSize) + 3; steps == 0 || steps > most {
			t.Errorf("%d steps, want 1 to %d", steps, most)
		}
		now2 := resident(t, tb.conns) + resident(t, tb.index) + resident(t, tb.closed)
		t.Logf("%d KiB of %d are left", now2>>10, used>>10)
		if now2 > used/8 {
			t.Errorf("%d of %d bytes stay, with %d of %d connections", now2, used, tb.live, size)
		}
		for i := range size {
			k := clientKey{client: addr{1, uint64(i)}}
			n := tb.byClient(&k)
			if (n >= 0) != keep(i) {
				t.Fatalf("connection %d is found at %d", i, n)
			}
			if n >= 0 {
				leave(tb, n)
			}
		}
	}
	for i := range size {
		enter(tb, numbered(i))
	}
	tb.trim(ticks(3e6))
	for n := range tb.conns {
		leave(tb, n)
	}
	for pass := range 3 {
		for tb.trim(ticks(3e6) + ticks(pass)*ticksIn(trimRest)) {
		}
	}
	if tb.high != 0 {
		t.Errorf("an empty table still looks at %d places", tb.high)
	}
}
