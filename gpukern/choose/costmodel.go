package choose

import (
	"math"
	"slices"

	"github.com/millrace/millrace/gpukern"
)

// sample is one measurement: the time of a single batch of n packets, in nanoseconds.
type sample struct {
	n  int
	ns float64
}

// fit returns the linear cost of least squared relative error through samples: a batch of 32 counts as much
// as one of 256. Neither term is below 0.
func fit(samples []sample) (t0, t1 float64) {
	var w, wn, wnn, wy, wny float64
	for _, s := range samples {
		k := 1 / (s.ns * s.ns)
		n := float64(s.n)
		w, wn, wnn = w+k, wn+k*n, wnn+k*n*n
		wy, wny = wy+k*s.ns, wny+k*n*s.ns
	}
	if det := w*wnn - wn*wn; det > 1e-12*w*wnn {
		t0, t1 = (wnn*wy-wn*wny)/det, (w*wny-wn*wy)/det
	}
	switch {
	case t1 <= 0: // no growth was seen
		return wy / w, 0
	case t0 < 0:
		return 0, wny / wnn
	}
	return t0, t1
}

// median returns the middle of v, which it sorts.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// maxPackets is the largest batch that a calibration covers.
const maxPackets = 4096

// smallBatch is the batch size that CostModel.PipelinedNs is measured with: the GPU's ring takes batches of up
// to so many packets, and smaller ones cost as much.
const smallBatch = 256

// breakEven fills in the batch sizes from the cost models.
func breakEven(c *gpukern.Calibration) {
	c.BreakEven, c.BreakEvenAlone = 0, 0
	for n := 1; n <= maxPackets && (c.BreakEven == 0 || c.BreakEvenAlone == 0); n++ {
		cpu := float64(c.CPU.At(n))
		if c.BreakEvenAlone == 0 && float64(c.GPU.At(n)) < cpu {
			c.BreakEvenAlone = n
		}
		if c.BreakEven == 0 && c.GPU.PipelinedNs*float64(max(n, smallBatch)) < cpu {
			c.BreakEven = n
		}
	}
}
