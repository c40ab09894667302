package semantics

import (
	"slices"
	"strings"
)

// decodings is the number of times that AlternatePaths decodes: recipients behind one another may each do so once.
const decodings = 3

// AlternatePaths returns what lenient recipients may take a normalised path for. They decode separators (%2F, %255C), have
// backslashes separate segments, or drop the parameters of segments (RFC 3986 3.3), in any combination. A proxy that routes by one
// path and a backend that serves another are how rules are gone around. ok is false where a segment becomes "." or "..": some
// recipients resolve it then and others do not, so that no path can be named.
func AlternatePaths(path string) (alts []string, ok bool) {
	if all(path, notAlternate) { // most: strings.ContainsAny would build a table for each
		return nil, true
	}
	levels := []string{path}
	for range decodings {
		last := levels[len(levels)-1]
		s := decodeSeparators.Replace(last)
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

// decodeSeparators decodes once the characters that separate and resolve segments, and the percent sign of those that are encoded
// again. Other encodings stay: no recipient routes by them.
var decodeSeparators = strings.NewReplacer(
	"%2F", "/", "%2f", "/", "%5C", "\\", "%5c", "\\", "%3B", ";", "%3b", ";", "%2E", ".", "%2e", ".",
	"%252F", "%2F", "%252f", "%2F", "%255C", "%5C", "%255c", "%5C", "%253B", "%3B", "%253b", "%3B", "%252E", "%2E", "%252e", "%2E", "%2525", "%25",
)
