package node

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/metrics"
)

// openEngine probes the GPU, where one was asked for, before the devices are opened: it
// finds out what the engines will run on, so that a start that cannot have it touches
// no interface.
func (n *Node) openEngine() error {
	kind, err := choose.ParseKind(cmp.Or(n.cfg.Engine, string(choose.KindCPU)))
	if err != nil {
		return err
	}
	lost := func(err error) {
		n.log.Error("engine", "result", "the CPU does the GPU's work", "error", err.Error())
	}
	without := func(err error) {
		n.log.Warn("engine", "result", "the CPU does all work of a loop", "error", err.Error())
	}
	cfg := choose.OpenConfig{Kind: kind, Device: n.cfg.GPU, Lost: lost, Without: without}
	if n.opener, err = choose.NewOpener(cfg); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if kind != choose.KindCPU {
		n.log.Info("engine", "using", n.opener.String())
	}
	return nil
}

// addEngine opens the engine of the next loop. What was measured is logged once.
func (n *Node) addEngine() (gpukern.Engine, error) {
	cfg := gpukern.Config{Ops: n.cfg.Ops}
	if n.SearchesOnGPU() {
		cfg.Ops |= gpukern.OpLiterals
		cfg.Tables.Literals = n.cfg.Literals
	}
	e, err := n.opener.Open(cfg, n.arena)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if len(n.choices()) == 0 {
		for _, v := range gpukern.CalibrationReports(e.Info().Calibrations) {
			n.log.Info("engine", "verdict", v.Text)
		}
	}
	n.engines = append(n.engines, e)
	return e, nil
}

// SearchesOnGPU reports whether engines search payloads: SearchOnGPU was asked for, and there is a GPU.
func (n *Node) SearchesOnGPU() bool {
	return n.cfg.SearchOnGPU && n.opener != nil && n.opener.Device() != nil
}

// LoadLiterals replaces what engines search payloads for. Batches that are under way come back with matches of the set
// that they were submitted with: packet.Batch.Searched names it. An error means that a GPU has no room: its engine goes on
// with the set before.
func (n *Node) LoadLiterals(set *literal.Set) error {
	if !n.SearchesOnGPU() {
		return nil
	}
	var errs []error
	for _, e := range n.engines {
		errs = append(errs, e.Load(gpukern.Tables{Literals: set}))
	}
	return errors.Join(errs...)
}

// Engine sums the engines of all loops up.
func (n *Node) Engine() (a gpukern.EngineStats) {
	for _, e := range n.engines {
		a.Add(e.Info())
	}
	return a
}

// choices returns what was measured: the same for all loops, but for those that had to
// do without the GPU.
func (n *Node) choices() []gpukern.Calibration {
	for _, e := range n.engines {
		if c := e.Info().Calibrations; len(c) > 0 {
			return c
		}
	}
	return nil
}

func (n *Node) writeEngines(w *metrics.Writer) {
	writeVerdicts(w, n.choices())
	for i, e := range n.engines {
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
	if i.Name == "auto" {
		writeWaits(w, i, loop)
	}
	w.Counter("millrace_engine_redone_packets_total", "Packets that were in a GPU when it was lost, and were done again on the CPU.", i.Redone, loop)
	fault := 0.0
	if i.Fault != "" {
		fault = 1
	}
	w.Gauge("millrace_engine_fault", "1 since the GPU was given up and the CPU does its work.", fault, loop)
}

// writeWaits writes what "auto" measures of the batches.
func writeWaits(w *metrics.Writer, i *gpukern.Info, loop metrics.Label) {
	backends := i.Backends
	w.Rows(metrics.CounterKind, "millrace_engine_wait_seconds_total", "Time from the submission of batches to their return by a back end.",
		func(yield func([]metrics.Label, float64) bool) {
			for _, b := range backends {
				if !yield([]metrics.Label{loop, {Name: "backend", Value: b.Name}}, float64(b.WaitNs)/1e9) {
					return
				}
			}
		})
	late := uint64(0)
	for _, b := range backends {
		late += b.Late
	}
	w.Counter("millrace_engine_late_batches_total", "Batches that the GPU had for longer than they may wait.", late, loop)
	w.Counter("millrace_engine_retreats_total", "Times that the GPU was left for a while, as its batches were late.", i.Retreats, loop)
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
