package ring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lines returns n bytes on a boundary of 128.
func lines(n int) []byte {
	b := make([]byte, n+entrySize)
	for i := range b {
		if uintptr(unsafe.Pointer(&b[i]))%entrySize == 0 {
			return b[i : i+n]
		}
	}
	return nil
}

func newQueue(t testing.TB, slots int) (*QueueProducer, *QueueConsumer) {
	t.Helper()
	b := lines(QueueSize(slots))
	if err := InitQueue(b, slots); err != nil {
		t.Fatal(err)
	}
	p, err := NewQueueProducer(b)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewQueueConsumer(b)
	if err != nil {
		t.Fatal(err)
	}
	return p, c
}

// numbered returns the entry with a number, of the length that follows from it.
func numbered(i int) Entry {
	e := Entry{Connection: uint32(i), Generation: uint16(i * 7), Operation: uint8(i * 3), Length: uint8(i % (EntryBytes + 1)), Offset: uint32(i * 11)}
	for j := range int(e.Length) {
		e.Data[j] = byte(i + j)
	}
	return e
}

// TestQueue passes entries of all lengths over several laps, and counts the slots.
func TestQueue(t *testing.T) {
	p, c := newQueue(t, 4)
	put, took := 0, 0
	for took < 300 {
		for {
			e := numbered(put)
			ok, err := p.Put(&e)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			put++
		}
		if put-took != 4 {
			t.Fatalf("%d entries in 4 slots", put-took)
		}
		for range 1 + took%4 {
			var e Entry
			if ok, err := c.Take(&e); !ok || err != nil {
				t.Fatalf("entry %d: %v, %v", took, ok, err)
			}
			if want := numbered(took); e.Length != want.Length || e.Connection != want.Connection || e.Generation != want.Generation ||
				e.Operation != want.Operation || e.Offset != want.Offset || string(e.Data[:e.Length]) != string(want.Data[:e.Length]) {
				t.Fatalf("entry %d: %+v, want %+v", took, e, want)
			}
			took++
		}
	}
}

