package choose

import (
	"math"
	"sync/atomic"

	"github.com/millrace/millrace/gpukern"
)

// split is a share that other goroutines may read.
type split struct{ bits atomic.Uint64 }

func (s *split) store(v float64) { s.bits.Store(math.Float64bits(v)) }
func (s *split) load() float64   { return math.Float64frombits(s.bits.Load()) }

// counters belong to the loop; any goroutine reads them.
type counters struct {
	wait     [backends]atomic.Int64 // ns from Submit to the return of batches
	late     atomic.Uint64          // batches of the GPU beyond the budget
	retreats atomic.Uint64
}

// Info describes the engine, and what both back ends have done. What the GPU's engine did on the CPU, its
// GPU being lost, is the CPU's.
func (e *Engine) Info() gpukern.Info {
	cpu, gpu := e.back[onCPU].Info(), e.back[onGPU].Info()
	info := gpukern.Info{
		Name: "auto", Device: cpu.Device + " and " + gpu.Device, Ops: cpu.Ops, Depth: len(e.fifo),
		Fault: gpu.Fault, Redone: gpu.Redone, Retreats: e.counts.retreats.Load(), Calibrations: e.cfg.Calibrations, NewBatch: gpu.NewBatch,
	}
	share := e.split.load()
	if gpu.Fault != "" {
		share = 0
	}
	info.Backends = []gpukern.BackendStats{{Name: cpu.Name, Share: 1 - share}, {Name: gpu.Name, Share: share}}
	for to := range info.Backends {
		info.Backends[to].WaitNs = uint64(e.counts.wait[to].Load())
	}
	info.Backends[onGPU].Late = e.counts.late.Load()
	for _, of := range [...]gpukern.Info{cpu, gpu} {
		for _, w := range of.Backends {
			to := &info.Backends[onCPU]
			if w.Name == gpu.Name {
				to = &info.Backends[onGPU]
			}
			to.Packets += w.Packets
			to.Batches += w.Batches
		}
	}
	return info
}

// stateReader is a back end whose flow table lies on a device: Config.Flows is a copy, which these methods bring
// up to date, here or there.
type stateReader interface {
	ReadFlows() error
	WriteFlows() error
}

// ReadFlows brings the flow table into Config.Flows, wherever it is. No batch may be inside.
func (e *Engine) ReadFlows() error { return e.state(stateReader.ReadFlows) }

// WriteFlows has Config.Flows be the table from now on: after a Delete, for one. No batch may be inside.
func (e *Engine) WriteFlows() error { return e.state(stateReader.WriteFlows) }

// state does f where the GPU keeps the state; the CPU's is the caller's own.
func (e *Engine) state(f func(stateReader) error) error {
	if on, ok := e.back[onGPU].(stateReader); ok && e.fixed == onGPU {
		return f(on)
	}
	return nil
}
