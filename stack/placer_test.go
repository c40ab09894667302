package stack

import (
	"testing"

	"github.com/millrace/millrace/gpukern"
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
		{"several handlers", gpukern.NewCPU(gpukern.Config{}), dispatcher, false, pmd.PlaceInFrames},
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
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
