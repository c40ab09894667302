package choose

import (
	"math"
	"sync/atomic"

	"github.com/millrace/millrace/gpukern"
)

// stats are what other goroutines may read.
type stats struct {
	packets, batches [backends]atomic.Uint64
	split            atomic.Uint64 // float64 bits
}

func (s *stats) count(to uint8, packets int) {
	s.packets[to].Add(uint64(packets))
	s.batches[to].Add(1)
}

func (s *stats) share(v float64) { s.split.Store(math.Float64bits(v)) }

// Info describes the engine, and what both back ends have done.
func (e *Engine) Info() gpukern.Info {
	cpu, gpu := e.back[onCPU].Info(), e.back[onGPU].Info()
	info := gpukern.Info{
		Name: "auto", Device: cpu.Device + " and " + gpu.Device, Ops: cpu.Ops, Depth: len(e.fifo),
		Fault: gpu.Fault, Redone: gpu.Redone, Choices: e.cfg.Choices, NewBatch: gpu.NewBatch,
	}
	share := math.Float64frombits(e.stats.split.Load())
	info.Work = []gpukern.Work{e.stats.work(onCPU, cpu.Name, 1-share), e.stats.work(onGPU, gpu.Name, share)}
	return info
}

func (s *stats) work(of int, name string, share float64) gpukern.Work {
	return gpukern.Work{Name: name, Packets: s.packets[of].Load(), Batches: s.batches[of].Load(), Share: share}
}
