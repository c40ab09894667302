package convert

import (
	"regexp/syntax"
	"slices"
	"strings"
)

// overlapped reports whether a longer prefix elsewhere has some paths of an expression within a prefix. nginx does not try the expression
// for them, and the gateway does. Where the other location keeps clients out the expression must not have them.
func overlapped(led *ledger, locs []*loc, l *loc) bool {
	w, found := l.around(), false
	if w == nil {
		return false
	}
	re, _ := l.expression()
	if l.anyCase {
		re = "(?i)" + re
	}
	for _, o := range locs {
		if o.kind != locPrefix || o.stop || len(o.path) <= len(w.path) || !strings.HasPrefix(o.path, w.path) || o.inside(w) || !mayBegin(re, o.path) {
			continue
		}
		if led.changed(l.at, "routes[].rules[]", "it has paths of the location "+o.path+" as well"); o.strict() || slices.ContainsFunc(locs, func(in *loc) bool { return in.inside(o) && in.strict() }) {
			found = true
		}
		for in := o.within; in != nil; in = in.within {
			found = found || in.strict()
		}
	}
	return found
}

// inside reports whether a location is within another.
func (l *loc) inside(other *loc) bool {
	for w := l.within; w != nil; w = w.within {
		if w == other {
			return true
		}
	}
	return false
}

// branches reports whether an expression has alternatives that are not in parentheses.
func branches(re string) bool {
	parsed, err := syntax.Parse(re, syntax.Perl)
	return err != nil && strings.Contains(re, "|") || err == nil && parsed.Op == syntax.OpAlternate
}

// mayBegin reports whether an expression may match a text that begins with a prefix, from its start. It simulates the automaton of the
// expression: of its assertions only the start of the text is checked.
func mayBegin(re, prefix string) bool {
	parsed, err := syntax.Parse(re, syntax.Perl)
	if err != nil {
		return true
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return true
	}
	live := reached(prog, []uint32{uint32(prog.Start)}, true)
	for _, r := range prefix {
		var next []uint32
		for _, pc := range live {
			switch in := &prog.Inst[pc]; in.Op {
			case syntax.InstMatch:
				return true
			case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
				if in.MatchRune(r) {
					next = append(next, in.Out)
				}
			}
		}
		if live = reached(prog, next, false); len(live) == 0 {
			return false
		}
	}
	return true
}

// reached returns the instructions that some others lead to without a letter.
func reached(prog *syntax.Prog, list []uint32, first bool) (out []uint32) {
	seen := make([]bool, len(prog.Inst))
	for len(list) > 0 {
		pc := list[len(list)-1]
		list = list[:len(list)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		switch in := &prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			list = append(list, in.Out, in.Arg)
		case syntax.InstEmptyWidth:
			if first || syntax.EmptyOp(in.Arg)&(syntax.EmptyBeginText|syntax.EmptyBeginLine) == 0 {
				list = append(list, in.Out)
			}
		case syntax.InstCapture, syntax.InstNop:
			list = append(list, in.Out)
		case syntax.InstFail:
		default:
			out = append(out, pc)
		}
	}
	return out
}
