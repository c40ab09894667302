package http1

import (
	"bytes"

	"github.com/millrace/millrace/semantics"
)

// lower maps the bytes of tokens to lower case, and all others to 0.
var lower = newLower()

func newLower() (t [256]byte) {
	for c := range byte(0x80) {
		if semantics.IsToken(string([]byte{c})) {
			t[c] = c
			if c >= 'A' && c <= 'Z' {
				t[c] = c + 'a' - 'A'
			}
		}
	}
	return t
}

// splitField returns name and value of a field line (RFC 9112 5). It makes the name lower case where it is.
func splitField(line []byte) (name, value []byte, err error) {
	i := 0
	for i < len(line) {
		c := lower[line[i]]
		if c == 0 {
			break
		}
		line[i] = c
		i++
	}
	switch {
	case line[0] == ' ' || line[0] == '\t': // RFC 9112 5.2
		return nil, nil, errFold
	case i == 0 || i == len(line) || line[i] != ':':
		return nil, nil, errName
	}
	value = trim(line[i+1:])
	if !semantics.IsValue(text(value)) {
		return nil, nil, errValue
	}
	return line[:i], value, nil
}

// trim removes blanks at both ends (RFC 9110 5.6.3).
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// framing holds the fields of a header that concern the connection and the content.
type framing struct {
	host                     string
	hasHost                  bool
	hasLength, hasCoding     bool
	chunked                  bool // the only coding
	close, keepAlive         bool // in Connection
	upgrade                  bool // the same
	protocol                 string
	nominated                int // fields that Connection names, beside those above
	expect100, expectUnknown bool
}

// readFields reads the field lines after the start line. Control data and fields of the connection go to f, the others to the
// message.
func (m *Machine) readFields(f *framing) error {
	if len(m.lines)-1 > m.options.MaxFields {
		return errFieldsMany
	}
	for i := 1; i < len(m.lines); i++ {
		line := m.line(i)
		if m.options.KeepCase {
			m.keepSpelling(line)
		}
		name, value, err := splitField(line)
		if err != nil {
			return err
		}
		known := false
		switch len(name) { // most names have another length, and no string is compared
		case 2, 4, 6, 7, 10, 14, 16, 17:
			if known, err = m.control(f, text(name), value); err != nil {
				return err
			}
		}
		if !known {
			m.message.Fields = append(m.message.Fields, semantics.Field{Name: text(name), Value: text(value)})
		}
	}
	if f.nominated > 0 {
		m.removeNominated()
	}
	return nil
}

// control handles a field that is control data, or of the connection (RFC 9110 7.6.1). known says that it is one.
func (m *Machine) control(f *framing, name string, value []byte) (known bool, err error) {
	switch name {
	case "host":
		if f.hasHost {
			return true, errHostRepeated // RFC 9112 3.2
		}
		f.hasHost, f.host = true, text(value)
	case "content-length":
		n, ok := semantics.ParseLength(text(value))
		if same := m.role == RoleClient && n == m.message.ContentLength; !ok || f.hasLength && !same {
			return true, errLength // RFC 9112 6.3 rule 5; the same one again is taken of backends, which RFC 9110 8.6 permits
		}
		f.hasLength, m.message.ContentLength = true, n
	case "transfer-encoding":
		f.chunked = !f.hasCoding && bytes.EqualFold(value, []byte("chunked"))
		f.hasCoding = true
	case "connection", "proxy-connection":
		m.connectionOptions(f, value)
	case "upgrade":
		f.protocol = text(value)
	case "te": // the one value that says something about the message, and that HTTP/2 has too (RFC 9113 8.2.2)
		return !bytes.EqualFold(value, []byte("trailers")), nil
	case "expect":
		twice := f.expect100 || f.expectUnknown
		f.expect100 = bytes.EqualFold(value, []byte("100-continue"))
		f.expectUnknown = twice || !f.expect100
	case "keep-alive", "http2-settings": // the latter goes with the Upgrade that is not seen (RFC 9113 3.1)
	default:
		return false, nil
	}
	return true, nil
}

// connectionOptions reads Connection (RFC 9110 7.6.1).
func (m *Machine) connectionOptions(f *framing, value []byte) {
	for option := range bytes.SplitSeq(value, []byte(",")) {
		option = trim(option)
		switch {
		case bytes.EqualFold(option, []byte("close")):
			f.close = true
		case bytes.EqualFold(option, []byte("keep-alive")):
			f.keepAlive = true
		case bytes.EqualFold(option, []byte("upgrade")):
			f.upgrade = true
		case len(option) > 0 && !bytes.EqualFold(option, []byte("te")):
			f.nominated++
		}
	}
}

// removeNominated removes the fields that Connection names.
func (m *Machine) removeNominated() {
	kept := m.message.Fields[:0]
	for _, field := range m.message.Fields {
		if !m.nominates(field.Name) {
			kept = append(kept, field)
		}
	}
	m.message.Fields = kept
}

// nominates reports whether a line Connection names a field. The lines are read once more, since this is rare.
func (m *Machine) nominates(name string) bool {
	for i := 1; i < len(m.lines); i++ {
		field, value, _ := splitField(m.line(i))
		if s := text(field); s != "connection" && s != "proxy-connection" {
			continue
		}
		for option := range bytes.SplitSeq(value, []byte(",")) {
			if bytes.EqualFold(trim(option), []byte(name)) {
				return true
			}
		}
	}
	return false
}
