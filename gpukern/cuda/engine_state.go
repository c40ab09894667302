package cuda

import (
	"errors"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/flow"
)

// state holds the flow table, which stays on the device from batch to batch (struct gk_state).
type state struct {
	mem   *Buffer
	flows []statePart
}

// statePart is an array of the state: here, as the owner of the table has it, and on the device.
type statePart struct {
	data []byte
	at   Ptr
}

// newState brings a flow table to the device, as it is.
func newState(l *loader, flows *flow.Table) (*state, error) {
	m := gpukern.State(flows)
	mem, where, err := l.put(m)
	if err != nil {
		return nil, err
	}
	s := &state{mem: mem}
	for i, p := range m.Parts {
		s.flows = append(s.flows, statePart{p.Data, where[i]})
	}
	return s, nil
}

func (s *state) ptr() Ptr { return s.mem.Ptr }

// errBusy reports that a batch is inside.
var errBusy = errors.New("cuda: state is read between batches: one is in the engine")

// ReadFlows brings the device's flow table into Config.Flows. No batch may be inside. After a loss the table has
// what the CPU found since. After Close both methods fail.
func (e *Engine) ReadFlows() error { return e.read(e.state.flows) }

// WriteFlows brings Config.Flows to the device: after a Delete, for one.
func (e *Engine) WriteFlows() error { return e.write(e.state.flows) }

func (e *Engine) read(parts []statePart) error {
	return e.transfer(parts, func(p statePart) error { return e.dev.stage.download(e.dev, p.data, p.at) })
}

func (e *Engine) write(parts []statePart) error {
	return e.transfer(parts, func(p statePart) error { return e.dev.stage.upload(e.dev, p.at, p.data) })
}

// transfer does f with each part, while the device changes none.
func (e *Engine) transfer(parts []statePart, f func(statePart) error) error {
	if e.closed { // and the device's memory may have another owner
		return gpukern.ErrClosed
	}
	if e.down() {
		return nil
	}
	if e.flights.held > 0 {
		return errBusy
	}
	e.loader.mu.Lock()
	defer e.loader.mu.Unlock()
	for _, p := range parts {
		if err := f(p); err != nil {
			if e.dev.Lost() == nil {
				return err
			}
			e.lose(err)
			break
		}
	}
	return nil
}
