// Package filter decides by rules what is done with packets.
//
// A List is a list of rules, read from text (Parse, ParseFile) and compiled for the engine: the engine's
// header pass writes the number of the first rule that matches into Desc.Rule, and Filter.Apply turns
// that number into a verdict, limits rates, and looks addresses up in prefix lists, which are too long for
// the engine's rules. A Filter has Checks of what the engine found wrong ahead of its List,
// and counters behind it. Packets come from the engine and go on to the gateway or to a
// transport.
//
// The package is pure: it reads no files and no clocks. Tuples are matched by gpukern; this package
// says only what a match means.
package filter

import (
	"fmt"

	"github.com/millrace/millrace/gpukern/acl"
)

// Action is the action of a rule on the packets that it matches.
type Action uint8

// The actions.
const (
	Pass     Action = iota // leave the packet to what comes after the filter
	Drop                   // packet.DropRule
	Redirect               // packet.Forward, to Rule.Device
)

// String returns the word that a rule begins with.
func (a Action) String() string {
	switch a {
	case Drop:
		return "drop"
	case Redirect:
		return "redirect"
	}
	return "pass"
}

// Rule is an action for the packets of a 5-tuple.
type Rule struct {
	Action  Action
	Match   acl.Rule
	Src     *PrefixList // that has the source address, too; nil is any
	Dst     *PrefixList // that has the destination address, too
	Rate    Rate        // of the packets that the action is for; those beyond are dropped. The zero value has no limit
	Mark    uint32      // for what comes after the filter; 0 is none
	Capture bool        // the packet is to be written to a capture
	Device  string      // of Redirect
	Text    string      // as it was written, without comment
	Line    int         // where, counted from 1; 0 for a rule that was not read from text
	Name    string      // for people and counters; "" where none was given
	File    string      // where Line is; "" for a rule that was not read from text
}

// List is a list of rules, of which the first that matches a packet decides. A packet that no rule
// matches passes. A List is immutable; the zero value passes everything.
type List struct {
	rules   []Rule
	acl     *acl.List
	line    []int32  // of each rule: alike for the rules of one line of text
	rest    []rest   // by line, where rules ask for prefix lists; else empty
	rates   []Rate   // by line
	limited bool     // some line has a rate
	devices []string // of Redirect
	device  []uint8  // of each rule that redirects, an index in devices
}

// rest is the rules behind a line that asks for a prefix list: what a packet is matched with that the list lacks.
type rest struct {
	src   *PrefixList // that the line asks for
	dst   *PrefixList
	acl   *acl.List // nil where the line asks for no list
	first int       // rule 1 of it is rule first+1
}

// The most that a List has of each.
const (
	maxListLines = 64  // lines that ask for prefix lists
	maxDevices   = 255 // to redirect to
)

// New compiles rules.
func New(rules []Rule) (*List, error) {
	match := make([]acl.Rule, len(rules))
	for i := range rules {
		match[i] = rules[i].Match
	}
	compiled, err := acl.Compile(match)
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	l := &List{rules: rules, acl: compiled, line: make([]int32, len(rules)), device: make([]uint8, len(rules))}
	l.number()
	if err := l.compileRest(match); err != nil {
		return nil, err
	}
	return l, l.nameDevices()
}

// number tells the lines of rules.
func (l *List) number() {
	for i := range l.rules {
		r := &l.rules[i]
		if i == 0 || r.Line == 0 || r.Line != l.rules[i-1].Line || r.File != l.rules[i-1].File {
			l.rates = append(l.rates, r.Rate)
			l.limited = l.limited || r.Rate != Rate{}
		}
		l.line[i] = int32(len(l.rates) - 1)
	}
}

// compileRest compiles what lies behind the lines that ask for prefix lists.
func (l *List) compileRest(match []acl.Rule) error {
	lines := 0
	for i := len(l.rules) - 1; i >= 0; i-- {
		r, n := &l.rules[i], l.line[i]
		if r.Src == nil && r.Dst == nil || i+1 < len(l.rules) && l.line[i+1] == n {
			continue // the line's last rule has what lies behind it
		}
		if lines++; lines > maxListLines {
			return fmt.Errorf("filter: more than %d lines ask for prefix lists", maxListLines)
		}
		if l.rest == nil {
			l.rest = make([]rest, len(l.rates))
		}
		behind, err := acl.Compile(match[i+1:])
		if err != nil {
			return fmt.Errorf("filter: %w", err)
		}
		l.rest[n] = rest{r.Src, r.Dst, behind, i + 1}
	}
	return nil
}

// nameDevices fills devices and device.
func (l *List) nameDevices() error {
	at := map[string]int{}
	for i := range l.rules {
		r := &l.rules[i]
		if r.Action != Redirect {
			continue
		}
		k, ok := at[r.Device]
		if !ok {
			k = len(l.devices)
			at[r.Device] = k
			l.devices = append(l.devices, r.Device)
		}
		if k >= maxDevices {
			return fmt.Errorf("filter: rules redirect to more than %d devices", maxDevices)
		}
		l.device[i] = uint8(k)
	}
	return nil
}

// Rules borrows the rules. Rule i is what Desc.Rule calls i+1. A line that lists several ports or addresses is
// several rules, alike in Text, Line and Name.
func (l *List) Rules() []Rule { return l.rules }

// Devices borrows the names of the devices that rules redirect to, each once.
func (l *List) Devices() []string { return l.devices }

// Limited reports whether rules limit rates: Filter.Apply needs the time then.
func (l *List) Limited() bool { return l != nil && l.limited }

// ACL returns the compiled form, for gpukern.Tables; nil for an empty list.
func (l *List) ACL() *acl.List { return l.acl }
