package inspect

import (
	"bytes"
	"slices"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/inspect/httpmsg"
	"github.com/millrace/millrace/filter/signature"
)

// A gateway asks about each packet before it leaves, so a message of HTTP is not evaluated at its end alone, when most of it
// has left. With Config.Inline
//
//   - the first line of a request without a version is evaluated when that is complete: servers of HTTP/0.9 answer it,
//   - its head is evaluated when that is complete,
//   - its body each time it grows: the rules of which a content ends in the new bytes, and those that wait for more,
//   - the rest at its end: rules that ask for what is absent or for the end of the body, or that have no content to search
//     for.
//
// A rule matches once for a message.

// earlyMessage records the part of a message evaluated before its end.
type earlyMessage struct {
	stage   earlyStage
	line    bool      // the first line alone is being evaluated
	scanned int       // bytes of httpmsg.Message.Growing that were searched
	by      uint32    // generation of the rules whose contents these were searched for
	parts   bool      // the body has files that begin later
	failed  bool      // the body is not in its coding: growing is the body as it came
	matched []ruleKey // few
	waiting []ruleRef // rules of which a content was found, and that are not decided: candidates of the end too, which does not search again
}

// earlyStage is the evaluated part of a message.
type earlyStage uint8

const (
	earlyNothing earlyStage = iota
	earlyLine               // the first line
	earlyHead               // and the head
)

// bodyUse says what a rule asks of the body of a message.
type bodyUse uint8

const (
	bodyNone   bodyUse = iota // nothing: the head decides
	bodyGrows                 // what holds for a part of the body holds for all of it
	bodyStream                // perhaps nothing: it looks at the payload of the stream
	bodyWhole                 // all of it is needed
)

// isBody reports whether a buffer grows with the body of a message.
func isBody(b signature.Buffer) bool {
	return b == signature.HTTPRequestBody || b == signature.HTTPResponseBody || b == signature.FileData
}

// bodyUseOf returns what a rule asks of the body, the most of its parts.
func bodyUseOf(q *rule) (use bodyUse) {
	for i := range q.parts {
		p := &q.parts[i]
		stream := p.Buffer.OfPacket()
		switch {
		case p.Absent && (isBody(p.Buffer) || p.Buffer == signature.FileName):
			use = bodyWhole
		case p.Buffer == signature.FileName: // whole when the file begins, however its tests end
			use = max(use, bodyGrows)
		case !stream && !isBody(p.Buffer):
		case len(p.Transforms) > 0 || slices.ContainsFunc(p.Tests, aboutTheEnd):
			use = bodyWhole
		case stream:
			use = max(use, bodyStream)
		default:
			use = max(use, bodyGrows)
		}
	}
	return use
}

// aboutTheEnd reports whether more bytes can make a test fail that has held.
func aboutTheEnd(t signature.Test) bool {
	switch t.Kind {
	case signature.TestContent:
		return t.Content.Not || t.Content.EndsWith
	case signature.TestPattern:
		return t.Pattern.Not
	case signature.TestByte:
		return t.Number.Not
	case signature.TestIsDataAt:
		return t.IsDataAt.Not
	case signature.TestSize:
		return true
	case signature.TestJump:
		return t.Number.FromEnd
	}
	return false
}

// has reports whether a rule is not to be evaluated now: it has matched, the head has decided, or the body is missing.
func (m *earlyMessage) has(q *rule) bool {
	switch {
	case m == nil:
		return false
	case slices.Contains(m.matched, q.key):
		return true
	case m.stage < earlyHead:
		return q.body == bodyWhole || m.line && slices.ContainsFunc(q.parts, func(p part) bool { return p.Absent })
	}
	return q.body == bodyNone
}

// searched returns how many bytes of the growing body were searched for the contents of the present rules.
func (m *earlyMessage) searched(r *Rules) int {
	if m.by != r.generation {
		return 0
	}
	return m.scanned
}

// addWaiting makes the rules candidates that wait.
func (e *Engine) addWaiting(early *earlyMessage) {
	for _, ref := range early.waiting {
		if q := e.rules.current(ref); q != nil {
			e.add(q, 0)
		}
	}
}

// ended evaluates what is left of a message at its end: e.tx has its buffers, and body is what bodyGrown was given of it.
func (e *Engine) ended(p *packet, early *earlyMessage, body []byte) {
	if early.stage > earlyNothing {
		e.tx.early, e.tx.body = early, body
	}
	e.transact(p)
	e.tx.early, e.tx.body = nil, nil
}

// add notes that a rule has matched.
func (m *earlyMessage) add(q *rule) {
	if m != nil {
		m.matched = append(m.matched, q.key)
	}
}

// wants keeps a rule that waits for the body, while the head is evaluated.
func (m *earlyMessage) wants(q *rule) {
	if m != nil && m.stage < earlyHead && q.body == bodyGrows {
		m.waiting = append(m.waiting, q.ref())
	}
}

