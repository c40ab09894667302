package cuda

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

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

// runner runs passes over batches whose frames the device reads in place, one after the other.
type runner struct {
	d      *Device
	mem    *Region
	stream *Stream
	desc   *Block
}

func newRunner(t testing.TB, d *Device, mem *Region, packets int) *runner {
	t.Helper()
	return &runner{d, mem, must(d.NewStream(Patient))(t), must(d.AllocHost(packets * descSize))(t)}
}

// run has the device do to b what put puts on the stream, and waits.
func (r *runner) run(b *packet.Batch, put func(rec *Recorder, w Work) error) error {
	copy(r.desc.Mem, descBytes(b.D))
	w := Work{Mem: r.mem.Ptr, Size: uint64(len(r.mem.Mem)), Desc: r.desc.Ptr, N: b.Len(), Shift: b.Arena.Shift}
	err := r.d.do(func() error { return put(&Recorder{r.stream}, w) })
	err = errors.Join(err, r.stream.Wait())
	copy(descBytes(b.D), r.desc.Mem)
	return err
}

func (r *runner) close() error { return errors.Join(r.stream.Close(), r.desc.Close()) }

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
