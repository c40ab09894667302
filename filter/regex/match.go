package regex

import "bytes"

// DefaultSteps is the bound of Machine.Steps where that is 0.
const DefaultSteps = 200_000

// maxVisited bounds the table of a linear search, in bits.
const maxVisited = 1 << 26

// Machine searches. The zero value is ready; it keeps its memory for the next search.
type Machine struct {
	Steps int // of one search before it becomes linear or fails; 0 is DefaultSteps

	r       *Regex
	b       []byte
	start   int // where the search began: \G
	slots   []int
	stack   []entry
	left    int
	spent   int // steps of searches that are over, and skipped bytes
	over    bool
	memo    bool
	visited []uint64
}

// entry is a place that the search returns to. Slots are restored on the way back.
type entry struct {
	pc   int32 // -1: slot at gets its value again
	at   int32
	low  int32 // of a repetition: the lowest position to try; -1 for others
	high int32 // of a lazy one: the highest
}

// Find returns the begin and the end of the first match in b that begins at from or behind it, and the begins
// and ends of its groups, borrowed until the next call: nil where there is none.
func (m *Machine) Find(r *Regex, b []byte, from int) ([]int, error) {
	m.spent = 0
	m.r, m.b, m.start, m.memo = r, b, from, false
	if cap(m.slots) < r.slots {
		m.slots = make([]int, r.slots)
	}
	m.slots = m.slots[:r.slots]
	if m.left = m.Steps; m.left == 0 {
		m.left = DefaultSteps
	}
	allowed := m.left
	found, ok := m.search(from)
	m.spent += allowed - m.left
	if ok {
		return found, nil
	}
	if !r.linear || len(r.prog)*(len(b)+1) > maxVisited {
		return nil, ErrSteps
	}
	m.memo = true
	words := (len(r.prog)*(len(b)+1) + 63) / 64
	if cap(m.visited) < words {
		m.visited = make([]uint64, words)
	}
	m.visited = m.visited[:words]
	clear(m.visited)
	m.left = 1 << 62
	found, _ = m.search(from)
	m.spent += 1<<62 - m.left
	return found, nil
}

// Spent returns what the last Find took: steps, and 1 for each 16 bytes that it skipped.
func (m *Machine) Spent() int { return m.spent }

// skip counts bytes that no match begins in.
func (m *Machine) skip(n int) { m.spent += n / 16 }

// search tries one position after the other; ok is false where the steps did not suffice.
func (m *Machine) search(from int) (found []int, ok bool) {
	r := m.r
	m.over = false
	for at := from; at <= len(m.b); at++ {
		switch {
		case r.anchored && at > from:
			return nil, true
		case r.anchored:
		case len(r.prefix) > 0:
			i := bytes.Index(m.b[at:], r.prefix)
			if i < 0 {
				m.skip(len(m.b) - at)
				return nil, true
			}
			m.skip(i)
			at += i
		case r.first != nil:
			before := at
			for at < len(m.b) && !r.first.has(m.b[at]) {
				at++
			}
			m.skip(at - before)
			if at == len(m.b) {
				return nil, true
			}
		}
		for i := range m.slots {
			m.slots[i] = -1
		}
		m.stack = m.stack[:0]
		if _, hit := m.run(0, at, 0); hit {
			return m.slots[:2*r.groups], true
		}
		if m.over {
			return nil, false
		}
	}
	return nil, true
}

// run executes from an instruction on until opMatch or opSubEnd, and returns the position there. Below base the
// stack belongs to the caller. The instructions in which a search spends its time are cases here, since a call of a function
// for each costs a tenth more.
func (m *Machine) run(pc, at, base int) (end int, ok bool) {
	prog, b := m.r.prog, m.b
	for {
		if m.left--; m.left < 0 {
			m.over = true
			return 0, false
		}
		if m.memo && m.seen(pc, at) {
			if pc, at, ok = m.back(base); !ok {
				return 0, false
			}
			continue
		}
		i := &prog[pc]
		ok = true
		switch i.op {
		case opByte:
			if ok = at < len(b) && b[at] == i.c; ok {
				at++
				pc++
			}
		case opSet:
			if ok = at < len(b) && i.set.has(b[at]); ok {
				at++
				pc++
			}
		case opRepeat:
			if at, ok = m.repeat(i, pc, at); ok {
				pc++
			}
		case opSplit:
			m.stack = append(m.stack, entry{int32(i.y), int32(at), -1, 0})
			pc = i.x
		case opJump:
			pc = i.x
		case opSave:
			m.stack = append(m.stack, entry{-1, int32(i.n), int32(m.slots[i.n]), 0})
			m.slots[i.n] = at
			pc++
		case opSubEnd, opMatch:
			return at, true
		default:
			if pc, at, ok = m.rare(i, pc, at); m.over {
				return 0, false
			}
		}
		if !ok {
			if pc, at, ok = m.back(base); !ok {
				return 0, false
			}
		}
	}
}

