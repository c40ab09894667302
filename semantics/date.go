package semantics

import (
	"strings"
	"time"
)

// ParseDate parses a date in one of the three forms of RFC 9110 5.6.7. Names of days and months, and the zone, may be in any case; all else
// has to be as the RFC has it: a sloppy reading of Expires would keep a response that its origin has withdrawn. The day of the week is
// not compared with the date.
func ParseDate(s string) (time.Time, bool) {
	switch {
	case len(s) == 29 && s[3:5] == ", " && isDay(s[:3]): // Sun, 06 Nov 1994 08:49:37 GMT
		return date(s[12:16], s[8:11], s[5:7], s[17:25], s[7] == ' ' && s[11] == ' ' && s[16] == ' ' && isZone(s[25:]))
	case len(s) == 24 && s[3] == ' ' && isDay(s[:3]): // Sun Nov  6 08:49:37 1994
		day := s[8:10]
		if day[0] == ' ' {
			day = s[9:10]
		}
		return date(s[20:], s[4:7], day, s[11:19], s[7] == ' ' && s[10] == ' ' && s[19] == ' ')
	}
	name, rest, ok := strings.Cut(s, ", ") // Sunday, 06-Nov-94 08:49:37 GMT
	if !ok || len(rest) != 22 || len(name) < 6 || !isDay(name[:3]) || !strings.EqualFold(name[len(name)-3:], "day") {
		return time.Time{}, false
	}
	t, ok := date("20"+rest[7:9], rest[3:6], rest[:2], rest[10:18], rest[2] == '-' && rest[6] == '-' && rest[9] == ' ' && isZone(rest[18:]))
	if ok && t.Year() >= 2070 { // that year would seem to be far ahead: it is the one of the last century
		t = t.AddDate(-100, 0, 0)
	}
	return t, ok
}

// isZone reports whether s is what follows the time of a date.
func isZone(s string) bool { return strings.EqualFold(s, " GMT") }

const days, months = "montuewedthufrisatsun", "janfebmaraprmayjunjulaugsepoctnovdec"

// isDay reports whether s is a day of the week, of three letters.
func isDay(s string) bool { return indexOf(days, s) >= 0 }

// indexOf returns the place of a name among those of three letters, in any case, or -1.
func indexOf(names, s string) int {
	for i := 0; i < len(names); i += 3 {
		if strings.EqualFold(names[i:i+3], s) {
			return i / 3
		}
	}
	return -1
}

// date joins the parts of a date. The clock is in the form 08:49:37.
func date(year, month, day, clock string, ok bool) (time.Time, bool) {
	if !ok || clock[2] != ':' || clock[5] != ':' {
		return time.Time{}, false
	}
	y, okYear := decimal(year)
	d, okDay := decimal(day)
	h, okHour := decimal(clock[:2])
	m, okMinute := decimal(clock[3:5])
	s, okSecond := decimal(clock[6:])
	n := indexOf(months, month)
	if !okYear || !okDay || !okHour || !okMinute || !okSecond || n < 0 || h > 23 || m > 59 || s > 60 {
		return time.Time{}, false
	}
	t := time.Date(y, time.Month(n+1), d, h, m, s, 0, time.UTC)
	return t, d > 0 && time.Date(y, time.Month(n+1), d, 0, 0, 0, 0, time.UTC).Day() == d
}

// decimal reads digits alone.
func decimal(s string) (n int, ok bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + int(s[i]-'0')
	}
	return n, s != ""
}
