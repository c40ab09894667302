package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The words of a table that counts requests, and of the sample that reads a counter: sc_http_req_rate(0), or sc0_http_req_rate.
var (
	storedRate = regexp.MustCompile(`^http_req_rate\(([0-9]+[a-z]*)\)$`)
	readRate   = regexp.MustCompile(`^sc(?:_http_req_rate\(([0-2])\)|([0-2])_http_req_rate)$`)
)

// longestRate and mostRate bound what a limit of the gateway has.
const (
	longestRate = 24 * time.Hour
	mostRate    = 1_000_000
)

// rateDeny translates the refusal of clients that send more requests than a number in a period, if no other condition is with it:
//
//	stick-table type ip size 100k expire 30s store http_req_rate(10s)
//	http-request track-sc0 src
//	http-request deny if { sc_http_req_rate(0) gt 100 }
//
// It reports whether the line is one. The counter has to count each request of the frontend by its client before the line; a limit of
// the gateway counts for routes, so a refusal of some requests alone by a count of all is none.
func (f *frontend) rateDeny(x *line) bool {
	if f.p.kind == "backend" || f.h.ledTo(f.p) { // a limit of a frontend would not count what others send here
		return false
	}
	counter, most, acl, ok := f.overRate(x)
	if !ok {
		return false
	}
	track := f.tracking(x, counter)
	if track == nil {
		return false
	}
	table, every := f.h.rateTable(f.p, track.after("table"))
	if table == nil {
		return false
	}
	if f.reached == nil { // a section listen is read as a backend first
		return len(f.p.all("bind")) > 0
	}
	if name := f.h.rateLimit(x, most, every); !slices.Contains(f.limits, name) {
		f.limits = append(f.limits, name)
	}
	led := f.h.l
	led.replaced(table.at, "rate_limits[]")
	led.replaced(track.at, "rate_limits[].key")
	led.ok(acl, "rate_limits[].requests")
	led.changed(x.at, "routes[].rate_limits", fmt.Sprintf("HAProxy counts the requests of the last %v, refused ones too; the gateway counts those that it serves: %d at once, and then one each %v. Beyond it clients get 429",
		every, most, (every/time.Duration(most)).Round(time.Microsecond)))
	return true
}

// ledTo reports whether a frontend leads to a section.
func (h *haproxy) ledTo(p *proxy) bool {
	for _, from := range h.fronts {
		for _, l := range from.lines {
			if (l.words[0] == "use_backend" || l.words[0] == "default_backend") && (l.arg(1) == p.name || strings.Contains(l.arg(1), "%")) {
				return true
			}
		}
	}
	return false
}

// overRate reads a condition that is one comparison of a counter with a number, and nothing else: the most requests that it lets pass.
func (f *frontend) overRate(x *line) (counter string, most int64, acl pos, ok bool) {
	i := slices.Index(x.words, "if")
	if i < 0 {
		return "", 0, pos{}, false
	}
	list := terms(x.words[i+1:])
	if len(list) != 1 || list[0][0] == "!" {
		return "", 0, pos{}, false
	}
	tests := f.p.testsOf(list[0])
	if len(tests) != 1 || len(tests[0]) != 3 {
		return "", 0, pos{}, false
	}
	for _, l := range f.p.lines {
		if list[0][1] != "{" && l.words[0] == "acl" && l.arg(1) == list[0][1] {
			acl = l.at
		}
	}
	m := readRate.FindStringSubmatch(tests[0][0])
	if m == nil {
		return "", 0, pos{}, false
	}
	most = int64(atoi(tests[0][2]))
	switch tests[0][1] {
	case "gt":
	case "ge":
		most--
	default:
		return "", 0, pos{}, false
	}
	return m[1] + m[2], most, acl, most > 0 && most <= mostRate
}

// tracking returns the line before another one that has a counter count every request by its client, nil where there is none, or where
// another line may give the counter another key.
func (f *frontend) tracking(x *line, counter string) (track *line) {
	before := true
	for _, l := range f.p.lines {
		if l == x {
			before = false
		}
		w := l.words
		if len(w) > 2 && w[0] == "tcp-request" && (w[1] == "connection" || w[1] == "content" || w[1] == "session") {
			w = w[1:]
		} else if w[0] != "http-request" {
			continue
		}
		if len(w) < 2 || w[1] != "track-sc"+counter {
			continue
		}
		whole := len(w) == 3 || len(w) == 5 && w[3] == "table"
		if !before || track != nil || !whole || w[2] != "src" {
			return nil
		}
		track = l
	}
	if track != nil && f.h.editedBefore(f.p, x.words)[editedClient] { // by set-src
		return nil
	}
	return track
}

// rateTable returns the line of a table of rates by address, and the period: of a section, or of the backend that a line names.
func (h *haproxy) rateTable(p *proxy, name string) (table *line, every time.Duration) {
	if name != "" && name != p.name {
		if p = h.backends[name]; p == nil {
			return nil, 0
		}
	}
	table = p.last("stick-table")
	if table == nil {
		return nil, 0
	}
	if kind := table.after("type"); kind != "ip" && kind != "ipv6" {
		return nil, 0
	}
	for _, stored := range strings.Split(table.after("store"), ",") {
		if m := storedRate.FindStringSubmatch(stored); m != nil {
			var ok bool
			if every, ok = haproxyTime(m[1]); ok && every >= time.Second && every <= longestRate {
				return table, every
			}
		}
	}
	return nil, 0
}

// rateLimit returns the name of the limit of a line, which is made once.
func (h *haproxy) rateLimit(x *line, most int64, every time.Duration) string {
	for _, l := range h.m.limits {
		if l.at == x.at {
			return l.name
		}
	}
	l := &rateLimit{at: x.at, name: h.m.unique("limit", "clients"), requests: most, interval: every, burst: most, prefix6: 128}
	h.m.limits = append(h.m.limits, l)
	return l.name
}