// rare executes an instruction of which patterns have few: it returns where the search goes on, or false where it fails.
func (m *Machine) rare(i *inst, pc, at int) (next, end int, ok bool) {
	switch i.op {
	case opLoop:
		if m.slots[i.n] != at { // an empty iteration would be repeated without end
			return i.x, at, true
		}
		ok = true
	case opRef:
		at, ok = m.ref(i, at)
	case opLook, opBehind, opAtomic:
		at, ok = m.sub(i, at)
		return i.x, at, ok
	default:
		ok = m.assert(i.op, at)
	}
	return pc + 1, at, ok
}

// seen reports whether an instruction has been tried at a position, and marks it.
func (m *Machine) seen(pc, at int) bool {
	n := pc*(len(m.b)+1) + at
	if m.visited[n>>6]>>(n&63)&1 != 0 {
		return true
	}
	m.visited[n>>6] |= 1 << (n & 63)
	return false
}

// back takes the search to the last entry of the stack, above base.
func (m *Machine) back(base int) (pc, at int, ok bool) {
	for len(m.stack) > base {
		e := &m.stack[len(m.stack)-1]
		switch {
		case e.pc < 0:
			m.slots[e.at] = int(e.low)
		case e.low < 0:
			m.stack = m.stack[:len(m.stack)-1]
			return int(e.pc), int(e.at), true
		case e.high > 0: // lazy: one more
			if e.at < e.high && m.r.prog[e.pc].set.has(m.b[e.at]) {
				e.at++
				return int(e.pc) + 1, int(e.at), true
			}
		case e.at > e.low: // greedy: one less
			e.at--
			return int(e.pc) + 1, int(e.at), true
		}
		m.stack = m.stack[:len(m.stack)-1]
	}
	return 0, 0, false
}

// repeat reads bytes of a set.
func (m *Machine) repeat(i *inst, pc, at int) (int, bool) {
	b := m.b[at:]
	most := len(b)
	if i.max >= 0 {
		most = min(most, i.max)
	}
	if most < i.min {
		return at, false
	}
	if i.how == lazy {
		for k := range i.min {
			if !i.set.has(b[k]) {
				return at, false
			}
		}
		if most > i.min {
			m.stack = append(m.stack, entry{int32(pc), int32(at + i.min), 0, int32(at + most)})
		}
		return at + i.min, true
	}
	n := 0
	for n < most && i.set.has(b[n]) {
		n++
	}
	m.left -= n >> 3
	if n < i.min {
		return at, false
	}
	if i.how == greedy && n > i.min {
		m.stack = append(m.stack, entry{int32(pc), int32(at + n), int32(at + i.min), 0})
	}
	return at + n, true
}

// ref reads what a group has captured. A group that took no part matches nothing.
func (m *Machine) ref(i *inst, at int) (int, bool) {
	from, to := m.slots[2*i.n], m.slots[2*i.n+1]
	if from < 0 || to < from {
		return at, false
	}
	text := m.b[from:to]
	if len(text) > len(m.b)-at {
		return at, false
	}
	got := m.b[at : at+len(text)]
	m.left -= len(text) >> 3
	if i.fold && equalFold(text, got) || !i.fold && bytes.Equal(text, got) {
		return at + len(text), true
	}
	return at, false
}

func equalFold(a, b []byte) bool {
	for i := range a {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 32
	}
	return c
}

// sub runs a look-around or an atomic group. What it leaves on the stack to try is dropped; the old values of
// slots stay there, unless the slots get them back at once.
func (m *Machine) sub(i *inst, at int) (int, bool) {
	from := at
	if i.op == opBehind {
		if from -= i.n; from < 0 {
			return at, i.not
		}
	}
	base := len(m.stack)
	end, ok := m.run(i.y, from, base)
	if m.over {
		return at, false
	}
	if ok && i.not {
		for k := len(m.stack) - 1; k >= base; k-- {
			if e := m.stack[k]; e.pc < 0 {
				m.slots[e.at] = int(e.low)
			}
		}
		m.stack = m.stack[:base]
	} else if ok {
		kept := base
		for _, e := range m.stack[base:] {
			if e.pc < 0 {
				m.stack[kept] = e
				kept++
			}
		}
		m.stack = m.stack[:kept]
	}
	if i.op == opAtomic {
		return end, ok
	}
	return at, ok != i.not
}

// assert reports whether a condition holds at a position.
func (m *Machine) assert(o op, at int) bool {
	b := m.b
	switch o {
	case opBegin:
		return at == 0
	case opStart:
		return at == m.start
	case opEnd:
		return at == len(b)
	case opEndOrNewline:
		return at == len(b) || at == len(b)-1 && b[at] == '\n'
	case opLineBegin:
		return at == 0 || b[at-1] == '\n' && at < len(b)
	case opLineEnd:
		return at == len(b) || b[at] == '\n'
	case opWordEdge, opNoWordEdge:
		before := at > 0 && classes['w'].has(b[at-1])
		after := at < len(b) && classes['w'].has(b[at])
		return (before != after) == (o == opWordEdge)
	}
	return false
}
