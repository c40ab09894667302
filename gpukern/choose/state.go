package choose

// stateReader is a back end whose flow table and sketches lie on a device: Config.Flows and Config.Sketch are
// copies, which these methods bring up to date, here or there.
type stateReader interface {
	ReadSketch() error
	ReadFlows() error
	WriteSketch() error
	WriteFlows() error
}

// ReadSketch brings what was counted into Config.Sketch, wherever it is counted. No batch may be inside.
func (e *Engine) ReadSketch() error { return e.state(stateReader.ReadSketch) }

// ReadFlows brings the flow table into Config.Flows, as ReadSketch does with the sketch.
func (e *Engine) ReadFlows() error { return e.state(stateReader.ReadFlows) }

// WriteSketch has Config.Sketch count from now on: after its Reset, for one. No batch may be inside.
func (e *Engine) WriteSketch() error { return e.state(stateReader.WriteSketch) }

// WriteFlows has Config.Flows be the table from now on, as WriteSketch does with the sketch.
func (e *Engine) WriteFlows() error { return e.state(stateReader.WriteFlows) }

// state does f where the GPU keeps the state; the CPU's is the caller's own.
func (e *Engine) state(f func(stateReader) error) error {
	if on, ok := e.back[onGPU].(stateReader); ok && e.fixed == onGPU {
		return f(on)
	}
	return nil
}
