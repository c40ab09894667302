package expr

// cell takes a cell of scratch memory.
func (a *assembler) cell() uint32 {
	for i := range a.busy {
		if !a.busy[i] {
			a.busy[i] = true
			return uint32(i)
		}
	}
	a.err = ErrTooDeep
	return 0
}

func (a *assembler) free(cell uint32) { a.busy[cell] = false }

// reserve keeps the cells of the slots that the graph uses.
func (a *assembler) reserve(g *graph) {
	tunnel := false
	for i := range g.steps {
		if s := &g.steps[i]; s.op == condSet {
			if s.slot == tunnelSlot {
				tunnel = true
			} else {
				a.busy[s.slot] = true
			}
		}
		for _, n := range slotsOf(g.steps[i].a, g.steps[i].b) {
			if n != tunnelSlot {
				a.busy[n] = true
			}
		}
	}
	if tunnel {
		a.tunnel = int(a.cell())
	}
}

// slotsOf returns the slots that values read.
func slotsOf(vs ...*value) []int {
	var all []int
	for _, v := range vs {
		if v == nil {
			continue
		}
		if v.op == valueSlot {
			all = append(all, v.slot)
		}
		all = append(all, slotsOf(v.x, v.y)...)
		all = append(all, slotsOfCond(v.c)...)
	}
	return all
}

func slotsOfCond(c *cond) []int {
	if c == nil {
		return nil
	}
	return append(append(slotsOf(c.a, c.b), slotsOfCond(c.l)...), slotsOfCond(c.r)...)
}

func (a *assembler) cellOf(slot int) uint32 {
	if slot == tunnelSlot {
		return uint32(a.tunnel)
	}
	return uint32(slot)
}

// clearSlots stores 0 in the slots that are read: Linux refuses programs that read cells which a path
// has not written.
func (a *assembler) clearSlots(g *graph) {
	read := [slots + 1]bool{}
	used := g.used()
	for i := range g.steps {
		if used[i] {
			for _, n := range slotsOf(g.steps[i].a, g.steps[i].b) {
				read[n] = true
			}
		}
	}
	first := true
	for n, r := range read {
		if !r {
			continue
		}
		if first {
			a.emit(bpfLD|bpfIMM, 0)
			first = false
		}
		a.emit(bpfST, a.cellOf(n))
	}
}
