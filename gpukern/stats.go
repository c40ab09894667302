package gpukern

import "slices"

// EngineStats adds up the counters of engines of one kind, and has the calibration of their back ends: Info for
// reports and other programs. Its JSON form is stable: fields are added, never renamed.
type EngineStats struct {
	Name         string              `json:"name"` // "cpu", "cuda", "auto"
	Device       string              `json:"device"`
	Ops          string              `json:"ops"`
	Backends     []BackendStats      `json:"backends"`
	Redone       uint64              `json:"redone_packets"` // in flight on a GPU when it was lost, processed again on the CPU
	Retreats     uint64              `json:"retreats"`       // times that "auto" left a GPU whose batches were late
	Fault        string              `json:"fault"`          // why a GPU is no longer used; "" where none failed
	Calibrations []CalibrationReport `json:"calibrations"`   // empty where nothing was measured

	engines int
	using   []int // engines that have each back end
}

// BackendStats counts the work of a back end.
type BackendStats struct {
	Name    string  `json:"name"` // "cpu", "cuda"
	Packets uint64  `json:"packets"`
	Batches uint64  `json:"batches"`
	WaitNs  uint64  `json:"wait_ns"`      // with "auto": sum of the times from Submit to the return of a batch
	Late    uint64  `json:"late_batches"` // with "auto": those of the GPU that took longer than the engine's budget, 100 us
	Share   float64 `json:"share"`        // of the batches that either back end could do, now, 0 to 1; of several engines the mean
}

// CalibrationReport is a Calibration for reports.
type CalibrationReport struct {
	Ops            string     `json:"ops"`
	Bytes          int        `json:"bytes"`            // size of the packets that were measured
	BreakEven      int        `json:"break_even"`       // packets from which on the GPU costs the loop less; 0 is never
	BreakEvenAlone int        `json:"break_even_alone"` // the same for a single batch in flight; 0 is never
	CPU            CostReport `json:"cpu"`
	GPU            CostReport `json:"gpu"`
	Text           string     `json:"text"` // everything, in one line
}

// CostReport is a CostModel for reports.
type CostReport struct {
	FixedNs     float64 `json:"fixed_ns"`
	PacketNs    float64 `json:"packet_ns"`
	PipelinedNs float64 `json:"pipelined_ns"`
}

// Add adds an engine. All engines have the same operations, and the same calibrations where they have any. The
// first fault stays.
func (a *EngineStats) Add(i Info) {
	if a.engines++; a.engines == 1 {
		a.Ops, a.Backends = i.Ops.String(), []BackendStats{}
	}
	if len(a.Calibrations) == 0 {
		a.Name, a.Device, a.Calibrations = i.Name, i.Device, CalibrationReports(i.Calibrations)
	}
	if a.Fault == "" {
		a.Fault = i.Fault
	}
	a.Redone += i.Redone
	a.Retreats += i.Retreats
	for _, w := range i.Backends {
		a.add(w)
	}
}

// add adds the counters of a back end of one engine.
func (a *EngineStats) add(w BackendStats) {
	i := slices.IndexFunc(a.Backends, func(b BackendStats) bool { return b.Name == w.Name })
	if i < 0 {
		i = len(a.Backends)
		a.Backends, a.using = append(a.Backends, BackendStats{Name: w.Name}), append(a.using, 0)
	}
	b := &a.Backends[i]
	a.using[i]++
	b.Packets += w.Packets
	b.Batches += w.Batches
	b.WaitNs += w.WaitNs
	b.Late += w.Late
	b.Share += (w.Share - b.Share) / float64(a.using[i])
}

// CalibrationReports returns calibrations for reports.
func CalibrationReports(measured []Calibration) []CalibrationReport {
	all := make([]CalibrationReport, 0, len(measured))
	for i := range measured {
		c := &measured[i]
		all = append(all, CalibrationReport{
			Ops: c.Ops.String(), Bytes: c.Bytes, BreakEven: c.BreakEven, BreakEvenAlone: c.BreakEvenAlone, Text: c.String(),
			CPU: CostReport{c.CPU.FixedNs, c.CPU.PacketNs, c.CPU.PipelinedNs}, GPU: CostReport{c.GPU.FixedNs, c.GPU.PacketNs, c.GPU.PipelinedNs},
		})
	}
	return all
}
