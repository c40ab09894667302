package pubkey

import (
	"runtime"
	"time"
)

// cost is what a small call takes on a device, with the way there and back, and what an operation takes on a core. Their ratio
// is the number of operations that one core does meanwhile.
type cost struct{ device, core time.Duration }

// costs are those of the tasks by name, measured on an H200 (a call of 64 operations) and on its host, a Xeon with AVX-512 IFMA
// whose 16 processors were all busy. They say which calls are too small for a device; a slower one only loses by it.
var costs = map[string]cost{
	"x25519":          {1400 * time.Microsecond, 19 * time.Microsecond},
	"p256":            {2900 * time.Microsecond, 16 * time.Microsecond},
	"p384":            {5900 * time.Microsecond, 56 * time.Microsecond},
	"rsa2048":         {14 * time.Millisecond, 245 * time.Microsecond},
	"rsa3072":         {41 * time.Millisecond, 720 * time.Microsecond},
	"rsa4096":         {110 * time.Millisecond, 1600 * time.Microsecond},
	"ed25519":         {2600 * time.Microsecond, 113 * time.Microsecond},
	"ed25519 commit":  {1700 * time.Microsecond, 28 * time.Microsecond},
	"ed25519 respond": {2600 * time.Microsecond, 28 * time.Microsecond},
	"mlkem768":        {1000 * time.Microsecond, 174 * time.Microsecond},
	"mlkem768 open":   {1200 * time.Microsecond, 174 * time.Microsecond},
}

// least returns the fewest operations of a call that the device does sooner than all cores of the CPU.
func (e *Engine) least(t *task) int {
	if e.cfg.Least > 0 {
		return e.cfg.Least
	}
	c := costs[t.name]
	return int(c.device * time.Duration(runtime.GOMAXPROCS(0)) / c.core)
}
