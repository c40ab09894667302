package signature

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/suggest"
)

// ruleParser reads one rule.
type ruleParser struct {
	env  *environment
	src  source
	rule *Rule
	errs []*Error
	seen map[string]bool // keywords

	buffer     Buffer // of the contents that follow
	transforms []Transform
	last       *Content // what modifiers are about
	lastPart   int      // the part of the test before; -1 behind the name of a buffer

	contentPart, contentTest int // where last is

	vars []string // of byte_extract and byte_math, by their number
	fast bool     // a content is the fast pattern already

	keyword string // of the option that is read
	at      int    // of its value
}

// fail records an error at an offset of the line.
func (p *ruleParser) fail(at int, err error) {
	if l := (located{}); errors.As(err, &l) {
		at += l.at
	}
	e := &Error{Msg: err.Error()}
	e.Line, e.Column, e.Source = p.src.at(min(at, len(p.src.text)))
	var u unsupported
	if errors.As(err, &u) {
		e.Option = u.what
	}
	p.errs = append(p.errs, e)
}

// wrong returns the errors that are not about unsupported options.
func (p *ruleParser) wrong() []*Error {
	return slices.DeleteFunc(slices.Clone(p.errs), func(e *Error) bool { return e.Option != "" })
}

// parse reads the whole line.
func (p *ruleParser) parse() {
	p.seen, p.lastPart = map[string]bool{}, -1
	body := p.header()
	if body < 0 {
		return
	}
	p.options(body)
	p.finish()
}

// header reads what stands before the options, and returns the offset of the options or -1.
func (p *ruleParser) header() int {
	text := p.src.text
	open := strings.IndexByte(text, '(')
	if open < 0 {
		p.fail(len(text), errors.New("a rule has its options in parentheses, behind the header"))
		return -1
	}
	words, at := headerWords(text[:open])
	if len(words) > 0 {
		if a, ok := actions[words[0]]; ok {
			p.rule.Action = a
		} else {
			p.fail(at[0], fmt.Errorf("a rule begins with alert, pass, drop or reject, not %.60q%s", words[0],
				didYouMean(words[0], slices.Sorted(maps.Keys(actions)))))
		}
	}
	if len(words) != 7 {
		p.fail(open, fmt.Errorf("the header has %d words; it is ACTION PROTOCOL SOURCE PORTS -> DESTINATION PORTS", len(words)))
		return open + 1
	}
	var err error
	if p.rule.Protocol, err = parseProtocol(words[1]); err != nil {
		p.fail(at[1], err)
	}
	for _, a := range []struct {
		word int
		to   **Addrs
	}{{2, &p.rule.Src}, {5, &p.rule.Dst}} {
		if *a.to, err = p.env.addrList(words[a.word]); err != nil {
			p.fail(at[a.word], err)
		}
	}
	for _, a := range []struct {
		word int
		to   **Ports
	}{{3, &p.rule.SrcPorts}, {6, &p.rule.DstPorts}} {
		if *a.to, err = p.env.portList(words[a.word]); err != nil {
			p.fail(at[a.word], err)
		}
	}
	switch words[4] {
	case "->":
	case "<>":
		p.rule.Both = true
	default:
		p.fail(at[4], fmt.Errorf("the direction is -> or <>, not %q", words[4]))
	}
	return open + 1
}

// headerWords cuts a header at blanks outside of brackets.
func headerWords(s string) (words []string, at []int) {
	depth, from := 0, -1
	for i := 0; i <= len(s); i++ {
		if i < len(s) {
			switch s[i] {
			case '[':
				depth++
			case ']':
				depth--
			}
		}
		if blank := i == len(s) || depth <= 0 && (s[i] == ' ' || s[i] == '\t'); blank && from >= 0 {
			words, at = append(words, s[from:i]), append(at, from)
			from = -1
		} else if !blank && from < 0 {
			from = i
		}
	}
	return words, at
}

// options reads keyword:value; pairs from an offset up to the closing parenthesis.
func (p *ruleParser) options(from int) {
	text := p.src.text
	for i := from; ; {
		for i < len(text) && (text[i] == ' ' || text[i] == '\t') {
			i++
		}
		if i == len(text) {
			p.fail(i, errors.New("the closing parenthesis is missing"))
			return
		}
		if text[i] == ')' {
			if strings.TrimSpace(text[i+1:]) != "" {
				p.fail(i+1, errors.New("more text follows the closing parenthesis"))
			}
			return
		}
		end := optionEnd(text, i)
		if end < 0 {
			p.fail(i, errors.New("an option ends with a semicolon"))
			return
		}
		p.option(i, text[i:end])
		i = end + 1
	}
}

// optionEnd returns the offset of the semicolon that ends the option at from, or -1. One behind a backslash ends
// nothing; quotes do not count: Suricata's own reader knows none, and rules depend on that.
func optionEnd(text string, from int) int {
	for i := from; i < len(text); i++ {
		if text[i] == ';' && text[i-1] != '\\' {
			return i
		}
	}
	return -1
}

