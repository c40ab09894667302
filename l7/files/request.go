package files

import (
	"strings"

	"github.com/millrace/millrace/semantics"
)

// Request holds the parts of a request that decide the answer. Its texts are borrowed from the message: Clone makes them its own.
type Request struct {
	Method   string
	Path     string // normalised and still encoded: of the file
	Shown    string // the path that the client sees, normalised: of redirects to the folder, and of lists
	Query    string // begins with the question mark, or is empty
	Shared   bool   // a file is answered with only by a descriptor that others have
	accept   string // Accept-Encoding
	match    string // If-Match
	none     string // If-None-Match
	since    string // If-Modified-Since
	before   string // If-Unmodified-Since
	ifRange  string
	ranges   string
	hasMatch bool
	hasNone  bool
}

// NewRequest returns the request with the fields of a message.
func NewRequest(method, path, shown, query string, fields []semantics.Field) Request {
	q := Request{Method: method, Path: path, Shown: shown, Query: query}
	for i := range fields {
		switch f := &fields[i]; f.Name {
		case "accept-encoding":
			q.accept = semantics.JoinValues(q.accept, f.Value)
		case "if-match":
			q.match, q.hasMatch = semantics.JoinValues(q.match, f.Value), true
		case "if-none-match":
			q.none, q.hasNone = semantics.JoinValues(q.none, f.Value), true
		case "if-modified-since":
			q.since = f.Value
		case "if-unmodified-since":
			q.before = f.Value
		case "if-range":
			q.ifRange = f.Value
		case "range":
			q.ranges = semantics.JoinValues(q.ranges, f.Value)
		}
	}
	return q
}

// Clone returns the request with texts of its own, for a goroutine that outlives the message.
func (q Request) Clone() Request {
	for _, s := range []*string{&q.Method, &q.Path, &q.Shown, &q.Query, &q.accept, &q.match, &q.none, &q.since, &q.before, &q.ifRange, &q.ranges} {
		*s = strings.Clone(*s)
	}
	return q
}
