package applayer

import (
	"bytes"
	"encoding/base64"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
)

// mail is a message (RFC 5322) with the parts of its body (RFC 2046), each of which is decoded and evaluated as a file.
type mail struct {
	begun  bool
	inHead bool   // of the message or of a part
	bare   bool   // the last line ended without CR
	line   []byte // incomplete
	folded []byte // the field that the next line may continue

	boundaries [][]byte // of the multiparts that are open, with "--" before them
	coding     mailCoding
	body       []byte   // of the part, decoded up to the bound
	rest       []byte   // letters of base64 that are no whole group yet
	names      [][]byte // of the part's file
	message    bool     // the part is a message: another head follows its own
	sent       bool     // the part was evaluated
}

// mailCoding is a Content-Transfer-Encoding (RFC 2045 6). 7bit, 8bit and binary encode nothing, and a coding that is not known is taken
// as such: its bytes are inspected as they came.
type mailCoding uint8

const (
	mailPlain mailCoding = iota
	mailBase64
	mailQuoted
)

// maxBoundaries bounds multiparts inside of one another.
const maxBoundaries = 16

// newMail begins a message.
func newMail() mail { return mail{begun: true, inHead: true} }

// empty reports whether nothing of the message has come.
func (m *mail) empty() bool { return m.inHead && len(m.line)+len(m.folded) == 0 }

// write reads bytes of a message.
func (m *mail) write(c *Context, b []byte) {
	for len(b) > 0 {
		at := bytes.IndexByte(b, '\n') + 1
		if at == 0 {
			if m.line = append(m.line, b...); len(m.line) > maxMailLine {
				m.readLine(c, m.line)
				m.line = nil
			}
			return
		}
		line := b[:at]
		if len(m.line) > 0 {
			line = append(m.line, line...)
			m.line = nil
		}
		m.readLine(c, line)
		b = b[at:]
	}
}

// readLine reads a line with its end.
func (m *mail) readLine(c *Context, line []byte) {
	text := bytes.TrimRight(line, "\r\n")
	if m.boundary(c, text) {
		return
	}
	if !m.inHead {
		m.decode(line, c.Limit)
		if len(m.body) >= c.Limit {
			m.endPart(c)
		}
		return
	}
	if len(text) > 0 && (text[0] == ' ' || text[0] == '\t') && len(m.folded) < MaxHead {
		m.folded = append(append(m.folded, ' '), bytes.TrimSpace(text)...)
		return
	}
	m.field()
	if m.folded = append(m.folded[:0], text...); len(text) == 0 {
		m.headEnds(c)
	}
}

// boundary reports whether a line is a boundary, which ends a part (RFC 2046 5.1.1).
func (m *mail) boundary(c *Context, text []byte) bool {
	if len(text) < 3 || text[0] != '-' || text[1] != '-' {
		return false
	}
	text = bytes.TrimRight(text, " \t")
	for i := len(m.boundaries) - 1; i >= 0; i-- {
		rest, ok := bytes.CutPrefix(text, m.boundaries[i])
		if !ok || len(rest) > 0 && string(rest) != "--" {
			continue
		}
		if m.inHead { // a part may end with its head
			m.field()
		}
		m.endPart(c)
		m.nextPart()
		m.boundaries = m.boundaries[:i+1]
		if len(rest) > 0 {
			m.boundaries, m.inHead = m.boundaries[:i], false
		}
		return true
	}
	return false
}

// nextPart begins the head of another part.
func (m *mail) nextPart() {
	m.inHead, m.folded, m.coding, m.body, m.rest, m.names, m.message, m.sent = true, nil, mailPlain, nil, nil, nil, false, false
}

// headEnds begins the body of a part. That of a message is not encoded, whatever its head says (RFC 2046 5.2.1), and begins with
// the head of its own: the parts of the message are files, and its name is evaluated without content.
func (m *mail) headEnds(c *Context) {
	if m.inHead = m.message; m.message {
		if len(m.names) > 0 {
			m.evaluate(c)
		}
		m.message, m.coding, m.names = false, mailPlain, nil
	}
}

