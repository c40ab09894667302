package http1

import (
	"github.com/millrace/millrace/semantics"
)

// content takes a part of content of which left bytes are expected, and enters the state that follows at its end.
func (m *Machine) content(in []byte, then state) (ev Event, used int) {
	used = int(min(uint64(len(in)), m.left))
	if m.left -= uint64(used); m.left == 0 {
		m.state = then
	}
	return Event{Kind: Data, Payload: in[:used]}, used
}

// maxDigits bounds the digits of a chunk's size, leading zeros included.
const maxDigits = 15

// chunked takes a part of content in the chunked coding (RFC 9112 7.1):
//
//	size(hex) [;extensions] CRLF content CRLF ... 0 CRLF trailers CRLF
func (m *Machine) chunked(in []byte) (ev Event, used int, err error) {
	for used < len(in) {
		c := in[used]
		switch m.state {
		case inChunk:
			ev, n := m.content(in[used:], atChunkCR)
			return ev, used + n, nil
		case inTrailers:
			ev, n, err := m.collectTrailers(in[used:])
			return ev, used + n, err
		case atSize:
			err = m.size(c)
		case inExtensions:
			err = m.extension(c)
		case atSizeLF:
			err = m.sizeEnd(c)
		case atChunkCR:
			if m.state = atChunkLF; c != '\r' {
				err = errChunkEnd
			}
		case atChunkLF:
			if m.state, m.left, m.digits = atSize, 0, 0; c != '\n' {
				err = errChunkEnd
			}
		}
		if used++; err != nil {
			return Event{}, used, err
		}
	}
	return Event{}, used, nil
}

// size takes a byte of a chunk's size, or the one that ends it. A blank there is what some recipients skip and others do not.
func (m *Machine) size(c byte) error {
	digit := hexDigits[c]
	switch {
	case digit < 16:
		m.left = m.left<<4 | uint64(digit)
		if m.digits++; m.digits > maxDigits {
			return errChunkSize
		}
		return nil
	case m.digits == 0:
		return errChunkSize
	case c == '\r':
		m.state = atSizeLF
		return nil
	case c == ';':
		m.state, m.inExtension = inExtensions, atName
		return nil
	}
	return errChunkSize
}

// extensionState is where in the extensions of a chunk the input is (RFC 9112 7.1.1):
//
//	*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )
type extensionState uint8

const (
	atName extensionState = iota
	inName
	afterName
	atValue
	inToken
	inQuotes
	inEscape
	afterValue
)

// extension takes a byte of the extensions, which are discarded. Their grammar is checked, so that no two recipients find
// their end in different places.
func (m *Machine) extension(c byte) error {
	if m.extensions++; m.extensions > m.options.MaxExtensions {
		return errExtensions
	}
	next, ok := m.inExtension.next(c)
	if !ok {
		return errChunkSize
	}
	if m.inExtension = next; c == '\r' {
		m.state = atSizeLF
	}
	return nil
}

// afterBlank is the state after a blank at, in and after a name.
var afterBlank = [...]extensionState{atName: atName, inName: afterName, afterName: afterName}

// next returns the state after a byte. CR ends the extensions.
func (s extensionState) next(c byte) (_ extensionState, ok bool) {
	blank, token, end := c == ' ' || c == '\t', lower[c] != 0, c == '\r'
	switch s {
	case inQuotes:
		switch {
		case c == '"':
			return afterValue, true
		case c == '\\':
			return inEscape, true
		}
		return inQuotes, c >= ' ' && c != 0x7f || c == '\t'
	case inEscape:
		return inQuotes, c >= ' ' && c != 0x7f || c == '\t'
	case atName, inName, afterName:
		switch {
		case token && s != afterName:
			return inName, true
		case blank:
			return afterBlank[s], true
		case s == atName:
			return s, false
		}
	case atValue:
		switch {
		case blank:
			return s, true
		case c == '"':
			return inQuotes, true
		}
		return inToken, token
	case inToken:
		if token {
			return s, true
		}
	}
	switch {
	case end:
		return atName, true
	case c == ';':
		return atName, true
	case blank:
		return afterValue, true
	case c == '=' && s <= afterName:
		return atValue, true
	}
	return s, false
}

// sizeEnd takes the LF after a size.
func (m *Machine) sizeEnd(c byte) error {
	if c != '\n' {
		return errChunkSize
	}
	if m.state = inChunk; m.left == 0 {
		m.state = inTrailers
		m.lines, m.begins, m.scanned = m.lines[:0], len(m.buf), 0
	}
	return nil
}

// hexDigits maps hexadecimal digits to their value, and all other bytes to 16.
var hexDigits = newHexDigits()

func newHexDigits() (t [256]uint8) {
	for i := range t {
		t[i] = 16
	}
	for i := range uint8(10) {
		t['0'+i] = i
	}
	for i := range uint8(6) {
		t['a'+i], t['A'+i] = 10+i, 10+i
	}
	return t
}

// collectTrailers takes a part of the trailer section (RFC 9112 7.1.2).
func (m *Machine) collectTrailers(in []byte) (ev Event, used int, err error) {
	used, done, err := m.collect(in, m.options.MaxTrailers, errTrailersLong)
	if !done {
		return Event{}, used, err
	}
	if len(m.lines) > m.options.MaxFields {
		return Event{}, used, errTrailersLong
	}
	m.state = ending
	m.trailers = m.trailers[:0]
	for i := range m.lines {
		name, value, err := splitField(m.line(i))
		if err != nil {
			return Event{}, used, err
		}
		switch use := semantics.UseOfTrailer(text(name)); {
		case use == semantics.TrailerRefused && m.role == RoleServer: // of a response they are dropped, see ReadResponseTrailers
			return Event{}, used, errTrailer
		case use == semantics.TrailerKept:
			m.trailers = append(m.trailers, semantics.Field{Name: text(name), Value: text(value)})
		}
	}
	if len(m.trailers) == 0 {
		return Event{}, used, nil
	}
	return Event{Kind: Trailers}, used, nil
}
