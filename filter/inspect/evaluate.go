package inspect

import (
	"bytes"

	"github.com/millrace/millrace/filter/regex"
	"github.com/millrace/millrace/filter/signature"
)

// part is a signature.Part with what is known before any buffer comes.
type part struct {
	signature.Part
	again []bool // whether another match of a test may help the tests behind it: one of them begins where it ended
	pure  []bool // whether no variable is assigned before a test: the same place has the same outcome
	loops bool   // some test is tried at several places
	folds [][]byte
}

func newPart(p *signature.Part) part {
	n := part{Part: *p, again: make([]bool, len(p.Tests)), pure: make([]bool, len(p.Tests)), folds: make([][]byte, len(p.Tests))}
	pure := true
	for i := range p.Tests {
		n.pure[i] = pure
		pure = pure && p.Tests[i].Kind != signature.TestExtract && p.Tests[i].Kind != signature.TestMath
	}
	needed := false // a test behind is relative to whatever moved the position last
	for i := len(p.Tests) - 1; i >= 0; i-- {
		t := &p.Tests[i]
		if moves(t) {
			n.again[i] = needed
			n.loops = n.loops || needed
			needed = false
		}
		needed = needed || t.Relative()
		if t.Kind == signature.TestContent && t.Content.NoCase {
			n.folds[i] = lowered(t.Content.Bytes)
		}
	}
	return n
}

// moves reports whether what follows t begins where t ended.
func moves(t *signature.Test) bool {
	switch t.Kind {
	case signature.TestContent:
		return !t.Content.Not
	case signature.TestPattern:
		return !t.Pattern.Not
	case signature.TestJump, signature.TestExtract, signature.TestMath:
		return true
	}
	return false
}

// maxWork bounds one evaluation, in steps of expressions. A test counts as testWork of them, scanWork bytes that are searched
// for a content as one.
const (
	maxWork  = 2 << 20
	testWork = 4
	scanWork = 16
)

// evaluator decides whether the tests of a part match a buffer.
type evaluator struct {
	machine regex.Machine
	vars    [signature.MaxVars]uint64
	left    int
	decoded []byte // of base64_decode
	gaveUp  uint64 // evaluations that ended at a bound
	work    int    // of all evaluations, in the unit of maxWork

	// What is known of the places of contents while a part with loops is evaluated. With it, contents that follow one another
	// take time in proportion to the buffer, and decoys before a match do not use up the work.
	places []places
	failed bool // a test that does not depend on the ones before it has failed

	p    *part
	b    []byte
	base int // how many bytes of the stream come before b
}

// places records the matches of a content. The tests behind it have failed for those that begin in [triedFrom, triedTo).
type places struct {
	first, more        nextPlace // for the first place behind an earlier test, and for those behind that
	triedFrom, triedTo int
}

// nextPlace is where a content begins next: not in [from, to), and at to where at is not less than 0.
type nextPlace struct {
	known        bool
	from, to, at int
}

// match evaluates all tests of p on b, of which base bytes of the stream are not held any more.
func (e *evaluator) match(p *part, b []byte, base int) bool {
	e.p, e.b, e.base, e.left, e.failed = p, b, base, maxWork, false
	if p.loops {
		e.places = append(e.places[:0], make([]places, len(p.Tests))...)
	}
	ok := e.from(0, 0)
	e.work += maxWork - e.left
	if !ok && e.left < 0 {
		e.gaveUp++
	}
	return ok
}

// over reports whether nothing more is to be tried.
func (e *evaluator) over() bool { return e.failed || e.left < 0 }

// from evaluates the tests from number i on, where the one before ended at prev.
func (e *evaluator) from(i, prev int) bool {
	for ; i < len(e.p.Tests); i++ {
		if e.left -= testWork; e.left < 0 {
			return false
		}
		ok := false
		switch t := &e.p.Tests[i]; t.Kind {
		case signature.TestContent:
			if !t.Content.Not {
				return e.content(i, prev)
			}
			_, found := e.find(i, prev, 0)
			ok = !found
		case signature.TestPattern:
			if !t.Pattern.Not {
				return e.pattern(i, prev)
			}
			ok = !e.matches(t.Pattern, prev)
		case signature.TestSize:
			ok = e.base == 0 && t.Size.Has(uint64(len(e.b)))
		case signature.TestIsDataAt:
			ok = e.isDataAt(t.IsDataAt, prev)
		case signature.TestByte:
			ok = e.byteTest(t.Number, prev)
		case signature.TestBase64:
			ok = e.base64(t.Base64, prev)
		default:
			prev, ok = e.number(t, prev)
		}
		if !ok {
			e.failed = e.failed || e.p.pure[i] && !e.p.Tests[i].Relative()
			return false
		}
	}
	return true
}

