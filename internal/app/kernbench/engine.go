package kernbench

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/packet"
)

// engine is an engine with the state that it was given, which goes when it goes.
type engine struct {
	gpukern.Engine
	flows *flow.Table
}

// stateful reports whether an operation remembers packets: each engine has a state of its own then.
func (o *Op) stateful() bool { return o.ops&gpukern.OpFlow != 0 }

// open makes an engine for o with new state: what start does with a configuration.
func (t *tables) open(o *Op, depth int, start func(gpukern.Config) (gpukern.Engine, error)) (_ *engine, err error) {
	e := &engine{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if o.ops&gpukern.OpFlow != 0 {
		if e.flows, err = flow.New(flow.Config{Flows: o.tableSize(), Seed: t.seed}); err != nil {
			return nil, err
		}
	}
	one, err := start(gpukern.Config{Ops: o.ops, Tables: t.compiled, Depth: depth, Flows: e.flows})
	if err != nil {
		return nil, err
	}
	e.Engine = one
	return e, nil
}

// tableSize is the number of flows that the table holds: some more than there are.
func (o *Op) tableSize() int {
	if o.flows == 0 {
		return 2 * usualFlows
	}
	return min(o.flows+o.flows/16, flow.MaxFlows)
}

// Close ends the engine and releases its state.
func (e *engine) Close() error {
	var errs []error
	if e.Engine != nil {
		errs = append(errs, e.Engine.Close())
	}
	if e.flows != nil {
		errs = append(errs, e.flows.Close())
	}
	return errors.Join(errs...)
}

// openCPU opens an engine of the calling core for o.
func openCPU(o *Op, t *tables) (*engine, error) {
	return t.open(o, 4, func(c gpukern.Config) (gpukern.Engine, error) { return gpukern.NewCPU(c), nil })
}

// stuck is the time that an engine may keep batches without giving one back.
var stuck = 5 * time.Second

// ErrStuck reports that an engine keeps batches.
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