// field reads a field of a head. The parameters name and filename are both in use for the name of a file; programs prefer that of
// Content-Disposition (RFC 2183 2.3), and some take the other. Rules are compared with each.
func (m *mail) field() {
	name, value, ok := bytes.Cut(m.folded, []byte{':'})
	if !ok {
		return
	}
	switch string(ascii.Lower(bytes.TrimSpace(name))) {
	case "content-transfer-encoding":
		switch string(ascii.Lower(bytes.TrimSpace(value))) {
		case "base64":
			m.coding = mailBase64
		case "quoted-printable":
			m.coding = mailQuoted
		}
	case "content-type":
		kind, _, _ := bytes.Cut(value, []byte{';'})
		kind = bytes.TrimSpace(kind)
		m.message = ascii.IsWord(kind, "message/rfc822") || ascii.IsWord(kind, "message/global")
		for _, b := range ascii.AppendReadings(nil, value, "boundary") {
			if len(m.boundaries) < maxBoundaries {
				m.boundaries = append(m.boundaries, append([]byte("--"), b...))
			}
		}
		m.names = ascii.AppendReadings(m.names, value, "name")
	case "content-disposition":
		m.names = ascii.AppendReadings(m.names, value, "filename")
	}
}

// decode appends a line of a part, as far as the bound. Letters of base64 are decoded in groups of four, which lines may cut
// (RFC 2045 6.8).
func (m *mail) decode(line []byte, limit int) {
	if len(m.body) >= limit {
		return
	}
	switch m.coding {
	case mailBase64:
		m.rest = append(m.rest, base64Letters(line)...)
		n := len(m.rest) &^ 3
		m.body = append(m.body, ascii.FromBase64(m.rest[:n])...)
		m.rest = append(m.rest[:0], m.rest[n:]...)
	case mailQuoted:
		m.body = appendQuoted(m.body, line)
	default:
		m.body = append(m.body, line...)
	}
	m.body = m.body[:min(len(m.body), limit)]
}

// base64Letters returns what of a line is base64: other bytes are ignored (RFC 2045 6.8).
func base64Letters(line []byte) (out []byte) {
	for _, letter := range line {
		if ascii.IsBase64(letter) {
			out = append(out, letter)
		}
	}
	return out
}

// appendQuoted decodes a line of quoted-printable (RFC 2045 6.7). "=" without two digits stays, as readers show it.
func appendQuoted(out, line []byte) []byte {
	for i := 0; i < len(line); i++ {
		c := line[i]
		if c == '=' {
			rest := bytes.TrimLeft(line[i+1:], " \t")
			if len(rest) == 0 || rest[0] == '\r' || rest[0] == '\n' { // a soft end of the line
				return out
			}
			if i+2 < len(line) && ascii.Digit(line[i+1]) < 16 && ascii.Digit(line[i+2]) < 16 {
				c, i = byte(ascii.Digit(line[i+1])<<4|ascii.Digit(line[i+2])), i+2
			}
		}
		out = append(out, c)
	}
	return out
}

// endPart evaluates a part that is complete, or has reached the bound.
func (m *mail) endPart(c *Context) {
	if len(m.rest) > 1 && m.coding == mailBase64 {
		out, _ := base64.RawStdEncoding.DecodeString(string(m.rest))
		m.body, m.rest = append(m.body, out...), nil
	}
	if m.sent || len(m.body)+len(m.names) == 0 {
		return
	}
	m.sent = true
	m.evaluate(c)
}

// evaluate evaluates a file: once with each of its names.
func (m *mail) evaluate(c *Context) {
	c.Message.Reset()
	for _, name := range m.names {
		c.Message.Put(signature.FileData, m.body)
		c.Message.Put(signature.FileName, name)
	}
	if len(m.names) == 0 {
		c.Message.Put(signature.FileData, m.body)
	}
	c.Message.Text = m.body
	c.inspect()
}

// end evaluates the last part of a message.
func (m *mail) end(c *Context) {
	if m.begun {
		if len(m.line) > 0 {
			m.readLine(c, m.line)
		}
		if m.inHead {
			m.field()
		}
		m.endPart(c)
	}
	*m = mail{}
}
