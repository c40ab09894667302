package cuda

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/hostkern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// load is packets in an arena.
type load struct {
	arena *ring.Arena
	desc  []packet.Desc
}

// newLoad fills every second frame of an arena with random bytes, of random lengths.
func newLoad(t testing.TB, n int, seed uint64) *load {
	t.Helper()
	a := must(ring.NewArena(ring.ArenaConfig{Frames: 2*n + 8}))(t)
	t.Cleanup(func() { a.Close() })
	copy(a.Mem, randomBytes(len(a.Mem), seed))
	r := rand.New(rand.NewPCG(seed, 3))
	l := &load{arena: a}
	for i := range n {
		l.desc = append(l.desc, packet.Desc{Off: uint32(4+2*i)*2048 + uint32(r.IntN(300)), Len: uint16(r.IntN(1500)), Stamp: r.Uint32()})
	}
	return l
}

// sums are the hashes that gk_probe_sum gives.
func (l *load) sums(add uint32) []uint32 {
	var all []uint32
	for i := range l.desc {
		sum := add
		for _, c := range l.arena.Bytes(&l.desc[i]) {
			sum += uint32(c)
		}
		all = append(all, sum)
	}
	return all
}

// check compares what came back with the sums, and that nothing else was touched.
func (l *load) check(t testing.TB, d []packet.Desc, add uint32) {
	t.Helper()
	if len(d) != len(l.desc) {
		t.Fatalf("%d packets, want %d", len(d), len(l.desc))
	}
	for i, want := range l.sums(add) {
		expect := l.desc[i]
		expect.Hash = want
		if d[i] != expect {
			t.Fatalf("packet %d: %+v, want %+v", i, d[i], expect)
		}
	}
}

// poll waits for the next batch.
func poll(t testing.TB, b *Bulk) *packet.Batch {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); ; {
		done, err := b.Poll()
		if err != nil {
			t.Fatal(err)
		}
		if done != nil {
			return done
		}
		if time.Now().After(until) {
			t.Fatal("the batch does not come back")
		}
	}
}

func TestBulk(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  BulkConfig
		heap bool // descriptors on the Go heap
	}{
		{"in place", BulkConfig{Packets: 300}, false},
		{"in place, descriptors of the heap", BulkConfig{Packets: 300, Depth: 2}, true},
		{"staged", BulkConfig{Packets: 300, Staged: 2 << 20}, false},
		{"staged, descriptors of the heap, in order", BulkConfig{Packets: 300, Staged: 2 << 20, Ordered: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			devices(t, func(t *testing.T, d *Device) { runBulk(t, d, c.cfg, c.heap) })
		})
	}
}