// TestQueueWaitsForEachChunk: an entry is taken when all its chunks have the sequence of the lap, and not before.
func TestQueueWaitsForEachChunk(t *testing.T) {
	p, c := newQueue(t, 2)
	for range 3 { // two laps: old sequences are in the slots
		for i := range 2 {
			e := numbered(EntryBytes - i)
			if ok, err := p.Put(&e); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		for range 2 {
			for i := range EntryBytes/queueChunk + 1 {
				sequence := c.word(c.chunk(i) + chunkSequenceAt)
				right := sequence.Load()
				sequence.Store(right - 1)
				var e Entry
				if ok, _ := c.Take(&e); ok {
					t.Fatalf("taken without chunk %d", i)
				}
				sequence.Store(right)
			}
			var e Entry
			if ok, err := c.Take(&e); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		var e Entry
		if ok, _ := c.Take(&e); ok {
			t.Fatal("an entry of the lap before is taken")
		}
	}
}

// TestQueueSequences: no lap has the sequence 0, and they go on after the last.
func TestQueueSequences(t *testing.T) {
	q := queue{mask: 7, shift: 3}
	for position, want := range map[uint64]uint32{0: 1, 7: 1, 8: 2, (1<<32 - 2) << 3: 1<<32 - 1, (1<<32 - 1) << 3: 1} {
		if q.position = position; q.sequence() != want {
			t.Errorf("position %#x: %#x, want %#x", position, q.sequence(), want)
		}
	}
}

func TestQueueViolations(t *testing.T) {
	p, c := newQueue(t, 2)
	e := numbered(3)
	for range 2 {
		if ok, err := p.Put(&e); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	c.long(queueConsumedAt).Store(3)
	if _, err := p.Put(&e); err != ErrViolation {
		t.Errorf("taken before it was written: %v", err)
	}
	c.b[c.chunk(0)+entryLengthAt] = EntryBytes + 1
	if _, err := c.Take(&e); err != ErrViolation {
		t.Errorf("a length that cannot be: %v", err)
	}
	if _, err := p.Put(&Entry{Length: EntryBytes + 1}); err == nil {
		t.Error("a longer entry is written")
	}
	for _, slots := range []int{0, -2, 3, 1 << 25} {
		if InitQueue(lines(4096), slots) == nil {
			t.Errorf("%d slots", slots)
		}
	}
	b := lines(QueueSize(4))
	for _, err := range []error{InitQueue(b[8:], 2), InitQueue(b, 8)} {
		if err == nil {
			t.Error("a queue that is not aligned, or longer than its memory")
		}
	}
	if _, err := NewQueueConsumer(b); err == nil {
		t.Error("memory that is no queue")
	}
}

// TestQueueDeadlines: each end sees when the other looks again.
func TestQueueDeadlines(t *testing.T) {
	p, c := newQueue(t, 2)
	p.Retry(50 * time.Microsecond)
	c.Poll(3 * time.Millisecond)
	if c.Deadline() != 50*time.Microsecond || p.Deadline() != 3*time.Millisecond {
		t.Errorf("%v, %v", c.Deadline(), p.Deadline())
	}
}

func TestQueueAllocates(t *testing.T) {
	p, c := newQueue(t, 2)
	e, got := numbered(84), Entry{}
	if n := testing.AllocsPerRun(100, func() {
		_, _ = p.Put(&e)
		_, _ = c.Take(&got)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestQueueOfKernel passes entries to a kernel and back: the code of gpukern/cuda, compiled for the CPU.
func TestQueueOfKernel(t *testing.T) {
	cc, err := exec.LookPath("clang++-19")
	if err != nil {
		t.Skip("no clang++-19")
	}
	const slots, count = 16, 5000
	dir, kernels := t.TempDir(), "../../gpukern/cuda"
	program, file := filepath.Join(dir, "echo"), filepath.Join(dir, "queues")
	build := exec.Command(cc, "-std=c++17", "-O1", "-Wall", "-Werror", "-DGK_HOST", "-pthread", "-x", "c++", "-I"+kernels, "-o", program, "testdata/echo.cc", kernels+"/host.cc")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := mapped(t, file, 2*QueueSize(slots))
	in, out := b[:QueueSize(slots)], b[QueueSize(slots):]
	for _, q := range [][]byte{in, out} {
		if err := InitQueue(q, slots); err != nil {
			t.Fatal(err)
		}
	}
	p, _ := NewQueueProducer(in)
	c, err := NewQueueConsumer(out)
	if err != nil {
		t.Fatal(err)
	}
	kernel := exec.Command(program, file, fmt.Sprint(len(b)), fmt.Sprint(count))
	if err := kernel.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kernel.Process.Kill() })
	guard := time.Now().Add(time.Minute)
	for put, took := 0, 0; took < count; {
		if e := numbered(put); put < count {
			ok, err := p.Put(&e)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				put++
			}
		}
		var e Entry
		ok, err := c.Take(&e)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			if time.Now().After(guard) {
				t.Fatalf("%d entries, %d came back", put, took)
			}
			runtime.Gosched()
			continue
		}
		want := numbered(took)
		for i := range int(want.Length) {
			want.Data[i]++
		}
		if e.Connection != want.Connection || e.Length != want.Length || e.Generation != want.Generation || e.Operation != want.Operation ||
			e.Offset != want.Offset || string(e.Data[:e.Length]) != string(want.Data[:e.Length]) {
			t.Fatalf("entry %d: %+v, want %+v", took, e, want)
		}
		took++
	}
	if err := kernel.Wait(); err != nil {
		t.Error(err)
	}
}

// mapped returns a new file in memory.
func mapped(t testing.TB, path string, size int) []byte {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

// TestQueueWakes has each Arm answered once, by an entry of the kind that it names.
func TestQueueWakes(t *testing.T) {
	p, c := newQueue(t, 8)
	for _, s := range []struct {
		name            string
		arm, only, mark bool
		suppress        bool
		want            bool
	}{
		{name: "not armed"},
		{name: "armed", arm: true, want: true},
		{name: "answered before"},
		{name: "armed for solicited ones", arm: true, only: true},
		{name: "still armed", mark: true, want: true},
		{name: "answered before", mark: true},
		{name: "armed for all", arm: true, mark: true, want: true},
		{name: "suppressed", arm: true, suppress: true},
		{name: "armed again", arm: true, want: true},
	} {
		if s.arm {
			c.Arm(s.only)
		}
		if s.suppress {
			c.Suppress()
		}
		if got := p.Wakes(s.mark); got != s.want {
			t.Errorf("%s: %v", s.name, got)
		}
	}
}
