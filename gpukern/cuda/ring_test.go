package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/packet"
)

// TestRingLayout compares what Go and C think of the words that they share.
func TestRingLayout(t *testing.T) {
	fields := []struct {
		c  string
		at uintptr
	}{
		{"sizeof(struct gk_ring_slot)", unsafe.Sizeof(slot{})},
		{"offsetof(struct gk_ring_slot, seq0)", unsafe.Offsetof(slot{}.seq0)},
		{"offsetof(struct gk_ring_slot, n_ops)", unsafe.Offsetof(slot{}.nOps)},
		{"offsetof(struct gk_ring_slot, desc)", unsafe.Offsetof(slot{}.desc)},
		{"offsetof(struct gk_ring_slot, seq1)", unsafe.Offsetof(slot{}.seq1)},
		{"offsetof(struct gk_ring_slot, seq2)", unsafe.Offsetof(slot{}.seq2)},
		{"offsetof(struct gk_ring_slot, generation)", unsafe.Offsetof(slot{}.generation)},
		{"offsetof(struct gk_ring_slot, epoch)", unsafe.Offsetof(slot{}.epoch)},
		{"offsetof(struct gk_ring_slot, tables)", unsafe.Offsetof(slot{}.tables)},
		{"offsetof(struct gk_ring_slot, done)", unsafe.Offsetof(slot{}.done)},
		{"offsetof(struct gk_ring_slot, status)", unsafe.Offsetof(slot{}.status)},
		{"offsetof(struct gk_ring_slot, beat)", unsafe.Offsetof(slot{}.beat)},
		{"offsetof(struct gk_ring_slot, ended)", unsafe.Offsetof(slot{}.ended)},
		{"offsetof(struct gk_ring_slot, stop)", unsafe.Offsetof(slot{}.stop)},
		{"offsetof(struct gk_ring_slot, alive)", unsafe.Offsetof(slot{}.alive)},
		{"sizeof(struct gk_ring)", unsafe.Sizeof(ringParams{})},
		{"offsetof(struct gk_ring, slots)", unsafe.Offsetof(ringParams{}.slots)},
		{"offsetof(struct gk_ring, mem)", unsafe.Offsetof(ringParams{}.mem)},
		{"offsetof(struct gk_ring, size)", unsafe.Offsetof(ringParams{}.size)},
		{"offsetof(struct gk_ring, state)", unsafe.Offsetof(ringParams{}.state)},
		{"offsetof(struct gk_ring, lifetime)", unsafe.Offsetof(ringParams{}.lifetime)},
		{"offsetof(struct gk_ring, patience)", unsafe.Offsetof(ringParams{}.patience)},
		{"offsetof(struct gk_ring, shift)", unsafe.Offsetof(ringParams{}.shift)},
		{"offsetof(struct gk_ring, launch)", unsafe.Offsetof(ringParams{}.launch)},
		{"GK_RING_MAX", slotMax},
	}
	var c strings.Builder
	c.WriteString("#include <stdio.h>\n#define GK_HOST\n#include \"gk.h\"\n#include \"ring.h\"\nint main() {\n")
	for _, f := range fields {
		c.WriteString("printf(\"%zu\\n\", (size_t)" + f.c + ");\n")
	}
	c.WriteString("}\n")
	got := strings.Fields(runC(t, c.String()))
	for i, f := range fields {
		if want := strconv.Itoa(int(f.at)); got[i] != want {
			t.Errorf("%s is %s in C, %s in Go", f.c, got[i], want)
		}
	}
}

