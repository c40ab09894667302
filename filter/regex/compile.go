package regex

// op is an operation of the matcher.
type op uint8

const (
	opByte op = iota
	opSet
	opRepeat // a set, min to max times
	opSplit  // first x, then y
	opJump   // to x
	opSave   // the position in slot n
	opLoop   // fails where nothing was read since slot n was saved
	opRef
	opLook   // the program from y to x; then x
	opBehind // the same, n bytes before
	opAtomic
	opSubEnd
	opMatch
	opFail
	opBegin
	opEnd
	opEndOrNewline
	opLineBegin
	opLineEnd
	opWordEdge
	opNoWordEdge
	opStart // \G
)

// inst is one instruction. Where no target is named, the next follows.
type inst struct {
	op       op
	c        byte
	not      bool
	fold     bool
	how      how
	set      *set
	x, y     int
	n        int
	min, max int
}

// maxProgram bounds the instructions of one expression: counts in braces copy what they repeat.
const maxProgram = 20000

type compiler struct {
	prog   []inst
	slots  int
	linear bool
}

func (c *compiler) emit(i inst) int {
	c.prog = append(c.prog, i)
	return len(c.prog) - 1
}

// node appends the program of n.
func (c *compiler) node(n *node) error {
	if len(c.prog) > maxProgram {
		return &UnsupportedError{0, "an expression of this size"}
	}
	switch n.kind {
	case nodeSet:
		c.set(n.set)
	case nodeSeq:
		for _, k := range n.kids {
			if err := c.node(k); err != nil {
				return err
			}
		}
	case nodeAlt:
		return c.firstOf(n.kids, c.node)
	case nodeRepeat:
		return c.repeat(n)
	case nodeGroup:
		c.emit(inst{op: opSave, n: 2 * n.n})
		if err := c.node(n.kids[0]); err != nil {
			return err
		}
		c.emit(inst{op: opSave, n: 2*n.n + 1})
	case nodeAssert:
		c.emit(inst{op: n.assert})
	case nodeRef:
		c.linear = false
		c.emit(inst{op: opRef, n: n.n, fold: n.fold})
	case nodeLook:
		return c.look(n)
	case nodeAtomic:
		return c.sub(inst{op: opAtomic}, n.kids[0])
	}
	return nil
}

func (c *compiler) set(s *set) {
	if b, ok := s.single(); ok {
		c.emit(inst{op: opByte, c: b})
	} else {
		c.emit(inst{op: opSet, set: s})
	}
}

// firstOf emits alternatives: the first that leads to a match counts.
func (c *compiler) firstOf(kids []*node, compile func(*node) error) error {
	var ends []int
	for i, k := range kids {
		split := -1
		if i < len(kids)-1 {
			split = c.emit(inst{op: opSplit})
			c.prog[split].x = split + 1
		}
		if err := compile(k); err != nil {
			return err
		}
		if split >= 0 {
			ends = append(ends, c.emit(inst{op: opJump}))
			c.prog[split].y = len(c.prog)
		}
	}
	for _, e := range ends {
		c.prog[e].x = len(c.prog)
	}
	return nil
}

// sub emits an instruction that runs a program of its own.
func (c *compiler) sub(i inst, n *node) error {
	c.linear = false
	at := c.emit(i)
	if err := c.node(n); err != nil {
		return err
	}
	c.emit(inst{op: opSubEnd})
	c.prog[at].x, c.prog[at].y = len(c.prog), at+1
	return nil
}

// look emits a look-around. Each alternative behind has a length of its own.
func (c *compiler) look(n *node) error {
	if !n.behind {
		return c.sub(inst{op: opLook, not: n.not}, n.kids[0])
	}
	kids := []*node{n.kids[0]}
	if kids[0].kind == nodeAlt {
		kids = kids[0].kids
	}
	if n.not { // none of them
		for _, k := range kids {
			if err := c.behind(k, true); err != nil {
				return err
			}
		}
		return nil
	}
	return c.firstOf(kids, func(k *node) error { return c.behind(k, false) })
}

func (c *compiler) behind(n *node, not bool) error {
	w, ok := width(n)
	if !ok {
		return &UnsupportedError{0, "looking behind for texts of different lengths"}
	}
	return c.sub(inst{op: opBehind, n: w, not: not}, n)
}

