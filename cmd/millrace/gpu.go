package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/doctor"
	"github.com/millrace/millrace/internal/kernbench"
)

// probeGPU opens the GPU by the binding that engines use, has the driver translate the kernels, and lets
// every path of the header pass work on a batch, whose results are compared.
func probeGPU(o cuda.Options) (g doctor.GPU, err error) {
	d, err := cuda.Open(o)
	if err != nil {
		return g, err
	}
	i := d.Info()
	g = doctor.GPU{Name: i.Name, Driver: i.Driver, Capability: i.Capability, Memory: i.Memory, Modules: len(i.Modules)}
	if err := d.Close(); err != nil {
		return g, err
	}
	rep, err := kernbench.Run(context.Background(), kernbench.Config{
		Ops: []string{"header"}, Sizes: []string{kernbench.Size64}, Packets: probePackets, Batches: []int{probePackets},
		Time: time.Millisecond, Cores: 1, Engine: "cuda", Device: o,
	})
	if err != nil {
		return g, err
	}
	if failed := rep.Failed(); len(failed) > 0 {
		return g, errors.New(strings.Join(failed, "; "))
	}
	g.Bus = rep.Machine.GPUBus
	for _, f := range rep.Rows[0].Figures {
		if strings.HasPrefix(f.Path, "cuda") {
			g.Verified += f.Verified
		}
	}
	for _, l := range rep.Latency {
		if l.Path == kernbench.PathRing && l.N > 0 {
			g.Batch = fmt.Sprintf("%d packets in %.1f us", l.Batch, l.P50)
		}
	}
	return g, nil
}

// probePackets are enough to show that kernels run, and few enough that nobody waits.
const probePackets = 256
