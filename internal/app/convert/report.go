package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Language is the language of a source.
type Language string

// The values of Language.
const (
	Nginx   Language = "nginx"
	HAProxy Language = "haproxy"
	Caddy   Language = "caddyfile"
)

// Languages are all values of Language.
var Languages = []Language{Nginx, HAProxy, Caddy}

// Result states how a directive of the source stands in the output.
type Result string

// The values of Result, in the order of their weight: where a directive is used several times, the last one counts.
const (
	Unneeded   Result = "unneeded"   // it has no counterpart, and needs none: Reason has why
	Translated Result = "translated" // with the same effect
	Changed    Result = "changed"    // with a difference, which Reason has
	Left       Result = "left"       // it is not in the output
)

var weights = map[Result]int{Unneeded: 0, Translated: 1, Changed: 2, Left: 3}

// Line is the result of one directive.
type Line struct {
	File      string `json:"file"`
	Line      int    `json:"line"`
	Column    int    `json:"column"`
	Directive string `json:"directive"`
	Result    Result `json:"result"`
	Keys      string `json:"keys,omitempty"`   // of the gateway's configuration
	Reason    string `json:"reason,omitempty"` // of results but Translated
	Remedy    string `json:"remedy,omitempty"` // of what is left out
	Closed    bool   `json:"closed,omitempty"` // it is left out, and what it may guard is not served
}

// Report has the result of each directive, in the order of the source.
type Report struct {
	Source     string   `json:"source"`
	Language   Language `json:"language"`
	Translated int      `json:"translated"`
	Changed    int      `json:"changed"`
	Left       int      `json:"left"`
	Unneeded   int      `json:"unneeded"`
	Closed     int      `json:"closed"` // of those that are left out
	Lines      []Line   `json:"lines"`
	Config     string   `json:"config,omitempty"` // the file of the gateway
}

// pos is a place in a source. The zero pos is none.
type pos struct {
	file         int // index in source.files
	line, column int
}

// mostText bounds the text of a directive in the report.
const mostText = 100

// ledger collects results while a source is translated.
type ledger struct {
	src   *source
	lines map[pos]*Line
}

func newLedger(src *source) *ledger { return &ledger{src: src, lines: map[pos]*Line{}} }

// enter adds a directive without a result: one that stays so is left out.
func (l *ledger) enter(at pos, text string) {
	if l.lines[at] == nil {
		l.lines[at] = &Line{File: l.src.name(at), Line: at.line, Column: at.column, Directive: shorten(text)}
	}
}

// shorten returns the first characters of a text in one line.
func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > mostText {
		return string(r[:mostText-3]) + "..."
	}
	return text
}

// result notes the result of the directive at a place. A weightier one replaces another; equal ones are joined.
func (l *ledger) result(at pos, result Result, keys, reason, remedy string) {
	line := l.lines[at]
	switch {
	case line == nil: // of the front's own
		return
	case line.Result == "" || weights[result] > weights[line.Result]:
		line.Result, line.Reason, line.Remedy = result, reason, remedy
		line.Keys = cmp.Or(keys, line.Keys)
	case result == line.Result:
		line.Keys, line.Reason, line.Remedy = joined(line.Keys, keys), joined(line.Reason, reason), joined(line.Remedy, remedy)
	}
}

// replaced notes that a directive is translated after all, by another that depends on it.
func (l *ledger) replaced(at pos, keys string) {
	if line := l.lines[at]; line != nil && !line.Closed {
		line.Result, line.Keys, line.Reason, line.Remedy = Translated, keys, "", ""
	}
}

// unreached notes that a directive has been translated and is not in the output, since no request would reach it.
func (l *ledger) unreached(at pos) {
	if line := l.lines[at]; line != nil && !line.Closed && line.Result != Left {
		line.Result, line.Keys, line.Reason, line.Remedy = Unneeded, "", "an earlier line holds for all of its requests", ""
	}
}

// mostJoined bounds a text that several results are joined in.
const mostJoined = 300

func joined(a, b string) string {
	switch {
	case a == "" || b == "":
		return a + b
	case strings.Contains(a, b) || len(a)+len(b) > mostJoined:
		return a
	}
	return a + "; " + b
}

func (l *ledger) ok(at pos, keys string)              { l.result(at, Translated, keys, "", "") }
func (l *ledger) changed(at pos, keys, reason string) { l.result(at, Changed, keys, reason, "") }
func (l *ledger) unneeded(at pos, reason string)      { l.result(at, Unneeded, "", reason, "") }
func (l *ledger) left(at pos, reason, remedy string)  { l.result(at, Left, "", reason, remedy) }

// report sorts the results by their places and counts them. Directives that no front has looked at are left out.
func (l *ledger) report(language Language) *Report {
	places := make([]pos, 0, len(l.lines))
	for at := range l.lines {
		places = append(places, at)
	}
	slices.SortFunc(places, func(a, b pos) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
	r := &Report{Source: l.src.files[0].name, Language: language, Lines: []Line{}}
	for _, at := range places {
		line := *l.lines[at]
		if line.Result == "" {
			line.Result, line.Reason = Left, "the converter does not know it, or not here"
			line.Remedy = "see docs/moving-in.md for what is translated"
		}
		if line.Closed {
			r.Closed++
		}
		switch line.Result {
		case Translated:
			r.Translated++
		case Changed:
			r.Changed++
		case Unneeded:
			r.Unneeded++
		default:
			r.Left++
		}
		r.Lines = append(r.Lines, line)
	}
	return r
}

// words are the results in a text.
var words = map[Result]string{Unneeded: "not needed", Translated: "translated", Changed: "changed", Left: "LEFT OUT"}

// Text returns the report, a line for each directive: with all false only those that are changed or left out.
func (r *Report) Text(all bool) string {
	var s strings.Builder
	for _, l := range r.Lines {
		if !all && weights[l.Result] < weights[Changed] {
			continue
		}
		word := words[l.Result]
		if l.Closed {
			word += ", CLOSED"
		}
		fmt.Fprintf(&s, "%s:%d:%d: %s: %s", l.File, l.Line, l.Column, word, l.Directive)
		if l.Keys != "" {
			fmt.Fprintf(&s, " -> %s", l.Keys)
		}
		if l.Reason != "" {
			fmt.Fprintf(&s, ": %s", l.Reason)
		}
		if l.Remedy != "" {
			fmt.Fprintf(&s, " (%s)", l.Remedy)
		}
		s.WriteByte('\n')
	}
	closed := ""
	if r.Closed > 0 {
		closed = fmt.Sprintf(" (%d close what they guard)", r.Closed)
	}
	fmt.Fprintf(&s, "%d directives: %d translated, %d with a difference, %d left out%s, %d not needed\n",
		len(r.Lines), r.Translated, r.Changed, r.Left, closed, r.Unneeded)
	return s.String()
}