// option reads one option without its semicolon.
func (p *ruleParser) option(at int, text string) {
	name, value, has := strings.Cut(text, ":")
	lead := len(value) - len(strings.TrimLeft(value, " \t"))
	p.at = at + len(name) + 1 + lead
	value = strings.TrimSpace(value)
	p.keyword = strings.TrimSpace(name)
	k, ok := keywords[p.keyword]
	if !ok {
		if known[p.keyword] {
			p.seen[p.keyword] = true
			p.fail(at, unsupported{p.keyword})
			return
		}
		p.fail(at, fmt.Errorf("%q is not a keyword%s", p.keyword, didYouMean(p.keyword, slices.Sorted(maps.Keys(keywords)))))
		return
	}
	p.seen[p.keyword] = true
	switch {
	case k.needs && (!has || value == ""):
		p.fail(at, fmt.Errorf("%s has a value: %s:...;", p.keyword, p.keyword))
		return
	case k.bare && has:
		p.fail(p.at, fmt.Errorf("%s has no value", p.keyword))
		return
	}
	if err := k.read(p, value); err != nil {
		p.fail(p.at, err)
	}
}

// finish checks the rule as a whole, once all options are read.
func (p *ruleParser) finish() {
	r := p.rule
	if r.SID == 0 {
		p.fail(len(p.src.text)-1, errors.New("a rule has a sid"))
	}
	if r.Priority == 0 {
		r.Priority = 3
		if c, ok := p.env.classes[r.Class]; ok {
			r.Priority = c.Priority
		}
	}
	for i := range r.Parts {
		for j := range r.Parts[i].Tests {
			if c := r.Parts[i].Tests[j].Content; c != nil {
				if err := c.check(); err != nil {
					p.fail(c.at, err)
				}
			}
		}
		if err := r.Parts[i].check(r.payloadSizes()); err != nil {
			p.fail(0, err)
		}
	}
	if err := r.checkPacket(); err != nil {
		p.fail(0, err)
	}
	if r.FTPBounce {
		p.bounce()
	}
	p.pairs()
	if d := r.directions(); d == 0 {
		p.fail(0, errors.New("the rule names buffers of requests and of responses, which never come together"))
	} else if f := r.Flow.Dir; f != 0 && f&d == 0 {
		p.fail(0, errors.New("the rule's flow is of one direction, its buffers are of the other"))
	}
}

func didYouMean(w string, known []string) string {
	if best := suggest.Nearest(w, 2, known...); best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return ""
}

// unquoted returns what stands between the quotes of a value, and whether "!" stood before them.
func unquoted(value string) (text string, not bool, at int, err error) {
	rest, not := strings.CutPrefix(value, "!")
	trimmed := strings.TrimLeft(rest, " \t")
	at = len(value) - len(trimmed)
	body, ok := strings.CutPrefix(trimmed, `"`)
	body, closed := strings.CutSuffix(body, `"`)
	if !ok || !closed {
		return "", not, at, wrongAt(at, "a text stands in double quotes")
	}
	return body, not, at + 1, nil
}

// number parses a decimal or, behind "0x", a hexadecimal number.
func number(s string) (uint64, error) {
	s = strings.TrimSpace(s)
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		if h, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
			n, err = strconv.ParseUint(h, 16, 64)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	return n, nil
}

// signed parses a decimal number with or without a sign.
func signed(s string) (int, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	return int(n), nil
}

// rangeOf parses N, !N, <N, >N, <=N, >=N, N<>M and N-M, which are between exclusive bounds.
func rangeOf(s string, most uint64) (r Range, err error) {
	s = strings.ReplaceAll(s, " ", "")
	body, not := strings.CutPrefix(s, "!")
	r.Not = not
	sep := "<>"
	if !strings.Contains(body, sep) {
		sep = "-"
	}
	if lo, hi, ok := strings.Cut(body, sep); ok && lo != "" {
		a, err1 := number(lo)
		b, err2 := number(hi)
		if err := errors.Join(err1, err2); err != nil {
			return r, err
		}
		if a+1 >= b {
			return r, fmt.Errorf("%q has no number between its bounds", s)
		}
		r.Low, r.High = a+1, b-1
		return r, nil
	}
	op := body[:len(body)-len(strings.TrimLeft(body, "<>="))]
	n, err := number(body[len(op):])
	if err != nil {
		return r, err
	}
	switch op {
	case "", "=":
		r.Low, r.High = n, n
	case "<":
		if n == 0 {
			return r, fmt.Errorf("nothing is below 0")
		}
		r.High = n - 1
	case "<=":
		r.High = n
	case ">":
		r.Low, r.High = n+1, most
	case ">=":
		r.Low, r.High = n, most
	default:
		return r, fmt.Errorf("%q is not a comparison", op)
	}
	return r, nil
}

// bounce makes a rule with ftpbounce one of FTP's clients. Their commands have no buffers: the rule may look at payload alone.
func (p *ruleParser) bounce() {
	r := p.rule
	if r.Protocol.App == AppAny {
		r.Protocol.App = AppFTP
	}
	if r.Protocol.App != AppFTP || r.Protocol.IP&TCP == 0 {
		p.fail(0, errors.New("ftpbounce is of ftp"))
	}
	r.Protocol.IP = TCP
	for i := range r.Parts {
		if b := r.Parts[i].Buffer; b != Payload {
			p.fail(0, fmt.Errorf("ftpbounce does not go with %v", b))
		}
	}
}
