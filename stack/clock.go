package stack

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// epoch is the zero of the process's clock; it carries a monotonic and a wall reading.
var epoch = time.Now()

// Now reads the process's monotonic clock. Loops read it once for each turn and hand it down.
func Now() clock.Time { return clock.Time(time.Since(epoch)) }

// Wall returns the calendar time of a reading of Now, for captures and logs.
func Wall(t clock.Time) time.Time { return epoch.Add(time.Duration(t)) }