func runBulk(t *testing.T, d *Device, cfg BulkConfig, heap bool) {
	depth := cfg.Depth
	if depth == 0 {
		depth = 3
	}
	loads := make([]*load, 7)
	l := newLoad(t, 300, 1)
	mem := register(t, d, l.arena.Mem)
	b := must(d.NewBulk(mem, cfg))(t)
	var in []*packet.Batch
	next := 0
	for i := range loads {
		loads[i] = &load{l.arena, l.desc[i : 300-10*i]} // other parts of the arena each time
		batch := &packet.Batch{Arena: l.arena.View()}
		if !heap {
			batch, _ = must2(d.NewBatch(l.arena.View(), 300))(t)
		}
		batch.D = append(batch.D, loads[i].desc...)
		in = append(in, batch)
		if b.Inside() == depth {
			if err := b.Submit(batch, sumPass{}.put); err != gpukern.ErrFull {
				t.Fatalf("submit to a full one: %v", err)
			}
			if got := poll(t, b); got != in[next] {
				t.Fatal("batches came back in another order")
			}
			next++
		}
		if err := b.Submit(batch, sumPass{uint32(i)}.put); err != nil {
			t.Fatal(err)
		}
	}
	for ; b.Inside() > 0; next++ {
		if got := poll(t, b); got != in[next] {
			t.Fatal("batches came back in another order")
		}
	}
	for i, batch := range in {
		loads[i].check(t, batch.D, uint32(i))
	}
	if got, err := b.Poll(); got != nil || err != nil {
		t.Errorf("polled %v, %v when nothing was inside", got, err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

func must2[A, B any](a A, b B, err error) func(t testing.TB) (A, B) {
	return func(t testing.TB) (A, B) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}
}

func TestBulkRefusesWhatIsTooLarge(t *testing.T) {
	d, drv := openFake(t)
	l := newLoad(t, 20, 2)
	mem := register(t, d, l.arena.Mem)
	b := must(d.NewBulk(mem, BulkConfig{Packets: 19, Staged: 10 * 4096}))(t)
	launched := drv.Calls("cuLaunchKernel")
	if err := b.Submit(&packet.Batch{Arena: l.arena.View(), D: l.desc}, sumPass{}.put); !errors.Is(err, ErrNoRoom) {
		t.Errorf("20 packets for 19: %v", err)
	}
	if err := b.Submit(&packet.Batch{Arena: l.arena.View(), D: l.desc[:11]}, sumPass{}.put); !errors.Is(err, ErrNoRoom) {
		t.Errorf("a reach of 11 frames for 10: %v", err)
	}
	if b.Inside() != 0 || drv.Calls("cuLaunchKernel") != launched {
		t.Error("something was submitted")
	}
	some := &load{l.arena, l.desc[:10]}
	batch := &packet.Batch{Arena: l.arena.View(), D: append([]packet.Desc(nil), some.desc...)}
	if err := b.Submit(batch, sumPass{}.put); err != nil {
		t.Fatal(err)
	}
	some.check(t, poll(t, b).D, 0)
	empty := &packet.Batch{Arena: l.arena.View()}
	if err := b.Submit(empty, sumPass{}.put); err != nil {
		t.Fatal(err)
	}
	if poll(t, b) != empty {
		t.Error("an empty batch did not come back")
	}
	broken := errors.New("broken")
	if err := b.Submit(batch, func(*Recorder, Work) error { return broken }); !errors.Is(err, broken) || b.Inside() != 0 {
		t.Errorf("%v, %d inside", err, b.Inside())
	}
}

func TestOrderedKernelsWaitForEachOther(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		d, _ := openFake(t)
		l := newLoad(t, 4, 3)
		mem := register(t, d, l.arena.Mem)
		b := must(d.NewBulk(mem, BulkConfig{Packets: 4, Depth: 3, Ordered: ordered}))(t)
		block := must(d.AllocHost(4096))(t)
		slow := func(r *Recorder, _ Work) error {
			k := must(d.Kernel("gk_probe_echo"))(t)
			return Record(r, k, Grid{Blocks: 1, Threads: 32}, &echoParams{block.Ptr, block.Ptr + 128, 10e9})
		}
		first := &packet.Batch{Arena: l.arena.View(), D: append([]packet.Desc(nil), l.desc...)}
		second := &packet.Batch{Arena: l.arena.View(), D: append([]packet.Desc(nil), l.desc...)}
		quick := &packet.Batch{Arena: l.arena.View()}
		if err := errors.Join(b.Submit(quick, sumPass{}.put), b.Submit(first, slow), b.Submit(second, sumPass{5}.put)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		mapped := b.slots[2].mapped.Mem // where the second one's results show first
		ran := loadAcquire(wordAt(mapped, 12)) == l.sums(5)[0]
		if ran == ordered {
			t.Errorf("ordered %v: the second kernel ran beside the first: %v", ordered, ran)
		}
		storeRelease(wordAt(block.Mem, 0), echoStop)
		poll(t, b)
		poll(t, b)
		l.check(t, poll(t, b).D, 5)
	}
}

func TestLostDeviceGivesBatchesBack(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	d := open(t, drv)
	l := newLoad(t, 4, 4)
	mem := register(t, d, l.arena.Mem)
	b := must(d.NewBulk(mem, BulkConfig{Packets: 4}))(t)
	var in []*packet.Batch
	for range 3 {
		batch := &packet.Batch{Arena: l.arena.View(), D: append([]packet.Desc(nil), l.desc...)}
		in = append(in, batch)
		if err := b.Submit(batch, sumPass{}.put); err != nil {
			t.Fatal(err)
		}
	}
	drv.Lose(int(codeLaunchFailed))
	if got, err := b.Poll(); got != nil || !errors.Is(err, ErrLost) {
		t.Errorf("%v, %v", got, err)
	}
	out := b.Abandon()
	if len(out) != 3 || out[0] != in[0] || out[1] != in[1] || out[2] != in[2] || b.Inside() != 0 {
		t.Errorf("%d batches came back", len(out))
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestResident(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		l := newLoad(t, 200, 5)
		l.desc = l.desc[3:150]
		batch := &packet.Batch{Arena: l.arena.View(), D: l.desc}
		r := must(d.NewResident(batch))(t)
		got := make([]packet.Desc, len(l.desc))
		if err := r.Results(got); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if got[i] != l.desc[i] {
				t.Fatalf("packet %d: %+v before, want %+v", i, got[i], l.desc[i])
			}
		}
		took, err := r.Run(3, sumPass{9}.put)
		if err != nil || took <= 0 || took > 20*time.Second {
			t.Fatalf("%v, %v", took, err)
		}
		if err := r.Results(got); err != nil {
			t.Fatal(err)
		}
		l.check(t, got, 9)
		if err := errors.Join(r.Restore(), r.Results(got)); err != nil || got[5] != l.desc[5] {
			t.Errorf("restored %+v, %v", got[5], err)
		}
		frames := make([]byte, len(l.arena.Mem))
		if err := r.Frames(frames); err != nil {
			t.Fatal(err)
		}
		for i := range l.desc {
			p := &l.desc[i]
			if string(frames[p.Off:][:p.Len]) != string(l.arena.Bytes(p)) {
				t.Fatalf("packet %d came back with other bytes", i)
			}
		}
		sum, read := must(d.AllocHost(4))(t), must(d.Kernel("gk_probe_read"))(t)
		_, err = r.Run(3, func(rec *Recorder, w Work) error {
			return Record(rec, read, Grid{Blocks: 1, Threads: 32}, &readParams{w.Mem + Ptr(l.desc[0].Off&^2047), 2048, sum.Ptr})
		})
		one := wordSum(l.arena.Mem[l.desc[0].Off&^2047:][:2048])
		if got := loadAcquire(wordAt(sum.Mem, 0)); err != nil || got != 3*one {
			t.Errorf("three runs add up to %#x, want three times %#x: %v", got, one, err)
		}
		broken := errors.New("broken")
		if _, err := r.Run(1, func(*Recorder, Work) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestReach(t *testing.T) {
	a := &packet.Arena{Mem: make([]byte, 10*2048), Shift: 11}
	for _, c := range []struct {
		d         []packet.Desc
		low, high int
	}{
		{nil, 0, 0},
		{[]packet.Desc{{Off: 2048, Len: 2048}}, 2048, 4096},
		{[]packet.Desc{{Off: 5000, Len: 1}, {Off: 2100, Len: 64}, {Off: 3000, Len: 10}}, 2048, 6144},
		{[]packet.Desc{{Off: 9*2048 + 100, Len: 1000}, {Off: 0, Len: 0}}, 0, 10 * 2048},
	} {
		if low, high := reach(&packet.Batch{Arena: a, D: c.d}); low != c.low || high != c.high {
			t.Errorf("%v reach from %d to %d, want %d to %d", c.d, low, high, c.low, c.high)
		}
	}
}
