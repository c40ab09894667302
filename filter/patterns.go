package filter

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/gpukern/literal"
)

// Patterns are rules about payloads: each is a list of literals, of which any is a match. It is immutable.
type Patterns struct {
	rules []PatternRule
	list  []literal.Pattern
	set   *literal.Set
}

// PatternRule is a line of patterns. Matches call it by its place, counted from 1.
type PatternRule struct {
	Name string // "" where it has none
	Text string // the line without its comment
	Line int    // from 1
}

// Rules borrows the rules; rule n of a match is the one at n-1.
func (p *Patterns) Rules() []PatternRule { return p.rules }

// Set returns the compiled literals.
func (p *Patterns) Set() *literal.Set { return p.set }

// List borrows the literals as they were read: what a reference takes.
func (p *Patterns) List() []literal.Pattern { return p.list }

// ParsePatterns reads literals to look for in payloads, a rule on each line; what follows a "#" is comment.
//
//	"TEXT" ["TEXT"]... [nocase] [name "NAME"]
//
//	"GET /admin" nocase name "admin page"
//	"|90 90 90 90|" "%u9090"
//	"say \"hello\""
//
// TEXT has 3 to 64 bytes; bytes between two bars are hexadecimal, and \" \\ and \| are the characters
// themselves. nocase lets ASCII letters match in either case.
//
// name is the text's, for errors. ParsePatterns returns every error in the source, joined, up to maxMistakes; each is a
// *SyntaxError. A text longer than MaxText, or of more than literal.MaxPatterns literals, is rejected.
func ParsePatterns(name, text string) (*Patterns, error) {
	ps := &Patterns{}
	err := lines(name, text, "patterns", uncommentEscaped, func(p *parser, line int, source string) error {
		list, rule, err := p.patterns()
		if err != nil {
			return err
		}
		if len(ps.list)+len(list) > literal.MaxPatterns {
			p.at = 0
			return fmt.Errorf("a list has at most %d patterns", literal.MaxPatterns)
		}
		rule.Line, rule.Text = line, strings.TrimSpace(uncommentEscaped(source))
		ps.rules = append(ps.rules, rule)
		for i := range list {
			list[i].Rule = uint32(len(ps.rules))
		}
		ps.list = append(ps.list, list...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	ps.set, err = literal.Compile(ps.list)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return ps, nil
}

// uncommentEscaped is uncomment for texts in which a quote may stand behind a backslash.
func uncommentEscaped(line string) string {
	quoted := false
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\\' && quoted:
			i++
		case line[i] == '"':
			quoted = !quoted
		case line[i] == '#' && !quoted:
			return line[:i]
		}
	}
	return line
}

// patterns reads a whole line.
func (p *parser) patterns() (list []literal.Pattern, rule PatternRule, err error) {
	for strings.HasPrefix(p.peek(), `"`) {
		b, err := p.literal()
		if err != nil {
			return nil, rule, err
		}
		list = append(list, literal.Pattern{Bytes: b})
	}
	if len(list) == 0 {
		p.word()
		return nil, rule, errors.New(`a pattern begins with a text in double quotes`)
	}
	if p.took("nocase") {
		for i := range list {
			list[i].NoCase = true
		}
	}
	if p.took("name") {
		if rule.Name, err = p.quoted(); err != nil {
			return nil, rule, err
		}
	}
	if w := p.word(); w != "" {
		if s := didYouMean(w, "nocase", "name"); s != "" {
			return nil, rule, fmt.Errorf("%q is not known%s", w, s)
		}
		return nil, rule, fmt.Errorf("%q is one word too many; a line is \"TEXT\"... [nocase] [name \"NAME\"]", w)
	}
	return list, rule, nil
}

// literal reads a text in double quotes and returns its bytes.
func (p *parser) literal() ([]byte, error) {
	p.rest = strings.TrimLeft(p.rest, " \t")
	start := p.size - len(p.rest)
	p.at = start
	var b []byte
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; c {
		case '"':
			p.rest = p.rest[i+1:]
			if len(b) < literal.MinLen || len(b) > literal.MaxLen {
				return nil, fmt.Errorf("the text has %d bytes; it may have %d to %d", len(b), literal.MinLen, literal.MaxLen)
			}
			return b, nil
		case '\\':
			i++
			if i == len(p.rest) || !strings.ContainsRune(`"\|`, rune(p.rest[i])) {
				p.at = start + i - 1
				return nil, errors.New(`behind a backslash stands ", \ or |`)
			}
			b = append(b, p.rest[i])
		case '|':
			code, _, closed := strings.Cut(p.rest[i+1:], "|")
			bytes, err := hex.DecodeString(strings.ReplaceAll(code, " ", ""))
			if !closed || err != nil {
				p.at = start + i
				return nil, errors.New("between two bars stand bytes of two hexadecimal digits, such as |0d 0a|")
			}
			b = append(b, bytes...)
			i += len(code) + 1
		default:
			b = append(b, c)
		}
	}
	return nil, errors.New("the text has no end: a double quote is missing")
}
