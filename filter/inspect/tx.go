package inspect

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"

	"github.com/millrace/millrace/filter/inspect/applayer"
	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
)

// tx is a message that is evaluated.
type tx struct {
	applayer.Message

	one int // 1 + the file that names and data are looked at of; 0: all

	early *earlyMessage // the message was evaluated before; nil for others
	body  []byte        // at its end: what was searched as it grew, as far as early says
}

// transact evaluates the rules of an application protocol on the buffers of e.tx, once each. It searches the contents of all rules first
// and evaluates those rules whose content was found: of thousands of rules few are candidates for one message.
func (e *Engine) transact(p *packet) {
	e.begin()
	if early := e.tx.early; early != nil && early.stage >= earlyHead {
		e.addWaiting(early)
	}
	for _, g := range e.rules.groups {
		if g.dir&p.dir == 0 {
			continue
		}
		for _, text := range e.tx.Buffers[g.buffer] {
			if len(g.transforms) > 0 {
				text = transformed(g.transforms, text)
			}
			n := 0
			if g.grows && e.tx.grew(text) {
				n = e.tx.early.searched(e.rules)
			}
			e.scan(g, text[:n], text[n:])
		}
	}
	for _, q := range e.rules.txs[everyMessage] {
		e.add(q, 0)
	}
	for _, b := range e.tx.Used {
		for _, q := range e.rules.txs[b] {
			e.add(q, 0)
		}
	}
	for _, c := range e.ordered() {
		q := c.q
		if q.dir&p.dir == 0 || e.tx.early.has(q) || !e.present(q) || !e.admits(q, p) || !e.txParts(q, p) {
			e.tx.early.wants(q)
			continue
		}
		e.tx.early.add(q)
		e.matched(q, p, e.tx.Text)
	}
}

// grew reports whether text is the body that was searched as it grew. Other instances of its buffer, as the parts of a multipart body
// and a body before its coding was undone, were not.
func (t *tx) grew(text []byte) bool {
	return len(t.body) > 0 && len(text) == len(t.body) && &text[0] == &t.body[0]
}

// present reports whether all buffers of a rule are there: a content that must not be found matches nothing in a
// buffer that is missing.
func (e *Engine) present(q *rule) bool {
	for i := range q.parts {
		b := q.parts[i].Buffer
		if b.OfPacket() {
			continue
		}
		switch there := len(e.tx.Buffers[b]) > 0; {
		case !there && !q.parts[i].Absent, there && q.parts[i].Absent && !q.parts[i].OrElse:
			return false
		}
	}
	return true
}

// txParts evaluates the parts of a rule: each in one instance of its buffer, those of a file in the same file. A name of one and the
// bytes of another would match no file that there is.
func (e *Engine) txParts(q *rule, p *packet) bool {
	n := len(e.tx.Buffers[signature.FileData])
	if !q.named || n < 2 || len(e.tx.Buffers[signature.FileName]) != n {
		return e.partsMatch(q, p)
	}
	defer func() { e.tx.one = 0 }()
	for i := range n {
		if e.tx.one = 1 + i; e.partsMatch(q, p) {
			return true
		}
	}
	return false
}

// partsMatch evaluates the parts of a rule, in the order of rank.
func (e *Engine) partsMatch(q *rule, p *packet) bool {
	for i := range q.parts {
		if !e.txPart(&q.parts[i], p) {
			return false
		}
	}
	return true
}

// instances returns the instances of a buffer that are looked at.
func (t *tx) instances(b signature.Buffer) [][]byte {
	if t.one > 0 && (b == signature.FileName || b == signature.FileData) {
		return t.Buffers[b][t.one-1 : t.one]
	}
	return t.Buffers[b]
}

// txPart evaluates a part: one on the payload sees the datagram, or the window of the stream.
func (e *Engine) txPart(part *part, p *packet) bool {
	switch part.Buffer {
	case signature.Base64Data, signature.IPSource, signature.IPDestination:
		return e.eval.match(part, e.ofPacket(part.Buffer, p), 0)
	case signature.Payload:
		if p.tcp == nil && len(p.payload) > 0 && p.proto != 6 {
			return e.eval.match(part, p.payload, 0)
		}
		w, from := p.flow.sides[signature.SideOf(p.dir)].stream.Window()
		return e.eval.match(part, w, int(from))
	}
	if part.Absent && len(e.tx.Buffers[part.Buffer]) == 0 {
		return true
	}
	for _, text := range e.tx.instances(part.Buffer) {
		if len(part.Transforms) > 0 {
			text = transformed(part.Transforms, text)
		}
		if e.eval.match(part, text, 0) {
			return true
		}
	}
	return false
}

// transformed returns the bytes that transforms make of b, which stays as it is.
func transformed(list []signature.Transform, b []byte) []byte {
	for _, t := range list {
		switch t {
		case signature.DotPrefix:
			b = append([]byte{'.'}, b...)
		case signature.ToLower:
			b = ascii.Lower(b)
		case signature.ToUpper:
			b = ascii.Upper(b)
		case signature.ToMD5:
			h := md5.Sum(b)
			b = h[:]
		case signature.ToSHA1:
			h := sha1.Sum(b)
			b = h[:]
		case signature.ToSHA256:
			h := sha256.Sum256(b)
			b = h[:]
		case signature.URLDecode:
			b = ascii.URLDecode(bytes.Clone(b), true)
		case signature.StripWhitespace:
			b = withoutSpace(b, false)
		case signature.CompressWhitespace:
			b = withoutSpace(b, true)
		case signature.HeaderLowercase:
			b = lowerNames(b)
		case signature.StripPseudo:
			b = withoutPseudo(b)
		case signature.FromBase64:
			b = ascii.FromBase64(b)
		}
	}
	return b
}

func isSpace(c byte) bool { return c == ' ' || c >= 9 && c <= 13 }

// withoutSpace removes white space, or leaves one byte of each run.
func withoutSpace(b []byte, one bool) []byte {
	out := make([]byte, 0, len(b))
	for i, c := range b {
		if !isSpace(c) || one && (i == 0 || !isSpace(b[i-1])) {
			out = append(out, c)
		}
	}
	return out
}

// lowerNames writes what stands before the colon of each line in lower case.
func lowerNames(b []byte) []byte {
	out := bytes.Clone(b)
	for line := range bytes.Lines(out) {
		if at := bytes.IndexByte(line, ':'); at >= 0 {
			copy(line[:at], ascii.Lower(line[:at]))
		}
	}
	return out
}

// withoutPseudo removes lines that begin with a colon.
func withoutPseudo(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for line := range bytes.Lines(b) {
		if line[0] != ':' {
			out = append(out, line...)
		}
	}
	return out
}
