package cuda

import (
	"sync/atomic"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// workCounter counts the batches that one side has done, for Info.
type workCounter struct{ packets, batches atomic.Uint64 }

func (t *workCounter) count(b *packet.Batch) {
	t.packets.Add(uint64(len(b.D)))
	t.batches.Add(1)
}

func (t *workCounter) work(name string, share float64) gpukern.BackendStats {
	return gpukern.BackendStats{Name: name, Packets: t.packets.Load(), Batches: t.batches.Load(), Share: share}
}

// Info describes the engine.
func (e *Engine) Info() gpukern.Info {
	i := gpukern.Info{
		Name: "cuda", Device: e.dev.info.Name, Ops: e.cfg.Ops, Depth: e.cfg.Depth,
		Redone: e.redone.Load(), NewBatch: e.NewBatch,
	}
	share := 1.0
	if f := e.fault.Load(); f != nil {
		i.Fault, share = f.err.Error(), 0
	}
	i.Backends = []gpukern.BackendStats{e.byCPU.work("cpu", 1-share), e.byGPU.work("cuda", share)}
	return i
}
