package pmd

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ProfileError is an error in the text of a profile.
type ProfileError struct {
	Text   string // the whole profile
	Column int    // where the error begins, in characters, counted from 1
	Msg    string // what is wrong and what is wanted
}

// Error implements error.
func (e *ProfileError) Error() string { return fmt.Sprintf("profile: column %d: %s", e.Column, e.Msg) }

// ParseProfile reads a profile (see Profile for the words). Its errors are of type *ProfileError.
func ParseProfile(text string) (Profile, error) {
	p := parser{text: text, seen: map[string]bool{}, queued: map[*Impairment]token{}}
	p.into = []*Impairment{&p.out.Rx, &p.out.Tx}
	for {
		w, ok := p.word()
		if !ok {
			break
		}
		if err := p.take(w); err != nil {
			return Profile{}, err
		}
	}
	for _, d := range []*Impairment{&p.out.Rx, &p.out.Tx} {
		if d.Queue != (Queue{}) && d.Rate == 0 {
			return Profile{}, p.errorf(p.queued[d], "a queue needs a rate that it waits for, as in rate=100mbit queue=64")
		}
	}
	return p.out, nil
}

// token is a piece of the text and the byte offset that it begins at.
type token struct {
	s  string
	at int
}

// split cuts t before and after the first sep; found says whether there was one.
func (t token) split(sep string) (head, tail token, found bool) {
	a, b, found := strings.Cut(t.s, sep)
	return token{a, t.at}, token{b, t.at + len(a) + len(sep)}, found
}

// parser reads a profile from left to right, once. It keeps byte offsets and turns them into columns only
// for an error.
type parser struct {
	text string
	at   int // next byte to read
	out  Profile
	into []*Impairment   // the directions that words stand for now
	side string          // "", "rx:" or "tx:"
	seen map[string]bool // side and name of the words so far

	queued map[*Impairment]token // the value of each direction's queue
}

func (p *parser) errorf(t token, format string, args ...any) error {
	column := utf8.RuneCountInString(p.text[:t.at]) + 1
	return &ProfileError{Text: p.text, Column: column, Msg: fmt.Sprintf(format, args...)}
}

// word returns the next run of characters that are not space.
func (p *parser) word() (token, bool) {
	rest := strings.TrimLeftFunc(p.text[p.at:], unicode.IsSpace)
	start := len(p.text) - len(rest)
	end := strings.IndexFunc(rest, unicode.IsSpace)
	if end < 0 {
		end = len(rest)
	}
	p.at = start + end
	return token{rest[:end], start}, end > 0
}

// profileWords reads the value of each word into one direction. A word that stands for both directions is
// read once for each, so that an error is the same whichever side it is found on.
var profileWords = map[string]func(p *parser, v token, d *Impairment) error{
	"mtu":     func(p *parser, v token, d *Impairment) error { return p.number(v, &d.MTU) },
	"loss":    func(p *parser, v token, d *Impairment) error { return p.percent(v, &d.Loss) },
	"burst":   (*parser).burst,
	"dup":     func(p *parser, v token, d *Impairment) error { return p.percent(v, &d.Dup) },
	"corrupt": (*parser).corrupt,
	"ce":      func(p *parser, v token, d *Impairment) error { return p.percent(v, &d.CE) },
	"rate":    (*parser).rate,
	"queue":   (*parser).queue,
	"delay":   (*parser).delay,
	"reorder": (*parser).reorder,
}

// take reads one word.
func (p *parser) take(w token) error {
	switch w.s {
	case "rx:":
		p.into, p.side = []*Impairment{&p.out.Rx}, w.s
		return nil
	case "tx:":
		p.into, p.side = []*Impairment{&p.out.Tx}, w.s
		return nil
	}
	name, value, hasValue := w.split("=")
	if p.seen[p.side+name.s] {
		return p.errorf(name, "%s is given twice", name.s)
	}
	p.seen[p.side+name.s] = true
	switch {
	case name.s == "fifo" && !hasValue:
		for _, d := range p.into {
			d.FIFO = true
		}
		return nil
	case name.s == "seed" && hasValue:
		return p.seed(value)
	}
	read, known := profileWords[name.s]
	switch {
	case !known:
		return p.errorf(name, "%q is not a word of profiles: want rx: tx: fifo seed= %s", w.s, strings.Join(wordNames(), " "))
	case !hasValue:
		return p.errorf(name, "%s needs a value, as in %s=...", name.s, name.s)
	}
	for _, d := range p.into {
		if err := read(p, value, d); err != nil {
			return err
		}
	}
	return nil
}

// wordNames returns the words of profiles in order, for the message of an unknown one: a map has none.
func wordNames() []string {
	var names []string
	for name := range profileWords {
		names = append(names, name+"=")
	}
	slices.Sort(names)
	return names
}

// seed reads a whole number. The seed is of the profile, because each direction derives its own from it.
func (p *parser) seed(v token) (err error) {
	p.out.Seed, err = strconv.ParseUint(v.s, 10, 64)
	if err != nil {
		return p.errorf(v, "%q is not a seed: want a whole number", v.s)
	}
	return nil
}

// number reads a whole number of at least 1.
func (p *parser) number(v token, n *int) (err error) {
	*n, err = strconv.Atoi(v.s)
	if err != nil || *n < 1 {
		return p.errorf(v, "%q is not a number: want 1 or more", v.s)
	}
	return nil
}

