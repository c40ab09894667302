package vring

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

const (
	guestBase = 0x4000_0000
	userBase  = 0x7f00_0000_0000
)

// rig is a ring with both of its sides, in one region.
type rig struct {
	mem    []byte
	memory *Memory
	cfg    Config
	driver *Driver
	device *Device
}

// buffers is where the memory of buffers begins, behind the ring.
const buffers = 1 << 16

func newRig(t testing.TB, size int, packed, eventIdx bool) *rig {
	t.Helper()
	r := &rig{mem: make([]byte, 1<<20)}
	var err error
	if r.memory, err = NewMemory([]Region{{Guest: guestBase, User: userBase, Mem: r.mem}}); err != nil {
		t.Fatal(err)
	}
	desc, avail, used := Layout(size, packed)
	r.cfg = Config{
		Size: size, Packed: packed, EventIdx: eventIdx, Indirect: true, Memory: r.memory,
		Desc: userBase, Avail: userBase + uint64(desc), Used: userBase + uint64(desc+avail),
	}
	r.driver = NewDriver(r.cfg, r.mem[:desc], r.mem[desc:][:avail], r.mem[desc+avail:][:used])
	r.cfg.NextAvail, r.cfg.NextUse = r.driver.Base()
	if r.device, err = NewDevice(r.cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// forms calls f for each form of ring.
func forms(t *testing.T, f func(t *testing.T, packed, eventIdx bool)) {
	for _, packed := range []bool{false, true} {
		for _, eventIdx := range []bool{false, true} {
			t.Run(fmt.Sprintf("packed=%v,eventIdx=%v", packed, eventIdx), func(t *testing.T) { f(t, packed, eventIdx) })
		}
	}
}

// TestBothSides passes random chains back and forth, and compares with a list of what is under way. It also follows the
// notifications: a side that asked for one and found nothing pending gets one for what comes next.
func TestBothSides(t *testing.T) {
	forms(t, func(t *testing.T, packed, eventIdx bool) {
		for _, size := range []int{1, 2, 8, 64} {
			r := newRig(t, size, packed, eventIdx)
			rnd := rand.New(rand.NewPCG(1, uint64(size)))
			type chain struct {
				items []Item
				write bool
			}
			var made, taken []chain // added and not taken by the device; taken and not returned to the driver
			var c Chain
			frame := uint32(0)
			deviceAsleep, driverAsleep := false, false
			for step := range 20_000 {
				switch rnd.IntN(3) {
				case 0: // add a few
					added := false
					for n := 1 + rnd.IntN(3); n > 0 && r.driver.Free() > 0; n-- {
						ch := chain{write: rnd.IntN(2) == 0}
						for k := 1 + rnd.IntN(min(4, r.driver.Free())); k > 0; k-- {
							ch.items = append(ch.items, Item{guestBase + buffers + uint64(frame%1000), 1 + frame%77, frame})
							frame++
						}
						r.driver.Add(ch.items, ch.write)
						made, added = append(made, ch), true
					}
					if kick := r.driver.Publish(); deviceAsleep && added && !kick {
						t.Fatalf("step %d: the device asked to be notified", step)
					} else if kick {
						deviceAsleep = false
					}
				case 1: // take and return all
					n := 0
					for ; ; n++ {
						ok, err := r.device.Take(&c)
						if err != nil || c.Err != nil {
							t.Fatal(err, c.Err)
						}
						if !ok {
							break
						}
						ch := made[n]
						pieces := c.In
						if ch.write {
							pieces = c.Out
						}
						if len(c.In)+len(c.Out) != len(pieces) || len(pieces) != len(ch.items) {
							t.Fatalf("step %d: %d + %d pieces of %d", step, len(c.In), len(c.Out), len(ch.items))
						}
						for i, p := range pieces {
							if want := r.mem[ch.items[i].Addr-guestBase:]; &p[0] != &want[0] || len(p) != int(ch.items[i].Len) {
								t.Fatalf("step %d: piece %d", step, i)
							}
						}
						r.device.Return(&c, uint32(len(pieces)))
					}
					taken, made = append(taken, made[:n]...), made[n:]
					if call := r.device.Publish(); driverAsleep && n > 0 && !call {
						t.Fatalf("step %d: the driver asked to be called", step)
					} else if call {
						driverAsleep = false
					}
					if rnd.IntN(2) == 0 {
						deviceAsleep = !r.device.WantNotify()
						if !deviceAsleep {
							t.Fatal("pending, and all is taken")
						}
					} else if !eventIdx {
						r.device.NeedNoNotify()
						deviceAsleep = false
					}
				default: // take what came back
					for {
						head, n, ok, err := r.driver.Used()
						if err != nil {
							t.Fatal(err)
						}
						if !ok {
							break
						}
						ch := taken[0]
						taken = taken[1:]
						var want []uint32
						for _, it := range ch.items {
							want = append(want, it.Frame)
						}
						if r.driver.Len(head) != ch.items[0].Len {
							t.Fatal("length of the first")
						}
						if got := r.driver.Take(head, nil); !slices.Equal(got, want) || n != uint32(len(want)) {
							t.Fatalf("step %d: %v, %d, want %v", step, got, n, want)
						}
					}
					if driverAsleep = !r.driver.WantCall(); !driverAsleep {
						t.Fatal("pending, and all is taken")
					}
					if len(taken) > 0 {
						t.Fatalf("step %d: %d chains did not come back", step, len(taken))
					}
				}
			}
			under := map[uint32]bool{}
			r.driver.Frames(func(f uint32) { under[f] = true })
			if n := len(r.driver.Reclaim(nil)); n != len(under) || r.driver.Free() != size {
				t.Errorf("%d frames reclaimed of %d, %d free", n, len(under), r.driver.Free())
			}
		}
	})
}

// TestRewind takes chains, puts them back and takes them again.
func TestRewind(t *testing.T) {
	forms(t, func(t *testing.T, packed, eventIdx bool) {
		r := newRig(t, 4, packed, eventIdx)
		var c Chain
		for round := range 20 {
			for i := range 3 {
				r.driver.Add([]Item{{guestBase + buffers + uint64(i)*64, 64, uint32(i)}}, true)
			}
			r.driver.Publish()
			m := r.device.Mark()
			for range 2 { // twice the same
				r.device.Rewind(m)
				for i := range 3 {
					if ok, err := r.device.Take(&c); !ok || err != nil || &c.Out[0][0] != &r.mem[buffers+64*i] {
						t.Fatalf("round %d: chain %d: %v, %v", round, i, ok, err)
					}
				}
			}
			r.device.Rewind(m)
			for range 3 {
				_, _ = r.device.Take(&c)
				r.device.Return(&c, 64)
			}
			r.device.Publish()
			for range 3 {
				head, _, ok, err := r.driver.Used()
				if !ok || err != nil {
					t.Fatal(ok, err)
				}
				r.driver.Take(head, nil)
			}
		}
	})
}

// TestSeveralBuffersComeTogether returns two buffers of one packet: the driver must see none of them before Publish.
func TestSeveralBuffersComeTogether(t *testing.T) {
	forms(t, func(t *testing.T, packed, eventIdx bool) {
		r := newRig(t, 4, packed, eventIdx)
		for i := range 2 {
			r.driver.Add([]Item{{guestBase + buffers, 64, uint32(i)}}, true)
		}
		r.driver.Publish()
		var c Chain
		for range 2 {
			if ok, err := r.device.Take(&c); !ok || err != nil {
				t.Fatal(ok, err)
			}
			r.device.Return(&c, 1)
			if r.driver.Pending() {
				t.Fatal("visible before Publish")
			}
		}
		r.device.Publish()
		for range 2 {
			head, _, ok, err := r.driver.Used()
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			r.driver.Take(head, nil)
		}
	})
}

// TestBaseGoesOn replaces the device in the middle, as a backend that is restarted.
func TestBaseGoesOn(t *testing.T) {
	forms(t, func(t *testing.T, packed, eventIdx bool) {
		r := newRig(t, 4, packed, eventIdx)
		var c Chain
		for round := range 50 {
			r.driver.Add([]Item{{guestBase + buffers, 64, 7}}, false)
			r.driver.Publish()
			cfg := r.cfg
			cfg.NextAvail, cfg.NextUse = r.device.Base()
			if cfg.Resume = round%2 == 1; cfg.Resume && !packed {
				cfg.NextAvail, cfg.NextUse = 0, 0 // as of a front end that does not know; round 0 used the first chain
			}
			var err error
			if r.device, err = NewDevice(cfg); err != nil {
				t.Fatal(err)
			}
			if ok, err := r.device.Take(&c); !ok || err != nil {
				t.Fatalf("round %d: %v, %v", round, ok, err)
			}
			r.device.Return(&c, 0)
			r.device.Publish()
			head, _, ok, err := r.driver.Used()
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			r.driver.Take(head, nil)
		}
	})
}

func TestWrongMemory(t *testing.T) {
	page := make([]byte, 4096)
	for what, list := range map[string][]Region{
		"empty":         {{Guest: 1, User: 1}},
		"wraps":         {{Guest: 1<<64 - 100, Mem: page}},
		"user wraps":    {{User: 1<<64 - 100, Mem: page}},
		"overlap":       {{Guest: 0, User: 0, Mem: page}, {Guest: 4095, User: 1 << 20, Mem: page}},
		"user overlaps": {{Guest: 0, User: 100, Mem: page}, {Guest: 1 << 20, User: 0, Mem: page}},
	} {
		if _, err := NewMemory(list); !errors.Is(err, ErrMemory) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := NewMemory(make([]Region, MaxRegions+1)); !errors.Is(err, ErrMemory) {
		t.Error(err)
	}
}

func TestTranslation(t *testing.T) {
	a, b := make([]byte, 4096), make([]byte, 8192)
	m, err := NewMemory([]Region{{Guest: 0x1000, User: 0x10000, Mem: a}, {Guest: 0x2000, User: 0x20000, Mem: b}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		addr uint64
		n    uint32
		want int
		at   *byte
	}{
		{0x1000, 4096, 4096, &a[0]},
		{0x1fff, 1, 1, &a[4095]},
		{0x1ff0, 100, 16, &a[4080]}, // the rest is in the next region
		{0x2000, 100, 100, &b[0]},
		{0x3fff, 2, 1, &b[8191]},
		{0x4000, 1, 0, nil},
		{0xfff, 2, 0, nil},
		{0, 1, 0, nil},
		{1<<64 - 1, 4096, 0, nil},
		{0x1001, 1<<32 - 1, 4095, &a[1]},
	} {
		got := m.At(c.addr, c.n)
		if len(got) != c.want || len(got) > 0 && &got[0] != c.at {
			t.Errorf("%#x, %d bytes: %d", c.addr, c.n, len(got))
		}
	}
	var c Chain
	if !c.add(m, 0x1ff0, 100, false) || len(c.In) != 2 || c.InLen() != 100 || &c.In[1][0] != &b[0] {
		t.Errorf("a buffer in two regions: %d pieces, %v", len(c.In), c.Err)
	}
}
