package choose

import (
	"context"
	"errors"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// scratchSlots are the packets that calibration has in flight at most, each in a frame.
const scratchSlots = inFlight * smallBatch

// calibrations measures both back ends with what cfg says, once for each set of operations.
func (o *Opener) calibrations(cfg gpukern.Config) ([]gpukern.Calibration, error) {
	if o.measured != nil && o.measuredOps == cfg.Ops {
		return o.measured, nil
	}
	all, err := o.Calibrate(context.Background(), cfg, Plan{Ops: []gpukern.Ops{cfg.Ops}})
	if err != nil {
		return nil, err
	}
	o.measured, o.measuredOps = all, cfg.Ops
	return all, nil
}

// Calibrate measures the CPU and the device, which there has to be, with the tables of cfg and the operations of a
// plan, in an arena of its own: frames of drivers are not free then. State is not touched: flow tables and
// sketches are of engines that are made afterwards.
func (o *Opener) Calibrate(ctx context.Context, cfg gpukern.Config, p Plan) (_ []gpukern.Calibration, err error) {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: scratchSlots})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, arena.Close()) }()
	back := func(name string, open func(gpukern.Config) (gpukern.Engine, error)) Backend {
		var used int
		return Backend{
			Name: name,
			Open: func(ops gpukern.Ops) (gpukern.Engine, error) {
				c := cfg
				c.Ops, c.Flows, c.Sketch, c.Depth = ops&^stateful, nil, nil, inFlight
				return open(c)
			},
			Batch: func(n, size int) (*packet.Batch, error) {
				b := packet.NewBatch(arena.View(), n)
				for range n {
					b.Append(scratchPacket(arena, used%scratchSlots, size))
					used++
				}
				return b, nil
			},
		}
	}
	cpu := back("cpu", func(c gpukern.Config) (gpukern.Engine, error) { return gpukern.NewCPU(c), nil })
	gpu := back("cuda", func(c gpukern.Config) (gpukern.Engine, error) { return o.openGPU(c, arena) })
	return Calibrate(ctx, cpu, gpu, p)
}
