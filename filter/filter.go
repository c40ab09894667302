// Package filter decides by rules what becomes of packets.
//
// A List is a list of rules, read from text (Parse) and compiled for the engine: the engine's
// header pass writes the number of the first rule that matches into Desc.Rule, and Filter.Apply turns
// that number into a verdict. A Filter has Checks of what the engine found wrong ahead of its List,
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

// Action is what a rule does with the packets that it matches.
type Action uint8

// The actions.
const (
	Pass Action = iota // leave the packet to what comes after the filter
	Drop               // packet.DropRule
)

// String returns the word that a rule begins with.
func (a Action) String() string {
	if a == Drop {
		return "drop"
	}
	return "pass"
}

// Rule is an action for the packets of a 5-tuple.
type Rule struct {
	Action Action
	Match  acl.Rule
	Text   string // as it was written, without comment
	Line   int    // where, counted from 1; 0 for a rule that was not read from text
	Name   string // for people and counters; "" where none was given
}

// List is a list of rules, of which the first that matches a packet decides. A packet that no rule
// matches passes. A List is immutable; the zero value passes everything.
type List struct {
	rules []Rule
	acl   *acl.List
}

// New compiles rules.
func New(rules []Rule) (*List, error) {
	match := make([]acl.Rule, len(rules))
	for i := range rules {
		match[i] = rules[i].Match
	}
	acl, err := acl.Compile(match)
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	return &List{rules, acl}, nil
}

// Rules borrows the rules. Rule i is what Desc.Rule calls i+1. A line that lists several ports is
// several rules, alike in Text, Line and Name.
func (l *List) Rules() []Rule { return l.rules }

// ACL returns the compiled form, for gpukern.Tables; nil for an empty list.
func (l *List) ACL() *acl.List { return l.acl }
