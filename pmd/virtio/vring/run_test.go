package vring

import (
	"math/rand/v2"
	"testing"
)

// TestRunsAndChains takes random buffers as runs and as chains, puts some back, and compares with a list of what the driver has made
// available: a run has what begins the list, as far as it needs no chain.
func TestRunsAndChains(t *testing.T) {
	forms(t, func(t *testing.T, packed, eventIdx bool) {
		for _, size := range []int{1, 2, 8, 64} {
			r := newRig(t, size, packed, eventIdx)
			rnd := rand.New(rand.NewPCG(2, uint64(size)))
			var list, returned []entry
			frame := uint32(0)
			for step := range 5000 {
				switch rnd.IntN(3) {
				case 0:
					for r.driver.Free() > 0 && rnd.IntN(5) > 0 {
						e := entry{write: rnd.IntN(8) == 0, pieces: 1}
						if rnd.IntN(6) == 0 {
							e.pieces = 1 + rnd.IntN(min(3, r.driver.Free()))
						}
						var items []Item
						for range e.pieces {
							e.first, e.size = guestBase+buffers+uint64(frame%1000), 1+frame%77
							items = append(items, Item{e.first, e.size, frame})
							frame++
						}
						e.first, e.size = items[0].Addr, items[0].Len
						r.driver.Add(items, e.write)
						list = append(list, e)
					}
					r.driver.Publish()
				case 1:
					list, returned = takeSome(t, r, rnd, list, returned)
					r.device.Publish()
				case 2:
					for {
						head, n, ok, err := r.driver.Used()
						if err != nil {
							t.Fatal(err)
						}
						if !ok {
							break
						}
						r.driver.Take(head, nil)
						if len(returned) == 0 || n != returned[0].written {
							t.Fatalf("step %d: %d bytes returned, want %+v", step, n, returned)
						}
						returned = returned[1:]
					}
					if len(returned) > 0 {
						t.Fatalf("step %d: %d buffers are not returned", step, len(returned))
					}
				}
			}
		}
	})
}

// entry is a buffer that the driver has made available, or has got back.
type entry struct {
	first   uint64 // address of its first piece
	size    uint32
	pieces  int
	write   bool
	written uint32
}

// takeSome takes a run, part of which it puts back, or a chain, and returns it.
func takeSome(t *testing.T, r *rig, rnd *rand.Rand, list, returned []entry) (left, gone []entry) {
	t.Helper()
	if len(list) > 0 && rnd.IntN(4) == 0 {
		var c Chain
		if ok, err := r.device.Take(&c); !ok || err != nil || c.Err != nil || len(c.In)+len(c.Out) != list[0].pieces {
			t.Fatal(ok, err, c.Err, list[0])
		}
		list[0].written = rnd.Uint32N(1000)
		r.device.Return(&c, list[0].written)
		return list[1:], append(returned, list[0])
	}
	write, most, least := rnd.IntN(8) == 0, rnd.IntN(80), 1+rnd.Uint32N(8)
	want := 0
	for want < min(most, RunSize, len(list)) && list[want].pieces == 1 && list[want].write == write && list[want].size >= least {
		want++
	}
	var run Run
	if n := r.device.TakeRun(&run, most, write, least); n != want || run.N != n {
		t.Fatalf("a run of %d of %d, want %d", n, most, want)
	}
	for i := range want {
		if p := run.Bytes(i); &p[0] != &r.mem[list[i].first-guestBase] || uint32(len(p)) != list[i].size {
			t.Fatalf("buffer %d of the run differs", i)
		}
	}
	if want > 0 {
		want = rnd.IntN(want + 1)
		r.device.Untake(&run, want)
	}
	written := make([]uint32, want)
	for i := range written {
		written[i] = rnd.Uint32N(1000)
		list[i].written = written[i]
	}
	r.device.ReturnRun(&run, written)
	return list[want:], append(returned, list[:want]...)
}

// TestRunsEndBeforeWhatIsBroken leaves what a hostile driver writes to Take, which reports it.
func TestRunsEndBeforeWhatIsBroken(t *testing.T) {
	forms(t, func(t *testing.T, packed, eventIdx bool) {
		for name, spoil := range map[string]func(r *rig, desc []byte){
			"an address in no region": func(_ *rig, desc []byte) { desc[7] = 0xff },
			"the end of the memory":   func(r *rig, desc []byte) { desc[8], desc[9], desc[10] = 0xff, 0xff, 0xff },
			"no bytes":                func(_ *rig, desc []byte) { clear(desc[8:12]) },
			"an indirect table": func(_ *rig, desc []byte) {
				desc[12] |= flagIndirect
				desc[14] |= flagIndirect
			},
		} {
			r := newRig(t, 8, packed, eventIdx)
			for i := range 4 {
				r.driver.Add([]Item{{guestBase + buffers, 64, uint32(i)}}, false)
			}
			r.driver.Publish()
			spoil(r, r.mem[2*descSize:][:descSize])
			var run Run
			if n := r.device.TakeRun(&run, 64, false, 1); n != 2 {
				t.Errorf("%s: a run of %d", name, n)
			}
		}
		if packed {
			return
		}
		r := newRig(t, 8, packed, eventIdx)
		for i := range 4 {
			r.driver.Add([]Item{{guestBase + buffers, 64, uint32(i)}}, false)
		}
		r.driver.Publish()
		desc, _, _ := Layout(8, packed)
		const far = buffers/descSize + 100 // behind the ring, where bytes are that would be a descriptor
		r.mem[desc+4+2*2], r.mem[desc+4+2*2+1] = far&0xff, far>>8
		copy(r.mem[far*descSize:], r.mem[:descSize])
		var run Run
		if n := r.device.TakeRun(&run, 64, false, 1); n != 2 {
			t.Errorf("a descriptor behind the ring: a run of %d", n)
		}
	})
}
