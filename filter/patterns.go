package filter

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/filter/regex"
	"github.com/millrace/millrace/gpukern/expression"
	"github.com/millrace/millrace/gpukern/literal"
)

// Patterns are rules about payloads: each is a list of literals, of which any is a match, or a regular expression. It is
// immutable.
type Patterns struct {
	rules       []PatternRule
	list        []literal.Pattern
	set         *literal.Set
	programs    []expression.Pattern
	expressions *expression.Set
}

// PatternRule is a line of patterns. Matches call it by its place, counted from 1.
type PatternRule struct {
	Name string // "" where it has none
	Text string // the line without its comment
	Line int    // from 1
}

// Rules borrows the rules; rule n of a match is the one at n-1.
func (p *Patterns) Rules() []PatternRule { return p.rules }

// Set returns the compiled literals; nil where there are none.
func (p *Patterns) Set() *literal.Set {
	if p == nil {
		return nil
	}
	return p.set
}

// Expressions returns the compiled expressions; nil where there are none.
func (p *Patterns) Expressions() *expression.Set { return p.expressions }

// Programs borrows the expressions as they were read.
func (p *Patterns) Programs() []expression.Pattern { return p.programs }

// List borrows the literals as they were read: what a reference takes.
func (p *Patterns) List() []literal.Pattern { return p.list }

// ParsePatterns reads what to look for in payloads, a rule on each line; what follows a "#" is comment.
//
//	"TEXT" ["TEXT"]... [nocase] [name "NAME"]
//	/EXPRESSION/[FLAGS] [name "NAME"]
//
//	"GET /admin" nocase name "admin page"
//	"|90 90 90 90|" "%u9090"
//	"say \"hello\""
//	/^user=\w{1,20}&pass=[^&]*'/i name "quote in a password"
//
// TEXT has 3 to 64 bytes; bytes between two bars are hexadecimal, and \" \\ and \| are the characters
// themselves. nocase lets ASCII letters match in either case.
//
// EXPRESSION is one of Perl's about bytes (package filter/regex), of those that an automaton matches: without
// back-references, look-arounds and atomic groups, and with a table below expression.MaxTable. FLAGS are i, m, s and x.
//
// name is the text's, for errors. ParsePatterns returns every error in the source, joined, up to maxMistakes; each is a
// *SyntaxError. A text longer than MaxText, or of more than literal.MaxPatterns literals, is rejected.
func ParsePatterns(name, text string) (*Patterns, error) {
	ps := &Patterns{}
	err := lines(name, text, "patterns", uncommentPattern, func(p *parser, line int, source string) error {
		if strings.HasPrefix(p.peek(), "/") {
			return ps.expression(p, line, source)
		}
		list, rule, err := p.patterns()
		if err != nil {
			return err
		}
		if len(ps.list)+len(list) > literal.MaxPatterns {
			p.at = 0
			return fmt.Errorf("a list has at most %d patterns", literal.MaxPatterns)
		}
		rule.Line, rule.Text = line, strings.TrimSpace(uncommentPattern(source))
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
	if err := ps.compile(name); err != nil {
		return nil, err
	}
	return ps, nil
}

// compile builds the sets.
func (ps *Patterns) compile(name string) (err error) {
	if len(ps.list) > 0 {
		if ps.set, err = literal.Compile(ps.list); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(ps.programs) == 0 {
		return nil
	}
	if ps.expressions, err = expression.Compile(ps.programs); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var wrong []error
	for _, n := range ps.expressions.Refused() {
		r := &ps.rules[n-1]
		wrong = append(wrong, &SyntaxError{
			Name: name, Line: r.Line, Column: 1, Source: r.Text,
			Msg: "the automaton of the expression is too large; counts in braces and .* before other texts make it grow",
		})
		if len(wrong) == maxMistakes {
			break
		}
	}
	return errors.Join(wrong...)
}

// expression reads a line with an expression.
func (ps *Patterns) expression(p *parser, line int, source string) error {
	p.rest = strings.TrimLeft(p.rest, " \t")
	p.at = p.size - len(p.rest)
	end := slashBehind(p.rest)
	if end < 0 {
		return errors.New("the expression has no end: a slash is missing")
	}
	body := p.rest[1:end]
	p.rest = p.rest[end+1:]
	var flags regex.Flags
	for len(p.rest) > 0 && p.rest[0] != ' ' && p.rest[0] != '\t' {
		if strings.IndexByte("imsx", p.rest[0]) < 0 {
			return fmt.Errorf("option %q of the expression is not known; there are i, m, s and x", p.rest[:1])
		}
		flags |= regex.FlagOf(p.rest[0])
		p.rest = p.rest[1:]
	}
	r, err := regex.Compile(strings.ReplaceAll(body, `\/`, "/"), flags)
	if err != nil {
		return err
	}
	program, ok := r.Program()
	if !ok {
		return errors.New("the expression has no automaton: back-references, look-arounds, atomic groups and possessive repetitions have none")
	}
	if len(ps.programs) == expression.MaxPatterns {
		return fmt.Errorf("a list has at most %d expressions", expression.MaxPatterns)
	}
	rule := PatternRule{Line: line, Text: strings.TrimSpace(uncommentPattern(source))}
	if p.took("name") {
		if rule.Name, err = p.quoted(); err != nil {
			return err
		}
	}
	if w := p.word(); w != "" {
		return fmt.Errorf("%q is one word too many; a line is /EXPRESSION/[FLAGS] [name \"NAME\"]", w)
	}
	ps.rules = append(ps.rules, rule)
	ps.programs = append(ps.programs, expression.Pattern{Program: program, Rule: uint32(len(ps.rules))})
	return nil
}

// slashBehind returns the index of the slash that ends an expression, which begins with one; -1 where it is missing. One behind
// a backslash is part of it.
func slashBehind(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '/':
			return i
		}
	}
	return -1
}

// uncommentPattern is uncommentEscaped for lines that may have an expression.
func uncommentPattern(line string) string {
	text := strings.TrimLeft(line, " \t")
	if !strings.HasPrefix(text, "/") {
		return uncommentEscaped(line)
	}
	end := slashBehind(text)
	if end < 0 {
		return line
	}
	end += len(line) - len(text)
	return line[:end] + uncommentEscaped(line[end:])
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
		return nil, rule, errors.New(`a pattern begins with a text in double quotes, or with an expression between slashes`)
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