// runC compiles a C++ program beside the kernels and returns what it prints.
func runC(t *testing.T, source string) string {
	t.Helper()
	if _, err := exec.LookPath("clang++-19"); err != nil {
		t.Skipf("%v: run `make deps`", err)
	}
	dir := t.TempDir()
	file, bin := filepath.Join(dir, "layout.cc"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("clang++-19", "-std=c++17", "-Wno-invalid-offsetof", "-I", hostkern.Sources(), "-c", "-o", bin+".o", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	host := filepath.Join(hostkern.Sources(), "host.cc")
	if out, err := exec.Command("clang++-19", "-std=c++17", "-DGK_HOST", "-pthread", "-o", bin, bin+".o", "-x", "c++", host).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ringBed is a ring with the kernel running on the CPU, without an engine.
type ringBed struct {
	lib    *hostkern.Library
	slots  []slot
	params *ringParams
	desc   []packet.Desc
	tables Ptr
	ended  <-chan struct{}
}

// offHeap maps memory that neither side moves.
func offHeap(t testing.TB, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}

func ptrOf(p unsafe.Pointer) Ptr { return Ptr(uintptr(p)) }

const bedThreads = 32 // a block: fibers are slow

func newRingBed(t *testing.T, slots int) *ringBed {
	t.Helper()
	b := &ringBed{lib: hostkern.Open(t)}
	mem := offHeap(t, ringBytes(slots))
	b.slots = ringWords(mem, slots)
	b.params = (*ringParams)(unsafe.Pointer(&offHeap(t, 4096)[0]))
	frames := offHeap(t, 1<<20)
	b.tables = ptrOf(unsafe.Pointer(&offHeap(t, 1<<16)[0])) // all zeros: tables that find nothing
	desc := offHeap(t, slots*slotMax*packet.DescSize)
	b.desc = unsafe.Slice((*packet.Desc)(unsafe.Pointer(&desc[0])), slots*slotMax)
	*b.params = ringParams{
		slots: ptrOf(unsafe.Pointer(&b.slots[0])),
		mem:   ptrOf(unsafe.Pointer(&frames[0])), size: uint64(len(frames)), shift: 11,
		state:    ptrOf(unsafe.Pointer(&offHeap(t, 4096)[0])),
		lifetime: uint64(time.Minute), patience: uint64(time.Minute), launch: 1,
	}
	for i := range frames { // Ethernet, and an IPv4 header that is as malformed as can be
		if i%2048 == 12 {
			frames[i], frames[i+1], frames[i+2] = 8, 0, 0x41
		}
	}
	return b
}

func (b *ringBed) launch(t *testing.T) {
	t.Helper()
	b.ended = b.lib.Start(t, "gk_ring", unsafe.Pointer(b.params), len(b.slots), bedThreads, 0)
	t.Cleanup(func() { b.stop(t) })
}

func (b *ringBed) stop(t *testing.T) {
	t.Helper()
	stop(b.slots)
	b.wait(t)
}

func (b *ringBed) wait(t *testing.T) {
	t.Helper()
	select {
	case <-b.ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the kernel does not end")
	}
}

// post gives slot i n packets.
func (b *ringBed) post(i int, seq, n, ops uint32) []packet.Desc {
	d := b.desc[i*slotMax:][:n]
	for k := range d {
		d[k] = packet.Desc{Off: uint32(k%512) * 2048, Len: 60, Stamp: uint32(k)}
	}
	w := work{tables: b.tables, n: n, ops: ops}
	if n > 0 {
		w.desc = ptrOf(unsafe.Pointer(&d[0]))
	}
	b.slots[i].post(seq, w)
	return d
}

func (b *ringBed) await(t *testing.T, i int, seq uint32) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !b.slots[i].finished(seq); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("slot %d: batch %d is not done", i, seq)
		}
	}
}

// touched reports whether the header pass has been over all of d.
func touched(d []packet.Desc) bool {
	for i := range d {
		if d[i].L3 != 14 || d[i].Flags != packet.FlagMalformed || d[i].Stamp != uint32(i) {
			return false
		}
	}
	return true
}

func TestRingServesEverySlot(t *testing.T) {
	b := newRingBed(t, 3)
	b.launch(t)
	for seq := uint32(1); seq <= 5; seq++ {
		for i := range b.slots {
			n := []uint32{1, 33, 256}[i]
			d := b.post(i, seq, n, 1)
			b.await(t, i, seq)
			if !touched(d) {
				t.Fatalf("slot %d, batch %d: not all of %d packets were looked at: %+v", i, seq, n, d)
			}
			if rest := b.desc[i*slotMax+int(n) : (i+1)*slotMax]; len(rest) > 0 && rest[0] != (packet.Desc{}) {
				t.Fatalf("slot %d: packet %d, which is none of the batch, was looked at", i, n)
			}
		}
	}
}

func TestRingWithoutOpsTouchesNothing(t *testing.T) {
	b := newRingBed(t, 1)
	b.launch(t)
	d := b.post(0, 1, 32, 0)
	b.await(t, 0, 1)
	for i := range d {
		if d[i] != (packet.Desc{Off: uint32(i) * 2048, Len: 60, Stamp: uint32(i)}) {
			t.Fatalf("packet %d became %+v", i, d[i])
		}
	}
	if s := b.slots[0].status; s != 0 {
		t.Errorf("status %d", s)
	}
}

// TestRingRefusesWhatCannotBe posts what no host should: the slot answers ERROR and goes on.
func TestRingRefusesWhatCannotBe(t *testing.T) {
	b := newRingBed(t, 1)
	b.launch(t)
	at := ptrOf(unsafe.Pointer(&b.desc[0]))
	for i, c := range []struct {
		w      work
		status uint32
	}{
		{work{desc: at, tables: b.tables, n: slotMax + 1, ops: 1}, 1},
		{work{desc: 0, tables: b.tables, n: 1, ops: 1}, 2},
		{work{desc: at + 8, tables: b.tables, n: 1, ops: 1}, 2},
		{work{desc: at, n: 1, ops: 1}, 2},
		{work{desc: at, tables: b.tables, n: slotMax, ops: 1}, 0},
	} {
		b.slots[0].post(uint32(i+1), c.w)
		b.await(t, 0, uint32(i+1))
		if s := atomic.LoadUint32(&b.slots[0].status); s != c.status {
			t.Errorf("%+v: status %d (%s), want %d", c.w, s, statusText(s), c.status)
		}
	}
}

