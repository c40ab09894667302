package signature

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/excerpt"
)

// MaxText is the longest text of rules that Parse reads, in bytes.
const MaxText = 256 << 20

// File is the result of parsing one text.
type File struct {
	Name     string
	Rules    []*Rule        // those that load
	Read     int            // active rules: lines that are no comment
	Disabled int            // rules that stand behind a "#"
	Options  map[string]int // of active rules: how many rules have the keyword
	Missing  map[string]int // unsupported keywords: how many rules are not loaded for each
	Errors   []*Error       // of wrong rules, in the order of the text; perhaps several of a rule
	Skipped  []*Error       // of rules with unsupported options, in the order of the text

	Wrong       int // rules that have Errors; 1 where the text as a whole is wrong
	Unsupported int // rules that are Skipped

	lines map[[2]uint32]int // of the rules by gid and sid
}

// Parse reads rules, one on a line; a line that ends in "\" goes on in the next, and one that begins with "#"
// is comment. name is the text's, for errors. A rule with an error is left out; the others are returned.
func Parse(name, text string, cfg *Config) *File {
	f := &File{Name: name, Options: map[string]int{}, Missing: map[string]int{}, lines: map[[2]uint32]int{}}
	if len(text) > MaxText {
		f.Wrong = 1
		f.Errors = append(f.Errors, &Error{
			Name: name, Line: 1, Column: 1,
			Msg: fmt.Sprintf("%d bytes of rules, at most %d are read", len(text), MaxText),
		})
		return f
	}
	if line, column, binary := excerpt.Binary(text); binary {
		f.Wrong = 1
		f.Errors = append(f.Errors, &Error{Name: name, Line: line, Column: column, Msg: excerpt.NotText + "rules"})
		return f
	}
	if cfg == nil {
		cfg = &Config{}
	}
	e := cfg.environment()
	for line := 1; text != ""; {
		var t source
		t, text = logicalLine(text, line)
		line += len(t.starts)
		f.add(e, t)
	}
	return f
}

// source is one rule as it was written: a line, or several that were joined.
type source struct {
	text   string
	line   int   // of its first byte
	starts []int // offsets in text where its lines begin
}

// logicalLine cuts the first line off text, with those that continue it.
func logicalLine(text string, line int) (source, string) {
	t := source{line: line}
	for {
		var one string
		one, text, _ = strings.Cut(text, "\n")
		one = strings.TrimSuffix(one, "\r")
		t.starts = append(t.starts, len(t.text))
		head, more := strings.CutSuffix(one, `\`)
		if len(t.starts) == 1 {
			t.text = head // shares the bytes of text
		} else {
			t.text += head
		}
		if !more || text == "" {
			return t, text
		}
	}
}

// at returns the line and column of an offset, and the text of that line.
func (t *source) at(off int) (line, column int, text string) {
	i := len(t.starts) - 1
	for i > 0 && t.starts[i] > off {
		i--
	}
	end := len(t.text)
	if i+1 < len(t.starts) {
		end = t.starts[i+1]
	}
	return t.line + i, off - t.starts[i] + 1, t.text[t.starts[i]:end]
}

// add parses one line into f.
func (f *File) add(e *environment, t source) {
	trimmed := strings.TrimSpace(t.text)
	if rest, ok := strings.CutPrefix(trimmed, "#"); ok || trimmed == "" {
		if isRule(strings.TrimLeft(rest, "# \t")) {
			f.Disabled++
		}
		return
	}
	f.Read++
	p := &ruleParser{env: e, src: t, rule: &Rule{File: f.Name, Line: t.line, Text: trimmed, GID: 1}}
	p.parse()
	if id := [2]uint32{p.rule.GID, p.rule.SID}; p.rule.SID > 0 {
		if before := f.lines[id]; before > 0 {
			p.fail(0, fmt.Errorf("sid %d is that of the rule in line %d too", p.rule.SID, before))
		}
		f.lines[id] = t.line
	}
	for k := range p.seen {
		f.Options[k]++
	}
	for _, err := range p.errs {
		err.Name, err.SID = f.Name, p.rule.SID
	}
	switch {
	case len(p.wrong()) > 0:
		f.Wrong++
		f.Errors = append(f.Errors, p.wrong()...)
	case len(p.errs) > 0:
		counted := map[string]bool{}
		for _, err := range p.errs {
			if !counted[err.Option] {
				counted[err.Option] = true
				f.Missing[err.Option]++
			}
		}
		f.Unsupported++
		f.Skipped = append(f.Skipped, p.errs...)
	default:
		f.Rules = append(f.Rules, p.rule)
	}
}

// isRule reports whether a comment is a rule that was disabled.
func isRule(s string) bool {
	word, rest, ok := strings.Cut(s, " ")
	if _, known := actions[word]; !ok || !known {
		return false
	}
	return strings.Contains(rest, "(") && strings.Contains(rest, "sid")
}
