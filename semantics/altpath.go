package semantics

import (
	"slices"
	"strings"
)

// decodings is the number of times that AlternatePaths decodes: recipients behind one another may each do so once.
const decodings = 3

// AlternatePaths returns what lenient recipients may take a normalised path for. They decode separators (%2F, %255C), or whatever is
// encoded twice (%2561), have backslashes separate segments, or drop the parameters of segments (RFC 3986 3.3), in any combination. A proxy that routes by one
// path and a backend that serves another are how rules are gone around. ok is false where a segment becomes "." or "..": some
// recipients resolve it then and others do not, so that no path can be named.
func AlternatePaths(path string) (alts []string, ok bool) {
	if all(path, notAlternate) { // most: strings.ContainsAny would build a table for each
		return nil, true
	}
	levels := []string{path}
	for range decodings {
		last := levels[len(levels)-1]
		s := decodeAgain(last)
		if s == last {
			break
		}
		levels = append(levels, s)
	}
	most := withoutParameters(withSlashes(levels[len(levels)-1])) // all segments of the others are in it, or are split further
	if HasDotSegments(most) {
		return nil, false
	}
	for _, s := range levels {
		for _, one := range []string{s, withSlashes(s), withoutParameters(s), withoutParameters(withSlashes(s))} {
			alt, _, err := NormalizePath(nil, one)
			if err != nil {
				return nil, false
			}
			if alt != path && !slices.Contains(alts, alt) {
				alts = append(alts, alt)
			}
		}
	}
	return alts, true
}

// withSlashes returns a path with slashes in place of backslashes.
func withSlashes(path string) string { return strings.ReplaceAll(path, "\\", "/") }

// withoutParameters returns a path whose segments end before a semicolon.
func withoutParameters(path string) string {
	if !strings.Contains(path, ";") {
		return path
	}
	segments := strings.Split(path, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}

// decodeAgain decodes once the characters that separate and resolve segments, and the percent sign of whatever is encoded again: what
// that becomes, NormalizePath decodes where it is unreserved. Other encodings stay: no recipient routes by them.
func decodeAgain(path string) string {
	if strings.IndexByte(path, '%') < 0 {
		return path
	}
	b := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch d, _ := encoded(path[i:]); d {
		case '/', '\\', ';', '.':
			c, i = d, i+2
		case '%':
			if _, again := encoded("%" + path[i+3:min(i+5, len(path))]); again {
				i += 2
			}
		}
		b = append(b, c)
	}
	return string(b)
}

// encoded returns the byte that an escape at the beginning of s stands for.
func encoded(s string) (c byte, ok bool) {
	if len(s) < 3 || s[0] != '%' || unhex(s[1]) > 15 || unhex(s[2]) > 15 {
		return 0, false
	}
	return unhex(s[1])<<4 | unhex(s[2]), true
}
