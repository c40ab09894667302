package kernbench

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// openCPU opens an engine of the calling core for o.
func openCPU(o *Op, t *tables, depth int) (gpukern.Engine, error) {
	return gpukern.NewCPU(gpukern.Config{Ops: o.ops, Tables: t.compiled, Depth: depth}), nil
}

// stuck is how long an engine may keep batches without giving one back.
const stuck = 5 * time.Second

// ErrStuck says that an engine keeps batches.
var ErrStuck = errors.New("the engine gives no batch back")

// pump runs batches through an engine, as many at once as it holds, and returns when all are back.
func pump(e gpukern.Engine, batches []*packet.Batch) error {
	var done [16]*packet.Batch
	next, back, idle := 0, 0, 0
	var since time.Time
	for back < len(batches) {
		for next < len(batches) {
			err := e.Submit(batches[next])
			if errors.Is(err, gpukern.ErrFull) {
				break
			}
			if err != nil {
				return err
			}
			next++
		}
		n := e.Poll(done[:])
		for i := range n {
			if done[i] != batches[back+i] {
				return fmt.Errorf("%w: batch %d came back out of turn", ErrWrong, back+i)
			}
		}
		back += n
		switch idle++; {
		case n > 0:
			idle = 0
		case idle == 1<<12:
			since = time.Now()
		case idle&(1<<12-1) == 0 && time.Since(since) > stuck:
			return fmt.Errorf("%w: %d of %d batches came back", ErrStuck, back, len(batches))
		}
	}
	return nil
}