// percent reads a probability. The sign is required, because 0.01 may mean one percent or a hundredth of it.
func (p *parser) percent(v token, to *Percent) error {
	digits, isPercent := strings.CutSuffix(v.s, "%")
	f, err := strconv.ParseFloat(digits, 64)
	if !isPercent || err != nil || !(f >= 0 && f <= 100) {
		return p.errorf(v, "%q is not a probability: want 0%% to 100%%", v.s)
	}
	*to = Percent(math.Abs(f)) // no negative zero: profiles compare
	return nil
}

// duration reads what time.ParseDuration does; a packet cannot arrive before it was sent.
func (p *parser) duration(v token, to *time.Duration) error {
	d, err := time.ParseDuration(v.s)
	if err != nil || d < 0 {
		return p.errorf(v, "%q is not a duration: want one such as 10ms", v.s)
	}
	*to = d
	return nil
}

// burst reads P,R[,B[,G]].
func (p *parser) burst(v token, d *Impairment) error {
	d.Burst = Burst{LostBad: 100}
	fields := []*Percent{&d.Burst.Start, &d.Burst.End, &d.Burst.LostBad, &d.Burst.LostGood}
	for i, rest, more := 0, v, true; more; i++ {
		var head token
		head, rest, more = rest.split(",")
		if i == len(fields) {
			return p.errorf(head, "burst has four values at most")
		}
		if err := p.percent(head, fields[i]); err != nil {
			return err
		}
		if i == 0 && !more {
			return p.errorf(v, "burst needs two probabilities, to turn bad and to turn good again, as in burst=1%%,25%%")
		}
	}
	return nil
}

// corrupt reads P[,N].
func (p *parser) corrupt(v token, d *Impairment) error {
	head, bits, found := v.split(",")
	if err := p.percent(head, &d.Corrupt); err != nil || !found {
		return err
	}
	if err := p.number(bits, &d.CorruptBits); err != nil {
		return err
	}
	if d.CorruptBits > maxCorruptBits {
		return p.errorf(bits, "corrupt flips %d bits at most", maxCorruptBits)
	}
	if d.Corrupt == 0 { // profiles compare with ==: a detail of what never happens must not differ
		d.CorruptBits = 0
	}
	return nil
}

// rate reads a number with one of rateUnits.
func (p *parser) rate(v token, d *Impairment) error {
	n, ok := quantity(v.s, rateUnits)
	if !ok || n < 1 {
		return p.errorf(v, "%q is not a rate: want one such as 100mbit (bit, kbit, mbit, gbit), at least 1bit", v.s)
	}
	d.Rate = BitRate(n)
	return nil
}

// queue reads packets, or bytes with one of byteUnits. Whether the direction has a rate is known at the end
// of the text only, so the token is kept for that error.
func (p *parser) queue(v token, d *Impairment) error {
	p.queued[d] = v
	if n, err := strconv.Atoi(v.s); err == nil && n >= 1 {
		d.Queue = Queue{Packets: n}
		return nil
	}
	n, ok := quantity(v.s, byteUnits)
	if !ok || n < 1 || n > math.MaxInt32 {
		return p.errorf(v, "%q is not a queue: want packets such as 64, or bytes such as 64kB", v.s)
	}
	d.Queue = Queue{Bytes: int(n)}
	return nil
}

// quantity reads a decimal number and a unit; the result is rounded to a whole number. Whole numbers are read
// as integers, which floats above 2^53 are not. The limit of 1e15 keeps the products of Serializer in 64 bits.
func quantity(s string, units []unit) (uint64, bool) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(digits, 10, 64); err == nil {
			return n * u.size, n <= 1e15/u.size
		}
		f, err := strconv.ParseFloat(digits, 64)
		if err != nil || !(f >= 0 && f*float64(u.size) <= 1e15) {
			return 0, false
		}
		return uint64(math.Round(f * float64(u.size))), true
	}
	return 0, false
}

// delay reads D[±J[/SHAPE]].
func (p *parser) delay(v token, d *Impairment) error {
	v, shape, hasShape := v.split("/")
	mean, jitter, hasJitter := v.split("±")
	if !hasJitter {
		mean, jitter, hasJitter = v.split("+-")
	}
	if err := p.duration(mean, &d.Delay); err != nil {
		return err
	}
	if hasJitter {
		if err := p.duration(jitter, &d.Jitter); err != nil {
			return err
		}
	}
	if !hasShape {
		return nil
	}
	n := slices.Index(shapeNames, shape.s)
	if n < 0 {
		return p.errorf(shape, "%q is not a distribution: want %s", shape.s, strings.Join(shapeNames, ", "))
	}
	if d.Jitter == 0 {
		return p.errorf(shape, "a distribution needs a jitter, as in delay=10ms±2ms/normal")
	}
	d.Shape = Shape(n)
	return nil
}

// reorder reads P[,D].
func (p *parser) reorder(v token, d *Impairment) error {
	head, hold, found := v.split(",")
	if err := p.percent(head, &d.Reorder); err != nil || !found {
		return err
	}
	if err := p.duration(hold, &d.ReorderHold); err != nil {
		return err
	}
	if d.Reorder == 0 {
		d.ReorderHold = 0
	}
	return nil
}
