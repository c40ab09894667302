package cuda

// Graph is a sequence of copies and kernels that is launched by one call.
type Graph struct {
	d  *Device
	id graphExec
	k  *resource
}

// Capture records what f puts on the stream by the recorder, instead of running it. f calls no method of
// the device. The caller closes the graph.
func (s *Stream) Capture(f func(r *Recorder) error) (g *Graph, err error) {
	err = s.d.do(func() (err error) {
		g, err = s.capture(f)
		return err
	})
	return g, err
}

// Recorder puts copies and kernels on a stream, within Capture.
type Recorder struct{ s *Stream }

// CopyIn is Stream.CopyIn.
func (r *Recorder) CopyIn(to Ptr, from *Block, at, n int) error {
	return r.s.copyIn(to, from.Mem[at:at+n])
}

// CopyOut is Stream.CopyOut.
func (r *Recorder) CopyOut(to *Block, at int, from Ptr, n int) error {
	return r.s.copyOut(to.Mem[at:at+n], from)
}

// Fill is Stream.Fill.
func (r *Recorder) Fill(to Ptr, v byte, n int) error { return r.s.d.lib.fill(to, v, n, r.s.id) }

// Record puts a launch on the stream that r records.
func Record[P any](r *Recorder, k *Kernel, g Grid, params *P) error {
	return r.s.launch(k, g, bytesOf(params))
}

// capture is Capture, for the owner.
func (s *Stream) capture(f func(r *Recorder) error) (*Graph, error) {
	l := s.d.lib
	if err := l.captureBegin(s.id); err != nil {
		return nil, err
	}
	ferr := f(&Recorder{s})
	id, err := l.captureEnd(s.id)
	if ferr != nil {
		err = ferr
	}
	if id != 0 {
		defer l.graphDestroy(id)
	}
	if err != nil {
		return nil, err
	}
	x, err := l.graphInstantiate(id)
	if err != nil {
		return nil, err
	}
	g := &Graph{d: s.d, id: x}
	g.k = &resource{free: func() error { return l.graphExecDestroy(x) }}
	s.d.track(g.k)
	return g, nil
}

// Launch runs the graph on a stream.
func (g *Graph) Launch(s *Stream) error {
	return g.d.do(func() error { return g.d.lib.graphLaunch(g.id, s.id) })
}

// Close ends the graph, when it does not run.
func (g *Graph) Close() error { return g.d.close(g.k) }
