package rewrite

import (
	"strings"

	"github.com/millrace/millrace/semantics"
)

// PathType selects the part of a path that is replaced.
type PathType uint8

// Values of PathType.
const (
	KeepPath PathType = iota
	// ReplaceFullPath puts the value in the place of the path.
	ReplaceFullPath
	// ReplacePrefixMatch puts it in the place of the prefix that a rule matched, in whole segments. A slash at the end of either
	// makes no difference.
	ReplacePrefixMatch
)

// PathModifier replaces a path or its prefix. The query stays.
type PathModifier struct {
	Type   PathType
	Value  string // the replacement; "" is "/"
	Prefix string // of ReplacePrefixMatch: the value of the rule's match
}

// Apply returns the path that a request has then. It is path itself, the value, or the end of buf, which is dst with the text
// appended. A path without the prefix stays as it is.
func (m *PathModifier) Apply(dst []byte, path string) (out string, buf []byte) {
	switch {
	case m.Type == ReplaceFullPath && m.Value == "":
		return "/", dst
	case m.Type == ReplaceFullPath:
		return m.Value, dst
	case m.Type == ReplacePrefixMatch:
		return m.replacePrefix(dst, path)
	}
	return path, dst
}

func (m *PathModifier) replacePrefix(dst []byte, path string) (string, []byte) {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(m.Prefix, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return path, dst
	}
	value := strings.TrimSuffix(m.Value, "/")
	switch {
	case value == "" && rest == "":
		return "/", dst
	case value == "":
		return rest, dst
	case rest == "":
		return value, dst
	}
	start := len(dst)
	dst = append(append(dst, value...), rest...)
	return view(dst[start:]), dst
}

// Rewrite holds the edits of a URLRewrite.
type Rewrite struct {
	Hostname string // in place of the host; "" keeps it
	Path     PathModifier
	Regex    *Regex // in place of Path; nil: none
}

// Apply changes authority and path of a request. The two parts of m.Path are given: the path, normalised, and the query, which
// begins with the question mark or is empty. The new path may be the end of buf, which is dst with the text appended. It is "" where Regex
// makes no path of it: the request is to be refused.
func (r *Rewrite) Apply(m *semantics.Message, dst []byte, path, query string) (buf []byte) {
	if r.Hostname != "" {
		m.Authority = r.Hostname
	}
	if path == "*" { // OPTIONS of the server as a whole (RFC 9110 7.1)
		return dst
	}
	if r.Regex != nil {
		start := len(dst)
		made, matched, ok := r.Regex.Apply(dst, path, query)
		if matched {
			if m.Path = ""; ok {
				m.Path = view(made[start:])
			}
			return made
		}
	}
	out, dst := r.Path.Apply(dst, path)
	switch {
	case query == "":
		m.Path = out
	case len(out)+len(query) == len(m.Path) && m.Path[:len(out)] == out: // as it was
	default:
		start := len(dst)
		dst = append(append(dst, out...), query...)
		m.Path = view(dst[start:])
	}
	return dst
}
