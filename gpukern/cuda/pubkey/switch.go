package pubkey

import (
	"runtime"
	"time"
)

// cost is what a small call takes on a device, with the way there and back, and what an operation takes on a core. Their ratio
// is the number of operations that one core does meanwhile.
type cost struct{ device, core time.Duration }

// costs are those of the tasks by name, constants of an H200 beside 16 processors of a Xeon with AVX-512 IFMA: nothing measures
// them on other machines. They are from bench/results/gpu-h200.json: device is the time of a call that takes all processors as
// long, and core that of one of them for an operation while all are busy. A test compares them. They separate the calls that
// are too small for a device; a slower device only loses by it, and Config.Least replaces them.
var costs = map[string]cost{
	"x25519":          {1780 * time.Microsecond, 17 * time.Microsecond},
	"p256":            {4300 * time.Microsecond, 12500 * time.Nanosecond},
	"p384":            {7700 * time.Microsecond, 38 * time.Microsecond},
	"rsa2048":         {15800 * time.Microsecond, 205 * time.Microsecond},
	"rsa3072":         {43500 * time.Microsecond, 605 * time.Microsecond},
	"rsa4096":         {140 * time.Millisecond, 1535 * time.Microsecond},
	"ed25519":         {3100 * time.Microsecond, 96 * time.Microsecond},
	"ed25519 commit":  {5500 * time.Microsecond, 39 * time.Microsecond}, // of a whole signature, as for its other half
	"ed25519 respond": {5500 * time.Microsecond, 39 * time.Microsecond},
	"mlkem768":        {2100 * time.Microsecond, 131 * time.Microsecond},
	"mlkem768 open":   {1900 * time.Microsecond, 113 * time.Microsecond},
}

// fewest returns the operations that processors do while a device does a small call.
func (c cost) fewest(processors int) int { return int(c.device * time.Duration(processors) / c.core) }

// least returns the fewest operations of a call that the device does sooner than all cores of the CPU.
func (e *Engine) least(t *task) int {
	if e.cfg.Least > 0 {
		return e.cfg.Least
	}
	return costs[t.name].fewest(runtime.GOMAXPROCS(0))
}
