// Package ascii reads the text of protocols: letters, words, heads of fields and base64. It treats bytes that are not ASCII as
// they are, where packages bytes and strings would decode UTF-8 (and fold, for example, the Kelvin sign to k), as receivers
// of these protocols do not.
//
// The package is pure. Functions that return a part of their argument borrow it.
package ascii

import (
	"bytes"
	"encoding/base64"
	"iter"
)

const (
	// WhiteSpace separates words for recipients that are lenient.
	WhiteSpace = " \t\r\n\v\f"
	// Blanks separate the words of the first line of a request for servers (RFC 9112 3).
	Blanks = " \t\v\f\r"
)

// IndexFold returns where lower, which is in lower case, begins in text, whose letters count in both cases; -1 where it does not.
func IndexFold(text, lower []byte) int {
	n := len(lower)
	if n == 0 || len(text) < n {
		return -1
	}
	first := lower[0]
	other := first
	if first >= 'a' && first <= 'z' {
		other -= 32
	}
	for at := 0; at+n <= len(text); at++ {
		if c := text[at]; (c == first || c == other) && EqualFold(text[at:at+n], lower) {
			return at
		}
	}
	return -1
}

// Lower returns a copy of b in lower case.
func Lower(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 32
		}
		out[i] = c
	}
	return out
}

// Upper returns a copy of b in upper case.
func Upper(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		if c >= 'a' && c <= 'z' {
			c -= 32
		}
		out[i] = c
	}
	return out
}

// EqualNames reports whether two texts of one length are equal but for the case of letters.
func EqualNames(a, b []byte) bool {
	for i, c := range a {
		d := b[i]
		if c != d && (c|32 != d|32 || c|32 < 'a' || c|32 > 'z') {
			return false
		}
	}
	return true
}

// EqualFold reports whether b is lower, which is in lower case and of its length, but for the case of letters.
func EqualFold(b, lower []byte) bool {
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 32
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// IsWord reports whether a text is a word, which is in lower case, but for the case of letters.
func IsWord(b []byte, lower string) bool {
	return len(b) == len(lower) && EqualFold(b, []byte(lower))
}

// IsPrefixOf reports whether one of two texts begins with the other.
func IsPrefixOf(b, of []byte) bool {
	n := min(len(b), len(of))
	return bytes.Equal(b[:n], of[:n])
}

// Digit returns the value of a hexadecimal digit, 99 for another byte.
func Digit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|32 >= 'a' && c|32 <= 'f':
		return int(c|32-'a') + 10
	}
	return 99
}

// HeadEnd returns where the empty line behind a head ends, or -1. A lone LF ends a line, too: recipients may take it for an
// end (RFC 9112 2.2). It looks from an offset on.
func HeadEnd(b []byte, from int) int {
	for i := from; i < len(b); i++ {
		if b[i] != '\n' {
			continue
		}
		switch {
		case i+1 < len(b) && b[i+1] == '\n':
			return i + 2
		case i+2 < len(b) && b[i+1] == '\r' && b[i+2] == '\n':
			return i + 3
		}
	}
	return -1
}

// Parameter returns the value of a parameter of a field, without quotes (RFC 2045 5.1); nil where there is none.
func Parameter(value []byte, name string) []byte {
	for key, text := range Parameters(value) {
		if IsWord(key, name) {
			return text
		}
	}
	return nil
}

// Parameters yields all that a recipient may take for a parameter of a field, without quotes: also behind a semicolon in quotes, where
// recipients differ, and of a quoted value with backslashes the text with and without them.
func Parameters(value []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, text []byte) bool) {
		for {
			_, rest, ok := bytes.Cut(value, []byte{';'})
			if !ok {
				return
			}
			key, text, _ := bytes.Cut(rest, []byte{'='})
			key, text = bytes.TrimSpace(key), bytes.TrimLeft(text, " \t")
			var whole []byte // behind the quote
			if len(text) > 0 && text[0] == '"' {
				whole = text[1:]
				text, _, _ = bytes.Cut(whole, []byte{'"'})
			} else {
				text, _, _ = bytes.Cut(text, []byte{';'})
				text = bytes.TrimSpace(text)
			}
			if !yield(key, text) || whole != nil && bytes.IndexByte(text, '\\') >= 0 && !yield(key, unquoted(whole)) {
				return
			}
			value = rest
		}
	}
}

// unquoted returns what is before the closing quote, without backslashes (RFC 9110 5.6.4).
func unquoted(b []byte) (text []byte) {
	for i := 0; i < len(b) && b[i] != '"'; i++ {
		if b[i] == '\\' && i+1 < len(b) {
			i++
		}
		text = append(text, b[i])
	}
	return text
}

// IsBase64 reports whether a byte is a letter of base64 (RFC 4648 4).
func IsBase64(c byte) bool {
	return c|32 >= 'a' && c|32 <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}

// FromBase64 decodes as much as is base64 (RFC 4648 4); line ends and blanks between the letters do not count.
func FromBase64(b []byte) []byte {
	letters := make([]byte, 0, len(b))
	for _, c := range b {
		if c == '\r' || c == '\n' || c == ' ' || c == '\t' {
			continue
		}
		if !IsBase64(c) {
			break
		}
		letters = append(letters, c)
	}
	if len(letters)%4 == 1 { // six bits are no byte
		letters = letters[:len(letters)-1]
	}
	out, _ := base64.RawStdEncoding.DecodeString(string(letters))
	return out
}

// URLDecode decodes %XX, and "+" where plus is set, in place: "+" is a blank in the content of forms alone. What is no code stays, as
// servers treat it.
func URLDecode(b []byte, plus bool) []byte {
	out := b[:0]
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case c == '%' && i+2 < len(b) && Digit(b[i+1]) < 16 && Digit(b[i+2]) < 16:
			c = byte(Digit(b[i+1])<<4 | Digit(b[i+2]))
			i += 2
		case c == '+' && plus:
			c = ' '
		}
		out = append(out, c)
	}
	return out
}
