package daemon

import (
	"fmt"
	"strconv"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/metrics"
)

// engineOps is what the gateway wants to know of packets.
const engineOps = gpukern.OpParse | gpukern.OpChecksum

// openEngine finds out what the engines will run on, so that a start that cannot have it touches no interface.
func (d *Daemon) openEngine(word string) error {
	kind, err := choose.ParseKind(word)
	if err != nil {
		return err
	}
	lost := func(err error) {
		d.opt.Log.Error("engine", "result", "the CPU does the GPU's work", "error", err.Error())
	}
	without := func(err error) {
		d.opt.Log.Warn("engine", "result", "the CPU does all work of a loop", "error", err.Error())
	}
	cfg := choose.OpenConfig{Kind: kind, Device: d.opt.GPU, Lost: lost, Without: without}
	if d.opener, err = choose.NewOpener(cfg); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if kind != choose.KindCPU {
		d.opt.Log.Info("engine", "using", d.opener.String())
	}
	return nil
}

// addEngine opens the engine of the next loop. What was measured is logged once.
func (d *Daemon) addEngine() (gpukern.Engine, error) {
	e, err := d.opener.Open(gpukern.Config{Ops: engineOps}, d.arena)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if len(d.choices()) == 0 {
		for _, v := range gpukern.CalibrationReports(e.Info().Calibrations) {
			d.opt.Log.Info("engine", "verdict", v.Text)
		}
	}
	d.engines = append(d.engines, e)
	return e, nil
}

// account sums the engines up.
func (d *Daemon) account() (a gpukern.EngineStats) {
	for _, e := range d.engines {
		a.Add(e.Info())
	}
	return a
}

// choices returns what was measured: the same for all loops, but for those that had to do without the GPU.
func (d *Daemon) choices() []gpukern.Calibration {
	for _, e := range d.engines {
		if c := e.Info().Calibrations; len(c) > 0 {
			return c
		}
	}
	return nil
}

func (d *Daemon) writeEngines(w *metrics.Writer) {
	writeVerdicts(w, d.choices())
	for i, e := range d.engines {
		info := e.Info()
		writeEngine(w, &info, metrics.Label{Name: "loop", Value: strconv.Itoa(i)})
	}
}

func writeEngine(w *metrics.Writer, i *gpukern.Info, loop metrics.Label) {
	w.Gauge("millrace_engine_info", "What looks at the packets; the value is 1.", 1, loop,
		metrics.Label{Name: "name", Value: i.Name}, metrics.Label{Name: "device", Value: i.Device},
		metrics.Label{Name: "ops", Value: i.Ops.String()})
	for _, b := range i.Backends {
		backend := metrics.Label{Name: "backend", Value: b.Name}
		w.Counter("millrace_engine_packets_total", "Packets that a back end has looked at, pieces of large ones each.", b.Packets, loop, backend)
		w.Counter("millrace_engine_batches_total", "Batches that a back end has looked at.", b.Batches, loop, backend)
		w.Gauge("millrace_engine_share", "Share of the batches that either back end could do, now.", b.Share, loop, backend)
	}
	w.Counter("millrace_engine_redone_packets_total", "Packets that were in a GPU when it was lost, and were done again on the CPU.", i.Redone, loop)
	fault := 0.0
	if i.Fault != "" {
		fault = 1
	}
	w.Gauge("millrace_engine_fault", "1 since the GPU was given up and the CPU does its work.", fault, loop)
}

// writeVerdicts writes what was measured of the back ends.
func writeVerdicts(w *metrics.Writer, choices []gpukern.Calibration) {
	for _, c := range choices {
		ops, bytes := metrics.Label{Name: "ops", Value: c.Ops.String()}, metrics.Label{Name: "bytes", Value: strconv.Itoa(c.Bytes)}
		w.Gauge("millrace_engine_gpu_from_packets", "Packets from which on the GPU takes a batch; 0 is never.", float64(c.BreakEven), ops, bytes)
		w.Gauge("millrace_engine_gpu_alone_from_packets", "Packets from which on the GPU is faster with a lone batch; 0 is never.",
			float64(c.BreakEvenAlone), ops, bytes)
		for _, b := range []struct {
			name string
			gpukern.CostModel
		}{{"cpu", c.CPU}, {"cuda", c.GPU}} {
			backend := metrics.Label{Name: "backend", Value: b.name}
			w.Gauge("millrace_engine_batch_seconds", "Measured time of a lone batch, without its packets.", b.FixedNs*1e-9, ops, bytes, backend)
			w.Gauge("millrace_engine_batch_packet_seconds", "Measured time of each packet of a lone batch.", b.PacketNs*1e-9, ops, bytes, backend)
			w.Gauge("millrace_engine_packet_seconds", "Measured time of a packet with several batches under way.", b.PipelinedNs*1e-9, ops, bytes, backend)
		}
	}
}
