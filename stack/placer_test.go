package stack

import (
	"testing"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// placingHandler is a Handler that places payload.
type placingHandler struct{ Bridge }

func (placingHandler) PlacePayload([]byte, int) (pmd.Placement, int, [][]byte) {
	return pmd.PlaceDirect, 1, nil
}

// placerDriver is a driver that can place payload.
type placerDriver struct {
	pmd.Driver
	placer pmd.Placer
}

func (d *placerDriver) Info() pmd.Info {
	i := d.Driver.Info()
	i.Placer = &d.placer
	return i
}

// later is an engine that may keep a batch beyond an iteration.
type later struct{ gpukern.Engine }

func (e later) Info() gpukern.Info {
	i := e.Engine.Info()
	i.Synchronous = false
	return i
}

// Only a handler that gets every packet places payload, and only where the packet comes in the same iteration.
func TestWhoPlacesPayload(t *testing.T) {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 64, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	a, _ := arena.Cut(32)
	b, _ := arena.Cut(32)
	table := new(AddressTable)
	dispatcher, err := NewDispatcher(table, placingHandler{}, Bridge{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what    string
		engine  gpukern.Engine
		handler Handler
		later   bool // by SetHandler
		want    pmd.Placement
	}{
		{"a host", gpukern.NewCPU(gpukern.Config{}), placingHandler{}, false, pmd.PlaceDirect},
		{"a host that is set later", gpukern.NewCPU(gpukern.Config{}), placingHandler{}, true, pmd.PlaceDirect},
		{"an engine that keeps batches", later{gpukern.NewCPU(gpukern.Config{})}, placingHandler{}, false, pmd.PlaceInFrames},
		{"a handler that places nothing", gpukern.NewCPU(gpukern.Config{}), Bridge{}, false, pmd.PlaceInFrames},
		{"several handlers, none of which claims the packet", gpukern.NewCPU(gpukern.Config{}), dispatcher, false, pmd.PlaceInFrames},
	} {
		da, _, err := pmd.NewMemory(pmd.MemoryConfig{A: a, B: b})
		if err != nil {
			t.Fatal(err)
		}
		drv := &placerDriver{Driver: da}
		cfg := Config{Devices: []pmd.Driver{drv}, Pool: a, Engine: c.engine}
		if !c.later {
			cfg.Handler = c.handler
		}
		l, err := NewLoop(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if c.later {
			l.SetHandler(c.handler)
		}
		if how, _, _ := drv.placer.Place(nil, 0); how != c.want {
			t.Errorf("%s: %v, want %v", c.what, how, c.want)
		}
		if old, err := l.Replace(0, da); err != nil || old != drv {
			t.Fatal(err)
		}
		if how, _, _ := drv.placer.Place(nil, 0); how != pmd.PlaceInFrames {
			t.Errorf("%s: a driver that is replaced is answered %v", c.what, how)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// placingRecorder is a recorder that places payload.
type placingRecorder struct {
	recorder
	asked int
}

func (r *placingRecorder) PlacePayload([]byte, int) (pmd.Placement, int, [][]byte) {
	r.asked++
	return pmd.PlaceDirect, 42, nil
}

// A Dispatcher has payload placed for the handler that a claim names, and that handler alone gets the packet then: also where the
// table has changed, and where it declines the packet.
func TestADispatcherPlacesPayload(t *testing.T) {
	tb := newTestBatches(t)
	first, host := &recorder{verdict: packet.Deliver}, &placingRecorder{recorder: recorder{verdict: packet.DropNoFlow}}
	claims := []Claim{to("198.18.0.10", 0, 0, 0, ToHandler(1)), to("198.18.0.10", udp, 53, 53, ToHandler(0)), to("198.18.0.11", 0, 0, 0, ToHandler(0))}
	table := tableOf(t, claims...)
	d, err := NewDispatcher(table, first, host)
	if err != nil {
		t.Fatal(err)
	}
	mine := udp4(t, "198.18.1.1:9", "198.18.0.10:1000")
	for _, c := range []struct {
		frame []byte
		want  pmd.Placement
	}{
		{mine, pmd.PlaceDirect},
		{udp4(t, "198.18.1.1:9", "198.18.0.10:53"), pmd.PlaceInFrames},
		{udp4(t, "198.18.1.1:9", "198.18.0.11:1000"), pmd.PlaceInFrames},
		{udp4(t, "198.18.1.1:9", "198.18.0.12:1000"), pmd.PlaceInFrames},
		{mine[:30], pmd.PlaceInFrames},
		{nil, pmd.PlaceInFrames},
	} {
		if how, _, _ := d.PlacePayload(c.frame, 60_000); how != c.want {
			t.Errorf("%x: %v, want %v", c.frame, how, c.want)
		}
	}
	if host.asked != 1 {
		t.Errorf("the handler was asked %d times", host.asked)
	}

	b := tb.batch(t, mine, mine, mine)
	for i := range 2 { // the third lies in its frame
		p := &b.D[i]
		copy(b.Arena.Mem[p.Off+64:], mine) // behind the Offload
		p.Off += 64
		p.Flags |= packet.FlagOffload
		b.Arena.SetOffload(p, &packet.Offload{})
		b.Arena.SetPlaced(p, 50_000-50_000*i)
	}
	if err := table.Replace([]Claim{to("198.18.0.10", 0, 0, 0, ToHandler(0)), to("198.18.0.10", udp, 1000, 1000, ToHandler(0))}); err != nil {
		t.Fatal(err)
	}
	d.Handle(1, b)
	if len(host.frames) != 1 || len(first.frames) != 2 {
		t.Errorf("%d packets for the handler that placed one, %d for the other", len(host.frames), len(first.frames))
	}
	if err := table.Replace([]Claim{to("198.18.0.10", 0, 0, 0, ToHandler(0)), to("198.18.0.10", udp, 1000, 1000, ToHandler(1))}); err != nil {
		t.Fatal(err)
	}
	*first, host.frames = recorder{verdict: packet.Deliver}, nil
	for i := range b.D {
		b.D[i].Verdict = packet.Undecided
	}
	d.Handle(2, b)
	declined := 0
	for i := range b.D {
		if isPlaced(b, i) && b.D[i].Verdict == packet.DropNoFlow {
			declined++
		}
	}
	if len(host.frames) != 3 || len(first.frames) != 2 || declined != 1 {
		t.Errorf("%d packets for the handler, of which %d are offered to the other; %d placed ones are declined", len(host.frames), len(first.frames), declined)
	}
}
