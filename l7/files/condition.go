package files

import (
	"strconv"
	"strings"
	"time"
)

// condition completes an answer with a file of a size, by what the request asks of it: its conditions, in the order of RFC 9110
// 13.2.2, and its range.
func (a *Answer) condition(q *Request, tag string, modified time.Time, size int64) {
	switch {
	case q.hasMatch && !matches(q.match, tag, false), !q.hasMatch && isAfter(modified, q.before):
		a.none(412)
		return
	case q.hasNone && matches(q.none, tag, true), !q.hasNone && notAfter(modified, q.since):
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
	switch first, last, result := parseRange(q.ranges, size); result {
	case satisfiable:
		a.Status, a.at, a.left, a.Length = 206, first, last-first+1, last-first+1
		a.add("content-range", "bytes "+strconv.FormatInt(first, 10)+"-"+strconv.FormatInt(last, 10)+"/"+strconv.FormatInt(size, 10))
	case unsatisfiable:
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

// matches reports whether a list of entity tags has one: by the weak comparison also one that is marked as weak (RFC 9110 8.8.3.2).
// The strong one never matches a weak tag, and those of files are strong.
func matches(list, tag string, weak bool) bool {
	if strings.TrimSpace(list) == "*" {
		return true
	}
	for s := strings.TrimLeft(list, " \t,"); s != ""; s = strings.TrimLeft(s, " \t,") {
		isWeak := strings.HasPrefix(s, "W/")
		if isWeak {
			s = s[2:]
		}
		if s == "" || s[0] != '"' {
			return false // not a list of tags
		}
		end := strings.IndexByte(s[1:], '"')
		if end < 0 {
			return false
		}
		if s[:end+2] == tag && (weak || !isWeak) {
			return true
		}
		s = s[end+2:]
	}
	return false
}

// isAfter reports whether a time is after the date of a field. One that is none is ignored (RFC 9110 13.1.4).
func isAfter(t time.Time, date string) bool {
	d, ok := parseDate(date)
	return ok && t.After(d)
}

// notAfter reports whether a time is not after the date of a field. One that is none is ignored (RFC 9110 13.1.3).
func notAfter(t time.Time, date string) bool {
	d, ok := parseDate(date)
	return ok && !t.After(d)
}

// sameVersion reports whether If-Range names the file as it is: by its tag, or by the very date (RFC 9110 13.1.5). A file that was
// changed within the last second may have two versions with one date, so that the date is no strong validator then; tags are for that.
func sameVersion(value, tag string, modified time.Time) bool {
	if strings.HasPrefix(value, `"`) || strings.HasPrefix(value, "W/") {
		return value == tag
	}
	d, ok := parseDate(value)
	return ok && d.Equal(modified)
}

// parseDate reads a date in any of the three forms (RFC 9110 5.6.7).
func parseDate(s string) (time.Time, bool) {
	for _, form := range []string{httpDate, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		if t, err := time.Parse(form, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// rangeResult classifies a Range.
type rangeResult uint8

const (
	ignored       rangeResult = iota // another unit, several ranges, or nonsense: the answer is the whole
	satisfiable                      // one range
	unsatisfiable                    // behind the end
)

// parseRange reads Range of a file of a size. Several ranges get the whole, as RFC 9110 14.2 permits: a client that asks for many small
// ones costs more than they are worth.
func parseRange(value string, size int64) (first, last int64, r rangeResult) {
	spec, ok := strings.CutPrefix(strings.ToLower(value), "bytes=")
	if !ok || strings.Contains(spec, ",") {
		return 0, 0, ignored
	}
	from, to, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok {
		return 0, 0, ignored
	}
	if from == "" { // the last bytes
		n, ok := parseNumber(to)
		switch {
		case !ok:
			return 0, 0, ignored
		case n == 0 || size == 0:
			return 0, 0, unsatisfiable
		}
		return max(0, size-n), size - 1, satisfiable
	}
	first, ok = parseNumber(from)
	if !ok {
		return 0, 0, ignored
	}
	last = size - 1
	if to != "" {
		n, ok := parseNumber(to)
		if !ok || n < first {
			return 0, 0, ignored
		}
		last = min(last, n)
	}
	if first >= size {
		return 0, 0, unsatisfiable
	}
	return first, last, satisfiable
}

// parseNumber reads digits. A number beyond 63 bits is the largest.
func parseNumber(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 1<<63 - 1, true
	}
	return n, true
}