// httpBegun evaluates the head of a message whose body follows.
func (e *Engine) httpBegun(p *packet, s *httpSide) {
	m := &s.msg
	if !e.cfg.Inline || m.Start == nil || s.sent {
		return
	}
	m.Fill(&e.tx.Message, p.dir)
	e.tx.early = &m.early
	e.transact(p)
	e.tx.early = nil
	m.early.stage, m.early.parts = earlyHead, len(m.Boundaries()) > 0
}

// httpFirstLine evaluates a request of HTTP/0.9 (RFC 1945 4.1): a server answers it before any empty line, and what follows
// it says nothing. The parser waits for a head, since a server may do so too.
func (e *Engine) httpFirstLine(p *packet, s *httpSide) {
	if !e.cfg.Inline || s.early.stage != earlyNothing || p.dir != signature.ToServer {
		return
	}
	at := bytes.IndexByte(s.line, '\n')
	if at < 0 {
		return
	}
	m := httpmsg.Message{Head: s.line[:at+1], Start: bytes.TrimRight(s.line[:at], "\r")}
	if m.ParseRequestLine(); len(m.Method) == 0 || hasVersion(m.Version) {
		return
	}
	m.Fill(&e.tx.Message, p.dir)
	e.tx.early, s.early.line = &s.early, true
	e.transact(p)
	e.tx.early, s.early.line = nil, false
	s.early.stage, s.early.waiting = earlyLine, nil // the head makes them wait again
}

// hasVersion reports whether what follows a URI ends in a version of HTTP that makes a head follow.
func hasVersion(b []byte) bool {
	i := bytes.LastIndex(b, []byte("HTTP/"))
	return i >= 0 && !bytes.ContainsAny(b[i:], ascii.Blanks) && !bytes.HasPrefix(b[i:], []byte("HTTP/0"))
}

// httpGrown evaluates the rules that the new bytes of a body may complete.
func (e *Engine) httpGrown(p *packet, s *httpSide) {
	m := &s.msg
	e.bodyGrown(p, &m.early, m.growing(), func() { m.Fill(&e.tx.Message, p.dir) })
}

// growing returns the body that earlyMessage.scanned counts in. That is another one from the byte on at which the coding fails.
func (m *httpMessage) growing() []byte {
	if failed := m.Coding != nil && m.Coding.Failed(); failed != m.early.failed {
		m.early.failed, m.early.scanned = true, 0
	}
	return m.Growing()
}

// bodyGrown evaluates the rules that the new bytes of a body may complete. fill fills the buffers of its message.
func (e *Engine) bodyGrown(p *packet, early *earlyMessage, body []byte, fill func()) {
	before := early.searched(e.rules)
	if early.stage < earlyHead || before == len(body) {
		return
	}
	f := &p.flow.sides[signature.SideOf(p.dir)]
	if !f.afford() { // what the body has is evaluated at its end
		e.postponed(p.flow)
		return
	}
	began := e.eval.work
	early.scanned, early.by = len(body), e.rules.generation
	defer func() { f.spent += e.eval.work - began + len(body)/scanWork }()
	e.begin()
	e.addWaiting(early)
	for _, g := range e.rules.groups {
		if g.grows && g.dir&p.dir != 0 {
			e.scan(g, body[:before], body[before:])
		}
	}
	filled := e.rules.asksForNames && (before == 0 || early.parts)
	if filled {
		fill()
		e.namesFound()
	}
	if !filled && slices.ContainsFunc(e.cands, func(c candidate) bool { return c.q.body == bodyGrows }) {
		filled = true
		fill()
	}
	e.grown(p, early)
	if filled {
		f.spent += fileWork * len(e.tx.Buffers[signature.FileData])
	}
}

// fileWork is the work to find a file and its names in a body, as far as it grew: a client chooses how many there are, and how often.
const fileWork = 16

// namesFound makes the rules candidates that are about the name of a file of e.tx.
func (e *Engine) namesFound() {
	for _, g := range e.rules.groups {
		if g.buffer != signature.FileName {
			continue
		}
		for _, text := range e.tx.Buffers[g.buffer] {
			if len(g.transforms) > 0 {
				text = transformed(g.transforms, text)
			}
			e.scan(g, nil, text)
		}
	}
	for _, q := range e.rules.txs[signature.FileName] {
		e.add(q, 0)
	}
}

// grown evaluates the candidates on what there is of a message. Those that need all of it wait.
func (e *Engine) grown(p *packet, early *earlyMessage) {
	early.waiting = early.waiting[:0]
	for _, c := range e.ordered() {
		q := c.q
		if q.dir&p.dir == 0 || early.has(q) {
			continue
		}
		if q.body == bodyGrows && e.present(q) && e.admits(q, p) && e.txParts(q, p) {
			early.add(q)
			e.matched(q, p, e.tx.Text)
		} else {
			early.waiting = append(early.waiting, q.ref())
		}
	}
}
