package files

import (
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/semantics"
)

// condition completes an answer with a file of a size, by what the request asks of it: its conditions, in the order of RFC 9110
// 13.2.2, and its range.
func (a *Answer) condition(q *Request, tag string, modified time.Time, size int64) {
	switch {
	case q.hasMatch && !semantics.MatchesTag(q.match, tag, false), !q.hasMatch && isAfter(modified, q.before):
		a.none(412)
		return
	case q.hasNone && semantics.MatchesTag(q.none, tag, true), !q.hasNone && notAfter(modified, q.since):
		a.none(304)
		return
	}
	a.add("accept-ranges", "bytes")
	a.Length = size
	if q.Method == "HEAD" { // Range is of GET alone (RFC 9110 14.2)
		return
	}
	a.left = size
	if q.ranges == "" || q.ifRange != "" && !sameVersion(q.ifRange, tag, modified) {
		return
	}
	switch first, last, result := semantics.ParseRange(q.ranges, size); result {
	case semantics.RangeSatisfiable:
		a.Status, a.at, a.left, a.Length = 206, first, last-first+1, last-first+1
		a.add("content-range", "bytes "+strconv.FormatInt(first, 10)+"-"+strconv.FormatInt(last, 10)+"/"+strconv.FormatInt(size, 10))
	case semantics.RangeUnsatisfiable:
		a.none(416)
		a.Length = 0
		a.add("content-range", "bytes */"+strconv.FormatInt(size, 10))
	}
}

// none makes an answer one without content. A 304 has what a cache updates, and nothing of the content (RFC 9110 15.4.5).
func (a *Answer) none(status int) {
	a.Status, a.left, a.Length = status, 0, 0
	drop := "content-type content-encoding"
	if status == 304 {
		a.Length = -1
	}
	kept := a.Fields[:0]
	for _, f := range a.Fields {
		if !strings.Contains(drop, f.Name) {
			kept = append(kept, f)
		}
	}
	a.Fields = kept
}

// isAfter reports whether a time is after the date of a field. One that is none is ignored (RFC 9110 13.1.4).
func isAfter(t time.Time, date string) bool {
	d, ok := semantics.ParseDate(date)
	return ok && t.After(d)
}

// notAfter reports whether a time is not after the date of a field. One that is none is ignored (RFC 9110 13.1.3).
func notAfter(t time.Time, date string) bool {
	d, ok := semantics.ParseDate(date)
	return ok && !t.After(d)
}

// sameVersion reports whether If-Range names the file as it is: by its tag, or by the very date (RFC 9110 13.1.5). A file that was
// changed within the last second may have two versions with one date, so that the date is no strong validator then; tags are for that.
func sameVersion(value, tag string, modified time.Time) bool {
	if strings.HasPrefix(value, `"`) || strings.HasPrefix(value, "W/") {
		return value == tag
	}
	d, ok := semantics.ParseDate(value)
	return ok && d.Equal(modified)
}
