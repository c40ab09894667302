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

// Info describes the engine, and what both back ends have done. What the GPU's engine did on the CPU, its
// GPU being lost, is the CPU's.
func (e *Engine) Info() gpukern.Info {
	cpu, gpu := e.back[onCPU].Info(), e.back[onGPU].Info()
	info := gpukern.Info{
		Name: "auto", Device: cpu.Device + " and " + gpu.Device, Ops: cpu.Ops, Depth: len(e.fifo),
		Fault: gpu.Fault, Redone: gpu.Redone, Calibrations: e.cfg.Calibrations, NewBatch: gpu.NewBatch,
	}
	share := e.split.load()
	if gpu.Fault != "" {
		share = 0
	}
	info.Backends = []gpukern.BackendStats{{Name: cpu.Name, Share: 1 - share}, {Name: gpu.Name, Share: share}}
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
