package kernbench

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/packet"
)

// gpu is the GPU that a bench has taken.
type gpu struct {
	dev    *cuda.Device
	region *cuda.Region // the arena, for all engines one after the other
}

const (
	ringBatch = packet.BatchSize
	ringSlots = 64      // batches of the persistent kernel at once
	hostBatch = 1 << 16 // packets of a launch
	hostDepth = 8       // launches under way
	never     = math.MaxInt
)

// launches is the number of passes that a resident run is, and hostLaps how often one in bulk goes over the load, so
// that filling the pipeline does not count.
var launches, hostLaps = 16, 8

// openGPU adds the paths of the GPU, where there is one and it is wanted. That there is none is an error
// where it was asked for, else a note.
func (b *bench) openGPU() error {
	if b.cfg.Engine == "cpu" {
		return nil
	}
	dev, err := cuda.Open(b.cfg.Device)
	if err != nil {
		if b.cfg.Engine == "cuda" {
			return fmt.Errorf("%w: %w", choose.ErrNoGPU, err)
		}
		b.note("no GPU is measured: " + strings.TrimPrefix(err.Error(), "cuda: "))
		return nil
	}
	g := &gpu{dev: dev}
	b.gpu = g
	if g.region, err = dev.Register(b.load.arena.Mem); err != nil {
		return err
	}
	i, m := dev.Info(), &b.rep.Machine
	m.GPU, m.GPUBus, m.Driver = i.Name, busText(i.Bus), i.Driver
	b.paths = append(b.paths, g.ringPath(), g.hostPath(), g.residentPath())
	return nil
}

func (g *gpu) close() error {
	var errs []error
	if g.region != nil {
		errs = append(errs, g.region.Close())
	}
	return errors.Join(append(errs, g.dev.Close())...)
}

// pciRoot is where Linux shows the devices of the PCI bus.
var pciRoot = "/sys/bus/pci/devices"

// busText returns a PCI address with the speed and width of its link, where Linux tells them.
func busText(bus string) string {
	dir := filepath.Join(pciRoot, strings.ToLower(bus))
	speed, width := line(filepath.Join(dir, "current_link_speed")), line(filepath.Join(dir, "current_link_width"))
	if speed == "unknown" || width == "unknown" {
		return bus
	}
	return fmt.Sprintf("%s, %s x%s", bus, speed, width)
}

// openEngine opens an engine on the GPU whose own batches have room for so many descriptors.
func (g *gpu) openEngine(c *trial, cfg cuda.Config, room int) (*engine, error) {
	return c.tables.open(c.op, cfg.Depth, func(common gpukern.Config) (gpukern.Engine, error) {
		cfg.Config, cfg.Arena, cfg.Room, cfg.Null = common, c.load.arena.View(), room, c.op.null
		return cuda.NewEngine(g.dev, cfg)
	})
}

func (g *gpu) ringPath() path {
	return path{name: PathRing, batch: ringBatch, power: g.dev.Watts, open: func(c *trial) (runner, error) {
		if c.op.text() {
			return nil, &AbsentError{"payloads are searched by launches"}
		}
		slots := min(ringSlots, 4*g.dev.Info().SMs)
		e, err := g.openEngine(c, cuda.Config{Config: gpukern.Config{Depth: slots}, Slots: slots, Bulk: never}, len(c.load.desc))
		return &single{engine: e, batch: ringBatch, laps: 1, null: c.op.null}, err
	}}
}

func (g *gpu) hostPath() path {
	return path{name: PathHost, batch: hostBatch, power: g.dev.Watts, open: func(c *trial) (runner, error) {
		cfg := cuda.Config{Config: gpukern.Config{Depth: hostDepth}, Bulk: 1, Search: hostBatch}
		e, err := g.openEngine(c, cfg, hostLaps*len(c.load.desc))
		return &single{engine: e, batch: hostBatch, laps: hostLaps, null: c.op.null}, err
	}}
}

// resident runs the kernels over packets and descriptors that lie in the GPU's memory.
type resident struct {
	g     *gpu
	c     *trial
	state *engine // without an engine: tables alone
	pass  cuda.HeaderPass
	lists []*cuda.Table

	search *cuda.Search // of literals; nil where none are looked for
	set    cuda.LiteralSet
}

func (g *gpu) residentPath() path {
	return path{name: PathResident, whole: true, power: g.dev.Watts, open: func(c *trial) (runner, error) {
		if c.op.null {
			return nil, &AbsentError{"nothing is handed over"}
		}
		r := &resident{g: g, c: c}
		if err := r.open(); err != nil {
			return nil, errors.Join(err, r.close())
		}
		return r, nil
	}}
}

func (r *resident) open() (err error) {
	r.state, err = r.c.tables.open(r.c.op, 1, func(gpukern.Config) (gpukern.Engine, error) { return nil, nil })
	if err != nil {
		return err
	}
	key := gpukern.DefaultHashKey
	tables := r.c.tables.compiled.Image(&key)
	for _, m := range []image.Image{tables, gpukern.State(r.state.flows)} {
		t, err := r.g.dev.Upload(m)
		if err != nil {
			return err
		}
		r.lists = append(r.lists, t)
	}
	r.pass = cuda.HeaderPass{
		Ops: r.c.op.ops&^gpukern.OpLiterals | gpukern.OpParse, Tables: r.lists[0].Ptr, State: r.lists[1].Ptr, Generation: gpukern.NextGeneration(),
	}
	if r.state.flows != nil {
		r.pass.Epoch = r.state.flows.Epoch()
	}
	if r.c.op.text() {
		r.set = cuda.LiteralSetOf(tables, r.lists[0].Ptr)
		r.search, err = r.g.dev.NewSearch(len(r.c.load.desc), gpukern.DefaultMatchLimit)
		r.pass.Texts = r.search
	}
	return err
}

// put puts one pass over everything on a stream.
func (r *resident) put(to *cuda.Recorder, w cuda.Work) error {
	if err := r.pass.Put(to, w); err != nil || r.search == nil {
		return err
	}
	return r.search.Put(to, w, r.set)
}

// work is one batch of everything.
func (r *resident) work(l *load, _ int) (*work, error) {
	return newWork(l, 1, len(l.desc), gpukern.Info{}), nil
}

// run copies the packets and their poisoned descriptors to the GPU, runs the kernels over them, and copies
// the results back. The time is the GPU's own, of one pass. The lists of matches lie in host memory: they are
// short.
func (r *resident) run(w *work) (time.Duration, error) {
	batch, err := r.g.dev.NewResident(w.batches[0])
	if err != nil {
		return 0, err
	}
	took, err := batch.Run(launches, r.put)
	if err == nil {
		err = batch.Results(w.batches[0].D)
	}
	if err == nil && r.search != nil {
		r.search.WriteMatches(w.batches[0], r.c.tables.compiled.Literals)
	}
	return took / time.Duration(launches), errors.Join(err, batch.Close())
}

func (r *resident) close() error {
	var errs []error
	if r.search != nil {
		errs = append(errs, r.search.Close())
	}
	for _, t := range r.lists {
		errs = append(errs, t.Close())
	}
	if r.state != nil {
		errs = append(errs, r.state.Close())
	}
	return errors.Join(errs...)
}
