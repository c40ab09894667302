package cache

import (
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/semantics"
)

// Answer holds the parts of a stored response that answer a request.
type Answer struct {
	Status int
	Body   []byte // to be sent; none for HEAD, 304 and 416, and none that is in a file
	Length int64  // that the header announces; -1 is none
	// First and Left are the place of the bytes to be sent in a content that is in a file, and their number.
	First, Left int64

	entry       *Entry
	first, last int64 // of 206
}

// Answer returns the answer to a GET or HEAD with these fields: all of the response, a part of it, or that the client has it already
// (RFC 9111 4.3.2, RFC 9110 13.2.2, 14.2).
func (e *Entry) Answer(method string, fields []semantics.Field) (a Answer) {
	a = Answer{Status: e.Status, Body: e.Body, Length: e.Length(), entry: e}
	defer a.locate(method)
	if e.Status == 204 {
		a.Length = -1
	}
	if e.Status == 200 {
		if e.isHad(fields) {
			a.Status, a.Body, a.Length = 304, nil, -1
			return a
		}
		if method == "GET" {
			a.part(fields)
		}
	}
	if method == "HEAD" {
		a.Body = nil
	}
	return a
}

// locate sets the place in a file.
func (a *Answer) locate(method string) {
	if a.entry.disk != nil && method != "HEAD" && a.Length > 0 {
		a.First, a.Left = a.first, a.Length
	}
}

// isHad reports whether the client has the response (RFC 9110 13.1.2, 13.1.3). If-None-Match comes before If-Modified-Since.
func (e *Entry) isHad(fields []semantics.Field) bool {
	tags, since, hasTags := "", "", false
	for i := range fields {
		switch f := &fields[i]; f.Name {
		case "if-none-match":
			tags, hasTags = semantics.JoinValues(tags, f.Value), true
		case "if-modified-since":
			since = f.Value
		}
	}
	if hasTags {
		return e.tag != "" && semantics.MatchesTag(tags, e.tag, true)
	}
	at, ok := semantics.ParseDate(since)
	if !ok {
		return false
	}
	modified := e.modified
	if modified.IsZero() { // RFC 9111 4.3.2: then Date counts
		modified = e.generated
	}
	return !modified.After(at)
}

// part makes the answer the range that is asked for. If-Range that names another version gets all of the response.
func (a *Answer) part(fields []semantics.Field) {
	value, version, ranged := "", "", 0
	for i := range fields {
		switch f := &fields[i]; f.Name {
		case "range":
			value = f.Value
			ranged++
		case "if-range":
			version = f.Value
		}
	}
	if ranged != 1 || version != "" && !a.entry.isVersion(version) {
		return
	}
	size := a.entry.Length()
	first, last, result := semantics.ParseRange(value, size)
	switch result {
	case semantics.RangeSatisfiable:
		a.Status, a.first, a.last = 206, first, last
		if a.Length = last - first + 1; a.entry.disk == nil {
			a.Body = a.Body[first : last+1]
		}
	case semantics.RangeUnsatisfiable:
		a.Status, a.Body, a.Length = 416, nil, 0
	}
}

// isVersion reports whether If-Range names the stored response, by the strong comparison (RFC 9110 13.1.5). A date is a strong validator
// only where the response was made a second or more after it (RFC 9110 8.8.2.2).
func (e *Entry) isVersion(value string) bool {
	if strings.HasPrefix(value, `"`) || strings.HasPrefix(value, "W/") {
		return value == e.tag && value[0] == '"'
	}
	at, ok := semantics.ParseDate(value)
	return ok && at.Equal(e.modified) && e.generated.Sub(e.modified) >= 1e9
}

// AppendFields appends the fields of the answer at a time. Those of a 304 are the ones that a cache at the client updates (RFC 9110
// 15.4.5). text is memory for values.
func (a *Answer) AppendFields(dst []semantics.Field, text *[]byte, now time.Time) []semantics.Field {
	for i := range a.entry.Fields {
		f := &a.entry.Fields[i]
		if a.Status == 304 && !isUpdated(f.Name) || a.Status == 416 && strings.HasPrefix(f.Name, "content-") {
			continue
		}
		dst = append(dst, *f)
	}
	at := len(*text)
	*text = appendAge(*text, a.entry.Age(now))
	dst = append(dst, semantics.Field{Name: "age", Value: view((*text)[at:])})
	switch at = len(*text); a.Status {
	case 206:
		b := strconv.AppendInt(append(*text, "bytes "...), a.first, 10)
		b = strconv.AppendInt(append(b, '-'), a.last, 10)
		*text = strconv.AppendInt(append(b, '/'), a.entry.Length(), 10)
		dst = append(dst, semantics.Field{Name: "content-range", Value: view((*text)[at:])})
	case 416:
		*text = strconv.AppendInt(append(*text, "bytes */"...), a.entry.Length(), 10)
		dst = append(dst, semantics.Field{Name: "content-range", Value: view((*text)[at:])})
	}
	return dst
}

// isUpdated reports whether a 304 has a field of the stored response: not what describes the content alone.
func isUpdated(name string) bool {
	return name == "content-location" || !strings.HasPrefix(name, "content-") || name == "content-security-policy"
}