// content tries the places of a content until the tests behind match.
func (e *evaluator) content(i, prev int) bool {
	c, pure := e.p.Tests[i].Content, e.p.pure[i]
	from := 0
	var k *places
	if e.p.again[i] && pure {
		k = &e.places[i]
	}
	for {
		at, found := e.find(i, prev, from)
		if found && k != nil && k.triedFrom <= at && at < k.triedTo {
			from = k.triedTo
			continue
		}
		if !found {
			e.failed = e.failed || pure && !c.Relative
			return false
		}
		if e.from(i+1, at+len(c.Bytes)) {
			return true
		}
		if !e.p.again[i] { // what is behind does not depend on where this one is
			e.failed = e.failed || pure
			return false
		}
		if e.over() {
			return false
		}
		if k != nil {
			k.tried(at, from)
		}
		from = at + 1
	}
}

// tried notes that the tests behind a content have failed for the one that begins at at, the first from a place on.
func (k *places) tried(at, from int) {
	if from != k.triedTo || from == 0 {
		k.triedFrom = at
	}
	k.triedTo = at + 1
}

// find returns the first place of a content at from or behind.
func (e *evaluator) find(i, prev, from int) (at int, found bool) {
	c := e.p.Tests[i].Content
	lo, hi := e.bounds(c, prev)
	n := len(c.Bytes)
	if c.EndsWith {
		if hi < len(e.b) {
			return 0, false
		}
		lo = max(lo, len(e.b)-n)
	}
	lo = max(lo, from)
	if lo < 0 || lo+n > hi {
		return 0, false
	}
	if !e.p.loops {
		at = e.search(i, lo, hi)
		return at, at >= 0
	}
	k := &e.places[i].first
	if from > 0 {
		k = &e.places[i].more
	}
	at = k.next(lo, hi-n, func(lo int) int { return e.search(i, lo, hi) })
	return at, at >= 0
}

// next returns the first place from lo to last. search finds one from a place on.
func (k *nextPlace) next(lo, last int, search func(lo int) int) int {
	begin := lo
	switch {
	case !k.known || lo < k.from || lo > k.to:
		k.known, k.from = true, lo
	case k.at >= 0 && k.at <= last:
		return k.at
	case k.at >= 0:
		return -1
	default:
		begin = k.to
	}
	k.at = -1
	if k.to = last + 1; begin <= last {
		if k.at = search(begin); k.at >= 0 {
			k.to = k.at
		}
	} else {
		k.to = begin
	}
	return k.at
}

// search looks for a content in a part of the buffer.
func (e *evaluator) search(i, lo, hi int) int {
	c, text := e.p.Tests[i].Content, e.b[lo:hi]
	at := -1
	if c.NoCase {
		at = indexFold(text, e.p.folds[i])
	} else {
		at = bytes.Index(text, c.Bytes)
	}
	if at < 0 {
		e.left -= len(text) / scanWork
		return -1
	}
	e.left -= at / scanWork
	return lo + at
}

// bounds returns the part of the buffer that a content lies in.
func (e *evaluator) bounds(c *signature.Content, prev int) (lo, hi int) {
	value := func(n, v int) int {
		if v > 0 {
			return int(min(e.vars[v-1], 1<<30))
		}
		return n
	}
	hi = len(e.b)
	switch {
	case c.Relative:
		lo = prev + value(c.Distance, c.DistanceVar)
		if c.HasWithin {
			hi = min(hi, lo+value(c.Within, c.WithinVar))
		}
		lo = max(lo, 0)
	case c.StartsWith:
		lo = -e.base
		hi = min(hi, lo+len(c.Bytes))
	default:
		lo = value(c.Offset, c.OffsetVar) - e.base
		if depth := value(c.Depth, c.DepthVar); depth > 0 || c.DepthVar > 0 {
			hi = min(hi, lo+depth)
		}
		if c.Depth == 0 && c.DepthVar == 0 {
			lo = max(lo, 0)
		}
		if lo < 0 && hi > 0 { // a part of what it may lie in is not held any more
			lo = 0
		}
	}
	return lo, hi
}

// pattern tries the matches of an expression until the tests behind match.
func (e *evaluator) pattern(i, prev int) bool {
	p := e.p.Tests[i].Pattern
	b, skip := e.b, 0
	if p.Relative {
		if prev > len(b) {
			return false
		}
		b, skip = b[prev:], prev
	}
	for from := 0; from <= len(b); {
		at, err := e.machine.Find(p.Regex, b, from)
		e.left -= e.machine.Spent()
		if err != nil {
			e.gaveUp++
		}
		if at == nil {
			e.failed = e.failed || e.p.pure[i] && !p.Relative
			return false
		}
		begin, end := at[0], at[1]
		if e.from(i+1, skip+end) {
			return true
		}
		if !e.p.again[i] {
			e.failed = e.failed || e.p.pure[i]
			return false
		}
		if e.over() {
			return false
		}
		from = begin + 1
	}
	return false
}

// matches reports whether an expression matches anywhere.
func (e *evaluator) matches(p *signature.Pattern, prev int) bool {
	b := e.b
	if p.Relative {
		b = b[min(prev, len(b)):]
	}
	at, err := e.machine.Find(p.Regex, b, 0)
	e.left -= e.machine.Spent()
	if err != nil {
		e.gaveUp++
	}
	return at != nil
}
