package pubkey

import (
	"runtime"
	"time"
)

// cost is what a small call takes on a device, with the way there and back, and what an operation takes on a core. Their ratio
// is the number of operations that one core does meanwhile.
type cost struct{ device, core time.Duration }

// costs are those of the tasks by name, for an H200 and a Xeon with AVX-512 IFMA: estimates as yet. They say which calls are
// too small for a device; a slower one only loses by it.
var costs = map[string]cost{
	"x25519":          {500 * time.Microsecond, 3 * time.Microsecond},
	"p256":            {3 * time.Millisecond, 9 * time.Microsecond},
	"p384":            {8 * time.Millisecond, 27 * time.Microsecond},
	"rsa2048":         {10 * time.Millisecond, 170 * time.Microsecond},
	"rsa3072":         {30 * time.Millisecond, 490 * time.Microsecond},
	"rsa4096":         {70 * time.Millisecond, 1090 * time.Microsecond},
	"ed25519":         {800 * time.Microsecond, 40 * time.Microsecond},
	"ed25519 commit":  {500 * time.Microsecond, 10 * time.Microsecond},
	"ed25519 respond": {900 * time.Microsecond, 10 * time.Microsecond},
	"mlkem768":        {1 * time.Millisecond, 30 * time.Microsecond},
	"mlkem768 open":   {1 * time.Millisecond, 40 * time.Microsecond},
}

// least returns the fewest operations of a call that the device does sooner than all cores of the CPU.
func (e *Engine) least(t *task) int {
	if e.cfg.Least > 0 {
		return e.cfg.Least
	}
	c := costs[t.name]
	return int(c.device * time.Duration(runtime.GOMAXPROCS(0)) / c.core)
}
