package httpmsg

import (
	"bytes"

	"github.com/millrace/millrace/filter/inspect/ascii"
)

// splitURI returns what follows the authority of an absolute URI, and the authority; nil where there is none. A "://" in a path or a
// query is no scheme.
func splitURI(uri []byte) (path, host []byte) {
	scheme, rest, ok := bytes.Cut(uri, []byte("://"))
	if !ok || bytes.ContainsAny(scheme, "/?#") {
		return uri, nil
	}
	end := bytes.IndexAny(rest, "/?#")
	if end < 0 {
		return []byte("/"), rest
	}
	return rest[end:], rest[:end]
}

// normalHost returns a host in lower case, without its port. Colons within the brackets of an IPv6 address are no port (RFC 3986 3.2.2).
func normalHost(host []byte) []byte {
	if host == nil {
		return nil
	}
	h := ascii.Lower(bytes.TrimSpace(host))
	if i := bytes.LastIndexByte(h, ':'); i >= 0 && !bytes.ContainsRune(h[i:], ']') {
		h = h[:i]
	}
	return h
}

// normalURI decodes a path and its query, and removes empty and dot segments of the path (RFC 3986 5.2.4), as the parser that the
// rules are written for: a slash behind the last dot segment goes with it.
func normalURI(uri []byte) []byte {
	path, query := uri, []byte(nil)
	if i := bytes.IndexByte(uri, '?'); i >= 0 {
		path, query = uri[:i], uri[i:]
	}
	p := ascii.URLDecode(bytes.Clone(path), false)
	out := make([]byte, 0, len(uri))
	for i := 0; i < len(p); i++ {
		c := p[i]
		if c == '\\' {
			c = '/'
		}
		if c == '/' && len(out) > 0 && out[len(out)-1] == '/' {
			continue
		}
		out = append(out, c)
	}
	out = withoutDots(out)
	return append(out, ascii.URLDecode(bytes.Clone(query), false)...)
}

// withoutDots removes "/./" and "/x/../". The first segment is the empty text before the first slash, which ".." does not remove.
func withoutDots(p []byte) []byte {
	if !bytes.Contains(p, []byte("/.")) {
		return p
	}
	var segments [][]byte
	parts := bytes.Split(p, []byte{'/'})
	dots := false // the segment before was one of dots
	for i, s := range parts {
		end := dots && i == len(parts)-1 && len(s) == 0
		dots = string(s) == "." || string(s) == ".."
		switch {
		case string(s) == ".." && len(segments) > 1:
			segments = segments[:len(segments)-1]
		case !dots && !end:
			segments = append(segments, s)
		}
	}
	return append([]byte{}, bytes.Join(segments, []byte{'/'})...) // not nil, which is no path
}

// PathOf returns the path of a URI, as http.uri has it, without the query.
func PathOf(uri []byte) []byte {
	path, _ := splitURI(uri)
	if path, _, _ = bytes.Cut(normalURI(path), []byte{'?'}); len(path) == 0 {
		return nil
	}
	return path
}

// Servers read some URIs differently. A rule on http.uri is evaluated on each reading that a server is known to have, beside the
// normal one:
//
//   - blanks in the URI, as far as the version: old servers take "GET /a b HTTP/1.1" for the URI "/a b",
//   - %uXXXX, a code unit of UTF-16, which IIS decodes,
//   - overlong UTF-8, such as c0 af for "/", which decoders without the check of RFC 3629 3 take,
//   - a URI that is decoded twice, by a server and by the program behind it,
//   - a plus sign in the query, which is a blank in forms (WHATWG URL 5.1), in each of these.

// otherReadings returns readings of a request's URI, whose normal one is given.
func otherReadings(m *Message, normal []byte) (list [][]byte) {
	if i := bytes.LastIndex(m.Version, []byte("HTTP/")); i > 0 || i < 0 && len(m.Version) > 0 {
		rest := m.Version
		if i > 0 {
			rest = m.Version[:i]
		}
		whole := append(append(bytes.Clone(m.URI), ' '), bytes.TrimRight(rest, ascii.WhiteSpace)...)
		path, _ := splitURI(whole)
		list = append(list, normalURI(path))
	}
	for text, n := normal, 0; n < 2; n++ {
		next := decodedAgain(text)
		if bytes.Equal(next, text) {
			break
		}
		text = next
		list = append(list, text)
	}
	if bytes.IndexByte(normal, '?') < 0 && len(list) == 0 {
		return nil
	}
	for _, text := range append(list, normal) {
		if form, ok := withBlanks(text); ok {
			list = append(list, form)
		}
	}
	return list
}

// withBlanks returns a URI with blanks for the plus signs of its query; ok is false where it has none.
func withBlanks(uri []byte) (form []byte, ok bool) {
	query := bytes.IndexByte(uri, '?')
	if query < 0 || bytes.IndexByte(uri[query:], '+') < 0 {
		return nil, false
	}
	return append(bytes.Clone(uri[:query]), bytes.ReplaceAll(uri[query:], []byte{'+'}, []byte{' '})...), true
}

// decodedAgain decodes what another server decodes in a URI that is decoded already.
func decodedAgain(uri []byte) []byte {
	if bytes.IndexByte(uri, '%') < 0 && bytes.IndexFunc(uri, func(r rune) bool { return r >= 0x80 }) < 0 {
		return uri
	}
	return normalURI(withoutOverlong(withoutUnits(ascii.URLDecode(bytes.Clone(uri), false))))
}

// withoutUnits decodes %uXXXX to the byte that IIS makes of it: itself, or the ASCII of a fullwidth form (U+FF01 to U+FF5E).
func withoutUnits(b []byte) []byte {
	out := b[:0]
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '%' && i+5 < len(b) && b[i+1]|32 == 'u' {
			if unit, ok := hexUnit(b[i+2 : i+6]); ok {
				switch {
				case unit >= 0xff01 && unit <= 0xff5e:
					c, i = byte(unit-0xff00+0x20), i+5
				case unit < 0x100:
					c, i = byte(unit), i+5
				}
			}
		}
		out = append(out, c)
	}
	return out
}

func hexUnit(b []byte) (unit int, ok bool) {
	for _, c := range b {
		d := ascii.Digit(c)
		if d >= 16 {
			return 0, false
		}
		unit = unit<<4 | int(d)
	}
	return unit, true
}

// withoutOverlong decodes sequences of UTF-8 that are longer than their character needs, of ASCII:
//
//	1100000x 10xxxxxx   11100000 1000000x 10xxxxxx   11110000 10000000 1000000x 10xxxxxx
func withoutOverlong(b []byte) []byte {
	out := b[:0]
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c >= 0xc0 {
			if ascii, size := overlong(b[i:]); size > 0 {
				c, i = ascii, i+size-1
			}
		}
		out = append(out, c)
	}
	return out
}

// overlong reads a sequence of more than one byte for a character of ASCII, and returns its size; 0 for any other.
func overlong(b []byte) (c byte, size int) {
	for n, lead := range [3]byte{0xc0, 0xe0, 0xf0} {
		high := n // of the byte with the seventh bit, before the last one
		if len(b) < n+2 || b[n+1]>>6 != 2 {
			return 0, 0
		}
		rest := b[high] &^ 1
		if n == 0 && rest == lead || n > 0 && b[0] == lead && rest == 0x80 && (n == 1 || b[1] == 0x80) {
			return b[high]&1<<6 | b[n+1]&0x3f, n + 2
		}
	}
	return 0, 0
}
