package gpukern

// State lays a flow table and sketches out for the kernels, each of them nil for none: struct gk_state of
// gpukern/cuda/state.h. Unlike tables, the parts are written by the device; whoever copies them back into
// Part.Data lets the methods of FlowTable and Sketch tell what the device found.
func State(t *FlowTable, s *Sketch) Image {
	var m Image
	m.join(t.image())
	m.join(s.image())
	return m
}

// image is struct gk_flows.
func (t *FlowTable) image() Image {
	if t == nil {
		t = new(FlowTable)
	}
	var m Image
	m.pointer(bytesOf(t.tags))
	m.pointer(bytesOf(t.entries))
	m.pointer(bytesOf(t.counts))
	m.u32(t.lines)
	m.u32(t.idle)
	for _, k := range t.hash {
		m.u32(k)
	}
	return m
}

// image is struct gk_sketches.
func (s *Sketch) image() Image {
	if s == nil {
		s = new(Sketch)
	}
	var m Image
	m.pointer(bytesOf(s.cells))
	m.pointer(bytesOf(s.registers))
	for _, k := range s.key {
		m.u64(k)
	}
	m.u32(s.width)
	m.u32(s.precision)
	return m
}
