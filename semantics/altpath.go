package semantics

import "strings"

// AlternatePath returns what a lenient recipient may take a normalised path for, and whether that is another path. It is one
// that decodes separators, even twice (%2F, %255C), has backslashes separate segments, or drops their parameters (RFC 3986 3.3).
// A proxy that routes by one path and a back end that serves the other are how rules are gone around. alt is "" where it leads
// above the root.
func AlternatePath(path string) (alt string, differs bool) {
	if !strings.ContainsAny(path, "%\\;") {
		return path, false
	}
	s := path
	for range 3 {
		s = decodeSeparators.Replace(s)
	}
	s = strings.ReplaceAll(s, "\\", "/")
	segments := strings.Split(s, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	s = strings.Join(segments, "/")
	alt, _, err := NormalizePath(nil, s)
	if err != nil {
		return "", true
	}
	return alt, alt != path
}

// decodeSeparators decodes the characters that separate and resolve segments, and the percent sign of those that are encoded
// twice. Other encodings stay: no recipient routes by them.
var decodeSeparators = strings.NewReplacer(
	"%2F", "/", "%2f", "/", "%5C", "\\", "%5c", "\\", "%3B", ";", "%3b", ";", "%2E", ".", "%2e", ".",
	"%252F", "/", "%252f", "/", "%255C", "\\", "%255c", "\\", "%253B", ";", "%253b", ";", "%252E", ".", "%252e", ".", "%2525", "%25",
)