// TestRingWantsEveryWord shows each slot the words of a batch without one: it must not begin.
func TestRingWantsEveryWord(t *testing.T) {
	const words = 3
	b := newRingBed(t, 2*words)
	b.launch(t)
	word := func(i, n int) *uint32 { return []*uint32{&b.slots[i].seq0, &b.slots[i].seq1, &b.slots[i].seq2}[n] }
	for i := range b.slots {
		s, d := &b.slots[i], &b.desc[i*slotMax]
		*d = packet.Desc{Len: 60}
		s.nOps, s.desc, s.tables = 1|1<<16, ptrOf(unsafe.Pointer(d)), b.tables
		atomic.StoreUint32(word(i, i/2), uint32(i%2*2)) // the batch before, or the one after
		for n := range words {
			if n != i/2 {
				atomic.StoreUint32(word(i, n), 1)
			}
		}
	}
	for i := range b.slots {
		s := &b.slots[i]
		for beat := atomic.LoadUint32(&s.beat); atomic.LoadUint32(&s.beat)-beat < 3; time.Sleep(time.Millisecond) {
		}
		if s.finished(1) {
			t.Fatalf("the block began with word %d of batch %d", i/2, i%2*2)
		}
		atomic.StoreUint32(word(i, i/2), 1)
		b.await(t, i, 1)
		if !touched(b.desc[i*slotMax:][:1]) {
			t.Errorf("%+v", b.desc[i*slotMax])
		}
	}
}

// TestRingNumbersWrap lets the numbers of batches pass 2^32.
func TestRingNumbersWrap(t *testing.T) {
	b := newRingBed(t, 1)
	s := &b.slots[0]
	s.done, s.seq0, s.seq1, s.seq2 = ^uint32(1), ^uint32(1), ^uint32(1), ^uint32(1)
	b.launch(t)
	for seq := ^uint32(0); seq != 3; seq++ {
		d := b.post(0, seq, 3, 1)
		b.await(t, 0, seq)
		if !touched(d) {
			t.Fatalf("batch %d: %+v", seq, d)
		}
	}
}

// TestRingEndsByItself: after its lifetime, and when the host's beat stops; and what is READY then is
// the next launch's.
func TestRingEndsByItself(t *testing.T) {
	for _, c := range []struct {
		name               string
		lifetime, patience time.Duration
	}{
		{"lifetime", 20 * time.Millisecond, time.Minute},
		{"patience", time.Minute, 20 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newRingBed(t, 2)
			b.params.lifetime, b.params.patience = uint64(c.lifetime), uint64(c.patience)
			due := time.Now().Add(20 * time.Millisecond)
			b.launch(t)
			b.wait(t)
			if now := time.Now(); now.Before(due) {
				t.Errorf("ended at %v, which is due at %v", now, due)
			}
			for i := range b.slots {
				if b.slots[i].ended != 1 {
					t.Errorf("slot %d: launch %d ended, want 1", i, b.slots[i].ended)
				}
			}
			d := b.post(1, 1, 40, 1)
			b.params.launch = 2
			b.launch(t)
			b.await(t, 1, 1)
			if !touched(d) {
				t.Error("the batch was not done")
			}
			b.wait(t)
		})
	}
}

// TestRingLivesWhileTheHostDoes beats more often than the kernel's patience is long.
func TestRingLivesWhileTheHostDoes(t *testing.T) {
	b := newRingBed(t, 1)
	b.params.patience = uint64(time.Second)
	b.launch(t)
	for range 30 {
		time.Sleep(20 * time.Millisecond)
		heartbeat(b.slots)
	}
	select {
	case <-b.ended:
		t.Fatal("the kernel ended though the host beat")
	default:
	}
	b.wait(t) // and now it does not
}

// TestRingStopsBeforeItTakesABatch: the host says stop and withdraws a batch by that.
func TestRingStopsBeforeItTakesABatch(t *testing.T) {
	b := newRingBed(t, 1)
	stop(b.slots)
	d := b.post(0, 1, 4, 1)
	b.launch(t)
	b.wait(t)
	if b.slots[0].finished(1) || d[0].L3 != 0 {
		t.Error("a stopped kernel took a batch")
	}
}

func TestMark(t *testing.T) {
	lib := hostkern.Open(t)
	mem := offHeap(t, 4096)
	word := (*uint32)(unsafe.Pointer(&mem[64]))
	p := (*markParams)(unsafe.Pointer(&mem[0]))
	*p = markParams{word: ptrOf(unsafe.Pointer(word)), value: 77}
	lib.Run(t, "gk_mark", unsafe.Pointer(p), 1, 32, 0)
	if *word != 77 {
		t.Errorf("the word is %d", *word)
	}
}
