package inspect

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/millrace/millrace/filter/inspect/ascii"
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

// newPart finds out which tests have to be tried at several places. It goes from the last test to the first: only what comes behind
// a test decides whether another place of it can help.
func newPart(p *signature.Part) part {
	q := *p
	q.Tests = slices.Clone(p.Tests)
	slices.SortStableFunc(q.Tests, func(a, b signature.Test) int { // a value is added to a set when all else holds
		return cmp.Compare(boolInt(a.Kind == signature.TestSet), boolInt(b.Kind == signature.TestSet))
	})
	p = &q
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
			n.folds[i] = ascii.Lower(t.Content.Bytes)
		}
	}
	return n
}

// rank orders parts: what base64_decode fills is evaluated behind it, and what changes a set last.
func (p *part) rank() int {
	switch {
	case slices.ContainsFunc(p.Tests, func(t signature.Test) bool { return t.Kind == signature.TestSet }):
		return 2
	case p.Buffer == signature.Base64Data:
		return 1
	}
	return 0
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
// for a content as one. Places of contents that follow one another multiply, and the text is an attacker's: without a bound
// one packet could occupy a core. An evaluation that meets it counts in Stats, and as no match.
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
	sets    sets
	gaveUp  uint64 // evaluations that ended at a bound
	work    int    // of all evaluations, in the unit of maxWork

	// What is known of the places of contents while a part with loops is evaluated. With it, contents that follow one another
	// take time in proportion to the buffer, and decoys before a match do not use up the work.
	places []places

	// failed is that a test which does not depend on the ones before it has failed. No other place of these can help then, so
	// that the evaluation ends instead of going back.
	failed bool

	p    *part
	b    []byte
	base int // how many bytes of the stream come before b
}

// places records the matches of a content. The tests behind it have failed for those that begin in [triedFrom, triedTo).
//
// The interval serves only where no variable is assigned before (part.pure): these tests would then fail again, since they depend
// on nothing but where the content ends. first and more are apart, since a search that goes back begins behind another end of the
// test before, while one that goes on begins where it was: one memory for both would be lost with each step back.
type places struct {
	first, more        nextPlace // for the first place behind an earlier test, and for those behind that
	triedFrom, triedTo int
}

// nextPlace remembers one search for a content.
//
// Invariant, while known: the content begins nowhere in [from, to). With at >= 0 it begins at to, and at == to. With at < 0 what
// begins at to or behind has not been searched. So a search from any place within [from, to] may begin at to, and each byte of the
// buffer is searched once as long as the places move forward. It holds for the text alone, whatever variables the bounds have.
type nextPlace struct {
	known        bool
	from, to, at int
}

// match evaluates all tests of p on b, of which base bytes of the stream are not held any more. It borrows b.
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
//
// It is a search with backtracking, one level of recursion for each content or expression that may have several places: the first
// place is not always the right one, as in content:"a"; content:"b"; within:1 on "a.ab". Tests with one outcome are steps of the
// loop. The depth is bounded by the number of tests of a rule.
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
			ok = e.base == 0 && t.Size.Has(uint64(len(e.b))) // the size of a window is not that of the stream
		case signature.TestIsDataAt:
			ok = e.isDataAt(t.IsDataAt, prev)
		case signature.TestByte:
			ok = e.byteTest(t.Number, prev)
		case signature.TestBase64:
			ok = e.base64(t.Base64, prev)
		case signature.TestInteger:
			ok = t.Size.Has(integer(e.b) & t.Mask)
		case signature.TestSet:
			ok = e.base == 0 && e.sets.test(t.Set, e.b)
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
		if !e.p.again[i] { // what is behind does not depend on where this one is: the next place would fail in the same way
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

// tried notes that the tests behind a content have failed for the one that begins at at, the first from a place on. The interval
// grows only where from continues it: from == triedTo means that no place between was left out. Otherwise it begins anew, since
// an interval with a place that was not tried would hide a match.
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

// next returns the first place from lo to last, or -1. search finds one from a place on, and does not look behind the caller's
// bound, which last follows from.
//
// The four cases keep the invariant of nextPlace. Outside of [from, to] nothing is known: the memory begins at lo. Inside of it,
// a place that is known answers at once, whether it is before last or not. Where none is known, to is where the search ended: it
// goes on there, and not at lo. A place behind last stays known, because last may grow with the next call.
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
	// Searched and not found is known up to last + 1. Where begin is behind last, nothing is searched, and nothing more is known
	// than before.
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

// search looks for a content in a part of the buffer. The work counts what was read, up to the match: counted by the whole part,
// many near matches in a large buffer would use up the bound although each costs little.
func (e *evaluator) search(i, lo, hi int) int {
	c, text := e.p.Tests[i].Content, e.b[lo:hi]
	at := -1
	if c.NoCase {
		at = ascii.IndexFold(text, e.p.folds[i])
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

// bounds returns the part of the buffer that a content lies in. lo may be negative, or behind hi: find then reports none.
// Offsets count from the begin of the stream, and b begins base bytes behind it, so that offsets move with the window. Variables
// are cut to 30 bits, as values of the packet must not overflow the sums.
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
	for from := 0; from <= len(b); { // with len(b): an expression may match the empty text at the end
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
		from = begin + 1 // not end: matches may overlap, and one that begins within this one may be the right one
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
