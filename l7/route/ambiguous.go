package route

import "github.com/millrace/millrace/semantics"

// Ambiguous reports whether a recipient that reads the path of a request otherwise may find it to be one of another rule than n,
// which Find returns: rules that deny something could be gone around so. Backends differ in what they decode.
func (t *Table) Ambiguous(r *Request, n int) bool {
	alts, ok := semantics.AlternatePaths(r.Path)
	return !ok || !t.leadsTo(r, n, alts...)
}

// AmbiguousRaw is Ambiguous for a recipient that gets the path as it was sent, raw, in place of the normal form: recipients also
// differ in whether they resolve dot segments and join slashes (RFC 3986 6.2.2).
func (t *Table) AmbiguousRaw(r *Request, n int, raw string) bool {
	return raw != r.Path && (semantics.HasDotSegments(raw) || !t.leadsTo(r, n, raw))
}

// leadsTo reports whether a request leads to rule n with each of the paths in place of its own.
func (t *Table) leadsTo(r *Request, n int, paths ...string) bool {
	normal := r.Path
	defer func() { r.Path = normal }()
	for _, r.Path = range paths {
		if t.Find(r) != n {
			return false
		}
	}
	return true
}

// AmbiguousRepeats reports whether a recipient that reads a field or a parameter that comes twice otherwise may find the request to be one
// of another rule than n. The request is as Find has left it, which has returned n.
func (t *Table) AmbiguousRepeats(r *Request, n int) bool {
	if !r.repeats {
		return false
	}
	defer func() { r.reading = regular }()
	for _, r.reading = range readings {
		if t.Find(r) != n {
			return true
		}
	}
	return false
}
