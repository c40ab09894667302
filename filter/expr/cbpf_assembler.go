package expr

// label is the target of a jump. Labels from firstLabel on are given out by assembler.label.
type label int

const (
	labelAccept label = iota
	labelReject
	firstLabel
)

// line is an instruction whose targets are labels.
type line struct {
	op     uint16
	k      uint32
	jump   bool // conditional: to t or f; op bpfJMP|bpfJA goes to t
	t, f   label
	labels []label // that stand before it
}

// assembler writes code for steps of a graph.
type assembler struct {
	lines   []line
	pending []label // labels for the next line
	next    label
	busy    [slots]bool // scratch memory in use
	tunnel  int         // the cell of tunnelSlot
	err     error
}

func (a *assembler) label() label {
	a.next = max(a.next, firstLabel) + 1
	return a.next - 1
}

func (a *assembler) place(l label) { a.pending = append(a.pending, l) }

func (a *assembler) add(l line) {
	l.labels, a.pending = a.pending, nil
	a.lines = append(a.lines, l)
}

func (a *assembler) emit(op uint16, k uint32) { a.add(line{op: op, k: k}) }

// branch goes to t if the comparison of A with k or X is true, to f otherwise.
func (a *assembler) branch(op uint16, k uint32, t, f label) {
	a.add(line{op: bpfJMP | op, k: k, jump: true, t: t, f: f})
}

func (a *assembler) jump(t label) { a.add(line{op: bpfJMP | bpfJA, jump: true, t: t, f: t}) }

// link resolves labels. Conditional jumps reach 255 instructions; farther ones go by way of an
// unconditional jump.
func (a *assembler) link() []Instruction {
	a.dropJumps()
	long := make([]bool, len(a.lines))
	at := make(map[label]int, a.next)
	for changed := true; changed; {
		changed = false
		n := 0
		for i := range a.lines {
			for _, l := range a.lines[i].labels {
				at[l] = n
			}
			n += lengthOf(&a.lines[i], long[i])
		}
		n = 0
		for i := range a.lines {
			l := &a.lines[i]
			if l.jump && l.op != bpfJMP|bpfJA && !long[i] && (at[l.t]-n-1 > 255 || at[l.f]-n-1 > 255) {
				long[i], changed = true, true
			}
			n += lengthOf(l, long[i])
		}
	}
	return a.output(long, at)
}

// lengthOf returns how many instructions a line becomes.
func lengthOf(l *line, long bool) int {
	if long {
		return 3
	}
	return 1
}

// dropJumps removes jumps to the line behind them.
func (a *assembler) dropJumps() {
	kept := a.lines[:0]
	var carry []label
	for i := range a.lines {
		l := a.lines[i]
		l.labels = append(carry, l.labels...)
		carry = nil
		if l.op == bpfJMP|bpfJA && l.jump && i+1 < len(a.lines) && hasLabel(a.lines[i+1].labels, l.t) {
			carry = l.labels
			continue
		}
		kept = append(kept, l)
	}
	a.lines = kept
}

func hasLabel(ls []label, l label) bool {
	for _, x := range ls {
		if x == l {
			return true
		}
	}
	return false
}

func (a *assembler) output(long []bool, at map[label]int) []Instruction {
	out := make([]Instruction, 0, len(a.lines))
	for i := range a.lines {
		l := &a.lines[i]
		n := len(out)
		switch {
		case !l.jump:
			out = append(out, Instruction{Op: l.op, K: l.k})
		case l.op == bpfJMP|bpfJA:
			out = append(out, Instruction{Op: l.op, K: uint32(at[l.t] - n - 1)})
		case long[i]:
			out = append(out,
				Instruction{Op: l.op, Jt: 0, Jf: 1, K: l.k},
				Instruction{Op: bpfJMP | bpfJA, K: uint32(at[l.t] - n - 2)},
				Instruction{Op: bpfJMP | bpfJA, K: uint32(at[l.f] - n - 3)})
		default:
			out = append(out, Instruction{Op: l.op, Jt: uint8(at[l.t] - n - 1), Jf: uint8(at[l.f] - n - 1), K: l.k})
		}
	}
	return out
}

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