// repeat emits a repetition. That of a single byte has an instruction; others are copied min times, and then
// loop or are copied up to max times.
func (c *compiler) repeat(n *node) error {
	body := n.kids[0]
	for body.kind == nodeSeq && len(body.kids) == 1 {
		body = body.kids[0]
	}
	if body.kind == nodeSet {
		c.emit(inst{op: opRepeat, set: body.set, min: n.min, max: n.max, how: n.how})
		return nil
	}
	if n.how == possessive {
		bare := *n
		bare.how = greedy
		return c.sub(inst{op: opAtomic}, &bare)
	}
	for range n.min {
		if err := c.node(body); err != nil {
			return err
		}
	}
	if n.max < 0 {
		return c.loop(body, n.how)
	}
	var splits []int
	for range n.max - n.min {
		splits = append(splits, c.emit(inst{op: opSplit}))
		if err := c.node(body); err != nil {
			return err
		}
	}
	for _, s := range splits {
		c.branch(s, s+1, len(c.prog), n.how)
	}
	return nil
}

// loop emits a repetition without a bound: split, body, back. A body that may be empty ends it when it reads
// nothing.
func (c *compiler) loop(body *node, h how) error {
	var s set
	empty := firstOf(body, &s)
	split := c.emit(inst{op: opSplit})
	slot := c.slots
	if empty {
		c.slots++
		c.emit(inst{op: opSave, n: slot})
	}
	if err := c.node(body); err != nil {
		return err
	}
	if empty {
		c.linear = false // what opLoop does depends on a slot
		c.emit(inst{op: opLoop, n: slot, x: split})
		c.branch(split, split+1, len(c.prog), h)
		return nil
	}
	c.emit(inst{op: opJump, x: split})
	c.branch(split, split+1, len(c.prog), h)
	return nil
}

// branch sets the targets of a split by what it prefers.
func (c *compiler) branch(split, more, done int, h how) {
	if h == lazy {
		more, done = done, more
	}
	c.prog[split].x, c.prog[split].y = more, done
}

// width returns how many bytes n reads, if that is always the same.
func width(n *node) (w int, ok bool) {
	switch n.kind {
	case nodeSet:
		return 1, true
	case nodeRef:
		return 0, false
	case nodeRepeat:
		w, ok = width(n.kids[0])
		return w * n.min, ok && n.min == n.max
	case nodeLook:
		return 0, true
	case nodeAlt:
		w, ok = width(n.kids[0])
		for _, k := range n.kids[1:] {
			v, fixed := width(k)
			ok = ok && fixed && v == w
		}
		return w, ok
	}
	for _, k := range n.kids {
		v, fixed := width(k)
		if !fixed {
			return 0, false
		}
		w += v
	}
	return w, true
}

// firstOf adds the bytes that n may begin with to s, and reports whether it may be empty.
func firstOf(n *node, s *set) (empty bool) {
	switch n.kind {
	case nodeSet:
		s.merge(n.set)
		return false
	case nodeRepeat:
		return firstOf(n.kids[0], s) || n.min == 0
	case nodeAlt:
		for _, k := range n.kids {
			empty = firstOf(k, s) || empty
		}
		return empty
	case nodeRef:
		s.invert()
		*s = set{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
		return true
	case nodeLook, nodeAssert, nodeEmpty:
		return true
	}
	for _, k := range n.kids {
		if !firstOf(k, s) {
			return false
		}
	}
	return true
}

// beginsAnchored reports whether n matches at the begin of a text only.
func beginsAnchored(n *node) bool {
	switch n.kind {
	case nodeAssert:
		return n.assert == opBegin
	case nodeAlt:
		for _, k := range n.kids {
			if !beginsAnchored(k) {
				return false
			}
		}
		return true
	case nodeSeq, nodeGroup, nodeAtomic:
		return len(n.kids) > 0 && beginsAnchored(n.kids[0])
	}
	return false
}

// prefixOf returns exact bytes that every match of n begins with.
func prefixOf(n *node) (b []byte) {
	if n.kind != nodeSeq {
		return nil
	}
	for _, k := range n.kids {
		if k.kind != nodeSet {
			break
		}
		c, ok := k.set.single()
		if !ok {
			break
		}
		b = append(b, c)
	}
	return b
}
