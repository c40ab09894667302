package script

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/millrace/millrace/clock"
)

// parser reads a script by its tokens, one ahead.
type parser struct {
	x   lexer
	tok token
	err error

	upstream bool
}

// Parse reads a script. Its errors are of type *Error.
func Parse(name, text string) (*Script, error) {
	p := &parser{x: lexer{name: name, text: text, pos: Pos{1, 1}}}
	p.advance()
	s := &Script{Name: name}
	for p.err == nil && p.tok.kind != tokEnd {
		if p.is("--") {
			p.option(&s.Options, len(s.Events) > 0)
			continue
		}
		s.Events = append(s.Events, p.event())
	}
	if p.err != nil {
		return nil, p.err
	}
	return s, nil
}

// advance takes the next token. After an error there is only the end.
func (p *parser) advance() {
	if p.err != nil {
		p.tok = token{pos: p.tok.pos}
		return
	}
	t, err := p.x.next()
	if err != nil {
		p.err = err
		t = token{pos: p.tok.pos}
	}
	p.tok = t
}

// fail notes the first mistake.
func (p *parser) fail(pos Pos, format string, args ...any) {
	if p.err == nil {
		p.err = p.x.fail(pos, format, args...)
		p.tok = token{pos: pos}
	}
}

// is reports whether the token at hand is the word or mark.
func (p *parser) is(text string) bool {
	return (p.tok.kind == tokMark || p.tok.kind == tokWord) && p.tok.text == text
}

// accept takes the word or mark if it is at hand.
func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.advance()
		return true
	}
	return false
}

// want takes the word or mark, which must be at hand.
func (p *parser) want(text string) {
	if !p.accept(text) {
		p.fail(p.tok.pos, "want %q, have %s", text, p.tok)
	}
}

// String says what the token is, for errors.
func (t token) String() string {
	if t.kind == tokEnd {
		return "the end"
	}
	return strconv.Quote(t.text)
}

// word takes a word.
func (p *parser) word() string {
	s := p.tok.text
	if p.tok.kind != tokWord {
		p.fail(p.tok.pos, "want a word, have %s", p.tok)
	}
	p.advance()
	return s
}

// number takes a whole number of at most limit.
func (p *parser) number(limit uint64) uint64 {
	n, err := strconv.ParseUint(p.tok.text, 0, 64)
	if p.tok.kind != tokNumber || err != nil {
		p.fail(p.tok.pos, "want a number, have %s", p.tok)
	} else if n > limit {
		p.fail(p.tok.pos, "%d is more than %d", n, limit)
	}
	p.advance()
	return n
}

func (p *parser) number32() uint32 { return uint32(p.number(math.MaxUint32)) }

// option reads a line such as --mtu=1500.
func (p *parser) option(o *Options, late bool) {
	pos := p.tok.pos
	if late {
		p.fail(pos, "options come before the first event")
	}
	p.want("--")
	name := p.word()
	p.want("=")
	switch name {
	case "tolerance_usecs":
		o.Tolerance = time.Duration(p.number(1e9)) * time.Microsecond
	case "mtu":
		o.MTU = int(p.number(65535))
	case "seed":
		o.Seed = p.number(math.MaxUint64)
	case "upstream":
		o.Upstream = p.number(1) == 1
		p.upstream = o.Upstream
	case "tcp_ts_tick_usecs":
		o.Timestamps = p.number(1e9) != 0
	case "memory":
		o.Memory = int64(p.number(1 << 40))
	case "syncookies":
		o.Cookies = p.number(1) == 1
	case "ip_version":
		switch v := p.word(); v {
		case "ipv4":
		case "ipv6":
			o.IPv6 = true
		default:
			p.fail(pos, "want ipv4 or ipv6, have %q", v)
		}
	default:
		p.fail(pos, "unknown option --%s", name)
	}
}

// event reads a line with a time.
func (p *parser) event() Event {
	e := Event{Pos: p.tok.pos}
	if !p.tok.first {
		p.fail(p.tok.pos, "want the end of the line, have %s", p.tok)
	}
	e.When = p.when()
	switch {
	case p.is("<"):
		e.Do = p.arrival()
	case p.accept(">"):
		e.Do = p.packet(false)
	case p.tok.kind == tokCommand:
		e.Do = &Command{p.tok.text}
		p.advance()
	case p.tok.kind == tokCode:
		e.Do = p.assertion()
	default:
		e.Do = p.call()
	}
	if _, ok := e.Do.(*Call); !ok && e.When.Blocks {
		p.fail(e.Pos, "only calls block")
	}
	if k, ok := e.Do.(*Packet); (!ok || k.In) && (e.When.Kind == Any || e.When.From != e.When.To) {
		p.fail(e.Pos, "only what is expected may come at any time")
	}
	return e
}

// arrival reads what follows a time that has something arrive.
func (p *parser) arrival() any {
	p.want("<")
	if p.accept("icmp") {
		return p.icmp()
	}
	return p.packet(true)
}

// when reads a time.
func (p *parser) when() (w When) {
	if p.accept("*") {
		w.Kind = Any
		return w
	}
	if p.accept("+") {
		w.Kind = Relative
	}
	w.From = p.seconds()
	w.To = w.From
	switch {
	case p.accept("~"):
		if rel := p.accept("+"); rel != (w.Kind == Relative) {
			p.fail(p.tok.pos, "both ends of a range are absolute, or neither")
		}
		w.To = p.seconds()
	case p.accept("..."):
		w.Blocks = true
		p.accept("+")
		w.End = p.seconds()
	}
	if w.To < w.From || w.Blocks && w.End < w.From {
		p.fail(p.tok.pos, "the range ends before it begins")
	}
	return w
}

// maxSeconds bounds times so that no sum of them overflows.
const maxSeconds = 1e6

// seconds reads a time in seconds, to the nanosecond.
func (p *parser) seconds() time.Duration {
	v, err := strconv.ParseFloat(p.tok.text, 64)
	if p.tok.kind != tokNumber || err != nil || v > maxSeconds || v != v {
		p.fail(p.tok.pos, "want a time in seconds, have %s", p.tok)
		return 0
	}
	p.advance()
	return time.Duration(math.Round(v * float64(time.Second)))
}

// seconds returns the time as seconds.
func seconds(t clock.Time) string { return fmt.Sprintf("%.6f", t.Sub(begin).Seconds()) }
