package semantics

import (
	"strconv"
	"strings"
)

// MatchesTag reports whether a list of entity tags has one: by the weak comparison also one that is marked as weak (RFC 9110 8.8.3.2).
// The strong comparison never matches a weak tag.
func MatchesTag(list, tag string, weak bool) bool {
	if strings.TrimSpace(list) == "*" {
		return true
	}
	ofWeak := strings.HasPrefix(tag, "W/")
	if ofWeak {
		tag = tag[2:]
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
		if s[:end+2] == tag && (weak || !isWeak && !ofWeak) {
			return true
		}
		s = s[end+2:]
	}
	return false
}

// RangeResult classifies a Range.
type RangeResult uint8

// Values of RangeResult.
const (
	RangeIgnored       RangeResult = iota // another unit, several ranges, or nonsense: the answer is the whole
	RangeSatisfiable                      // one range
	RangeUnsatisfiable                    // behind the end
)

// ParseRange parses Range for content of a size. Several ranges get the whole, as RFC 9110 14.2 permits: a client that asks for many
// small ones costs more than they are worth.
func ParseRange(value string, size int64) (first, last int64, r RangeResult) {
	if len(value) < 6 || !strings.EqualFold(value[:6], "bytes=") || strings.Contains(value, ",") {
		return 0, 0, RangeIgnored
	}
	from, to, ok := strings.Cut(strings.TrimSpace(value[6:]), "-")
	if !ok {
		return 0, 0, RangeIgnored
	}
	if from == "" { // the last bytes
		n, ok := position(to)
		switch {
		case !ok:
			return 0, 0, RangeIgnored
		case n == 0 || size == 0:
			return 0, 0, RangeUnsatisfiable
		}
		return max(0, size-n), size - 1, RangeSatisfiable
	}
	first, ok = position(from)
	if !ok {
		return 0, 0, RangeIgnored
	}
	last = size - 1
	if to != "" {
		n, ok := position(to)
		if !ok || n < first {
			return 0, 0, RangeIgnored
		}
		last = min(last, n)
	}
	if first >= size {
		return 0, 0, RangeUnsatisfiable
	}
	return first, last, RangeSatisfiable
}

// position reads digits. A number beyond 63 bits is the largest.
func position(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 1<<63 - 1, true
	}
	return n, true
}
