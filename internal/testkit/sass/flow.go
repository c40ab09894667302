// Package sass follows secrets through the machine code of kernels, as NVIDIA's disassembler prints it: what is read from memory counts
// as secret, but for 64-bit words that are read with the scope of the system. Tests of packages with kernels use it.
package sass

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Places where a value can be: R, UR, P, UP.
const (
	regs     = 0
	uregs    = 256
	preds    = 320
	upreds   = 328
	allState = 336
)

// taint has the places that may hold what came from memory.
type taint [(allState + 63) / 64]uint64

func (t *taint) has(i int) bool { return t[i/64]>>(i%64)&1 != 0 }
func (t *taint) any(all []int) bool {
	return slices.ContainsFunc(all, t.has)
}

func (t *taint) set(i int, v bool) {
	if t[i/64] &^= 1 << (i % 64); v {
		t[i/64] |= 1 << (i % 64)
	}
}

// add adds the places of o and reports whether that changed t.
func (t *taint) add(o taint) (changed bool) {
	for i := range t {
		changed = changed || t[i]|o[i] != t[i]
		t[i] |= o[i]
	}
	return changed
}

// state is what the analysis knows before an instruction.
type state struct {
	taint
	// clean has for places with a taint the condition of which they have none: they were written under a predicate, as an address is
	// that is used under it alone. 0 is no condition.
	clean [allState]condition
}

// condition is a predicate with its sign: 1 + its number, or the negative of that.
type condition int16

// dirty reports whether a place may hold what came from memory where an instruction with that guard uses it.
func (s *state) dirty(i int, guard condition) bool {
	return s.has(i) && (guard == 0 || s.clean[i] != guard)
}

// dirtyAny is dirty for any of several places.
func (s *state) dirtyAny(all []int, guard condition) bool {
	return slices.ContainsFunc(all, func(i int) bool { return s.dirty(i, guard) })
}

// write notes that an instruction with that guard writes a place.
func (s *state) write(i int, guard condition, dirty, guardDirty bool) {
	if guard == 0 {
		s.set(i, dirty)
		s.clean[i] = 0
	} else { // it may keep what it had
		switch {
		case dirty || guardDirty:
			s.clean[i] = 0
		case s.has(i):
			s.clean[i] = guard
		}
		s.set(i, s.has(i) || dirty || guardDirty)
	}
	if i >= preds { // conditions on it say nothing any more
		for r, c := range s.clean {
			if c == condition(1+i-preds) || c == -condition(1+i-preds) {
				s.clean[r] = 0
			}
		}
	}
}

// join adds what is known on another way to the same instruction, and reports whether that changed s.
func (s *state) join(o *state) (changed bool) {
	for i := range s.clean {
		switch {
		case !o.has(i) || s.has(i) && s.clean[i] == o.clean[i]:
		case !s.has(i):
			s.clean[i] = o.clean[i] // it gets the taint below
		case s.clean[i] != 0:
			s.clean[i], changed = 0, true
		}
	}
	return s.add(o.taint) || changed
}

// op is an instruction.
type op struct {
	text    string
	name    string // with its modifiers
	guard   []int  // the predicate in front,
	when    condition
	to      []int
	from    []int
	address []int
	load    bool
	memory  bool
	jump    bool   // may go elsewhere, or end
	label   string // where it goes
}

// Program is a kernel with its functions.
type Program struct {
	ops    []op
	labels map[string]int
	starts []int // of functions; the kernel is the first
	owner  []int // the function of each instruction
	copies int   // where those of functions begin; 0: there are none
}

var (
	instruction = regexp.MustCompile(`^\s*/\*[0-9a-f]+\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*;`)
	place       = regexp.MustCompile(`\b(UR|UP|R|P)(\d+)\b(\.64)?`)
	bracket     = regexp.MustCompile(`\[[^\]]*\]`)
	target      = regexp.MustCompile("`\\(([^)]*)\\)")
	section     = regexp.MustCompile(`^\.text\.(\w+):`)
	predicate   = regexp.MustCompile(`^U?P(T|\d)$`)
	heading     = regexp.MustCompile(`^([.$]\S+):`)
)

// Names of instructions, without modifiers.
var (
	loads   = []string{"LD", "LDG", "LDL", "LDS"}
	stores  = []string{"ST", "STG", "STL", "STS"}
	jumps   = []string{"BRA", "CALL", "RET", "EXIT", "BREAK"}
	control = []string{"BSSY", "BSYNC", "NOP", "YIELD", "WARPSYNC", "BMOV", "ENDCOLLECTIVE", "MEMBAR", "ERRBAR", "CGAERRBAR", "CCTL"}
	clean   = []string{"S2R", "S2UR", "CS2R"}
	// Instructions that read and write registers and predicates, and take the same time for all values.
	plain = []string{
		"IADD3", "UIADD3", "VIADD", "IMAD", "UIMAD", "IABS", "LEA", "ULEA", "LOP3", "ULOP3", "PLOP3", "UPLOP3", "SHF", "USHF", "SEL", "USEL",
		"MOV", "UMOV", "R2UR", "ISETP", "UISETP", "PRMT", "UPRMT", "SGXT", "USGXT", "VIMNMX", "IMNMX", "VIADDMNMX", "P2R", "HFMA2", "FLO", "UFLO",
		"I2F", "F2I", "MUFU", "LDC", "ULDC", "POPC", "UP2UR", "FSEL", "FMUL", "I2FP", "ULDC", "BMSK", "SHFL", "VOTE", "VOTEU",
	}
)

// places lists the registers and predicates in a text.
func places(text string) (all []int) {
	for _, m := range place.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[2])
		at := n + map[string]int{"R": regs, "UR": uregs, "P": preds, "UP": upreds}[m[1]]
		all = append(all, at)
		if m[3] != "" {
			all = append(all, at+1)
		}
	}
	return all
}

// width returns how many registers an instruction moves.
func width(name string) int {
	parts := strings.Split(name, ".")
	switch {
	case slices.Contains(parts, "128"):
		return 4
	case slices.Contains(parts, "64"), slices.Contains(parts, "WIDE"), parts[0] == "CS2R" && !slices.Contains(parts, "32"):
		return 2
	}
	return 1
}

// isPredicate reports whether an operand is a predicate.
func isPredicate(s string) bool {
	return predicate.MatchString(s)
}

// parseOp reads an instruction.
func parseOp(guard, name, rest string) (op, error) {
	o := op{text: strings.TrimSpace(guard + " " + name + " " + rest), name: name, guard: places(guard)}
	if len(o.guard) > 0 {
		if o.when = condition(1 + o.guard[0] - preds); strings.HasPrefix(guard, "!") {
			o.when = -o.when
		}
	}
	base, _, _ := strings.Cut(name, ".")
	if m := target.FindStringSubmatch(rest); m != nil {
		o.label = m[1]
		rest = target.ReplaceAllString(rest, "")
	}
	var operands []string
	for _, s := range strings.Split(rest, ",") {
		if s = strings.TrimSpace(strings.ReplaceAll(s, ".reuse", "")); s != "" {
			operands = append(operands, s)
		}
	}
	switch {
	case slices.Contains(jumps, base):
		o.jump, o.from = true, places(rest)
	case slices.Contains(control, base):
	case slices.Contains(stores, base):
		o.memory, o.address = true, places(strings.Join(bracket.FindAllString(rest, -1), " "))
	case slices.Contains(loads, base), slices.Contains(clean, base), slices.Contains(plain, base):
		o.memory = slices.Contains(loads, base)
		o.load = o.memory && !public(name)
		o.operands(base, operands)
	default:
		return o, fmt.Errorf("unknown instruction %s", o.text)
	}
	return o, nil
}

// public reports whether a load is of what everybody may know: of 64 bits with the scope of the system, of which ptxas loads 32 where the
// others are not used. Bytes and quads are not.
func public(name string) bool {
	return strings.HasSuffix(name, "STRONG.SYS") && !strings.Contains(name, ".U8") && !strings.Contains(name, ".128")
}

// operands sorts the operands of an instruction that writes registers: first what it writes. Predicates that are written
// follow the register, but for comparisons and LOP3, where they are in front of it.
func (o *op) operands(base string, all []string) {
	i := 0
	to := func(n int) {
		for ; n > 0 && i < len(all); n-- {
			for _, p := range places(all[i]) {
				for w := range width(o.name) {
					if o.to = append(o.to, p+w); p >= preds {
						break
					}
				}
			}
			i++
		}
	}
	switch base {
	case "ISETP", "UISETP", "PLOP3", "UPLOP3", "VOTE", "VOTEU": // of a vote a register and a predicate
		to(2)
	default:
		if isPredicate(all[0]) { // LOP3 P0, R1, ...
			to(1)
		}
		to(1)
		for i < len(all) && isPredicate(all[i]) {
			to(1)
		}
	}
	wide := slices.Contains(strings.Split(o.name, "."), "WIDE")
	registers := 0
	for _, s := range all[i:] {
		o.address = append(o.address, places(strings.Join(bracket.FindAllString(s, -1), " "))...)
		if s == "PR" {
			mask, err := strconv.ParseUint(all[len(all)-1], 0, 8) // P2R R1, PR, RZ, 0x10
			for p := range 8 {
				if err != nil || mask>>p&1 != 0 {
					o.from = append(o.from, preds+p)
				}
			}
		}
		own := places(bracket.ReplaceAllString(s, ""))
		o.from = append(o.from, own...)
		if !isPredicate(strings.TrimPrefix(s, "!")) {
			registers++
		}
		if wide && registers == 3 && len(own) == 1 && own[0] < preds { // the sum is as long as the result
			o.from = append(o.from, own[0]+1)
		}
	}
}

// Parse reads what nvdisasm -c prints: kernels by name.
func Parse(text string) (map[string]*Program, error) {
	all := map[string]*Program{}
	var p *Program
	for line := range strings.Lines(text) {
		if m := section.FindStringSubmatch(line); m != nil {
			p = &Program{labels: map[string]int{}, starts: []int{0}}
			all[m[1]] = p
			continue
		}
		if p == nil {
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			p.labels[m[1]] = len(p.ops)
			if m[1][0] == '$' {
				p.starts = append(p.starts, len(p.ops))
			}
			continue
		}
		if m := instruction.FindStringSubmatch(line); m != nil {
			o, err := parseOp(m[1], m[2], m[3])
			if err != nil {
				return nil, err
			}
			p.ops, p.owner = append(p.ops, o), append(p.owner, len(p.starts)-1)
		}
	}
	for _, p := range all {
		p.inline()
	}
	return all, nil
}

// collective is in the names of functions of ptxas that do shuffles and votes of lanes which have come on several ways. They pass secrets of
// one caller and public words of another.
const collective = "__cuda_sm"

// inline gives each call of such a function a copy of its own, behind all others, which goes back to where it was called.
func (p *Program) inline() {
	names := map[int][]string{} // of labels by place
	for name, at := range p.labels {
		names[at] = append(names[at], name)
	}
	for i := range len(p.ops) {
		call := &p.ops[i]
		if !strings.HasPrefix(call.name, "CALL") || !strings.Contains(call.label, collective) {
			continue
		}
		f := p.owner[p.labels[call.label]]
		from, to := p.starts[f], len(p.ops)
		if f+1 < len(p.starts) {
			to = p.starts[f+1]
		} else if p.copies > 0 {
			to = p.copies
		}
		if p.copies == 0 {
			p.copies = len(p.ops)
		}
		suffix := fmt.Sprintf(" for %d", i)
		for j := from; j < to; j++ {
			for _, name := range names[j] {
				p.labels[name+suffix] = len(p.ops)
			}
			o := p.ops[j]
			switch base, _, _ := strings.Cut(o.name, "."); {
			case base == "RET":
				o.name, o.label, o.from = "BRA", "back"+suffix, nil
			case o.label != "":
				o.label += suffix
			}
			p.ops, p.owner = append(p.ops, o), append(p.owner, p.owner[i])
		}
		p.labels["back"+suffix] = i + 1
		call = &p.ops[i] // it has moved
		call.name, call.label, call.from = "BRA", call.label+suffix, nil
	}
}

// written returns the places that each function may write, by itself and by functions that it calls.
func (p *Program) written() []taint {
	all := make([]taint, len(p.starts))
	for changed := true; changed; {
		changed = false
		for i := range p.ops {
			o, f := &p.ops[i], p.owner[i]
			var t taint
			for _, to := range o.to {
				t.set(to, true)
			}
			if strings.HasPrefix(o.label, "$") {
				t.add(all[p.owner[p.labels[o.label]]])
			}
			changed = all[f].add(t) || changed
		}
	}
	return all
}

// flow is the state of the analysis: what is tainted before each instruction that can be reached, and where functions end.
type flow struct {
	p       *Program
	before  []state
	reached []bool
	exits   []taint
	returns []bool
	written []taint
	changed bool
}

// Leaks returns the instructions by which somebody who watches time and addresses learns what was read.
func (p *Program) Leaks() (found []string) {
	f := &flow{
		p: p, before: make([]state, len(p.ops)), reached: make([]bool, len(p.ops)),
		exits: make([]taint, len(p.starts)), returns: make([]bool, len(p.starts)), written: p.written(),
	}
	f.reached[0] = true
	for f.changed = true; f.changed; {
		f.changed = false
		for i := range p.ops {
			if f.reached[i] {
				f.step(i)
			}
		}
	}
	for i := range p.ops {
		o, t := &p.ops[i], &f.before[i]
		switch {
		case !f.reached[i]:
		case o.jump && (t.any(o.guard) || t.dirtyAny(o.from, o.when)):
			found = append(found, "a branch depends on what was read: "+o.text)
		case t.dirtyAny(o.address, o.when):
			found = append(found, "an address depends on what was read: "+o.text)
		case o.memory && t.any(o.guard):
			found = append(found, "an access depends on what was read: "+o.text)
		}
	}
	return found
}

// reach has instruction i begin with t, or with what it had and t.
func (f *flow) reach(i int, t *state) {
	if i >= len(f.p.ops) {
		return
	}
	if !f.reached[i] {
		f.reached[i], f.changed = true, true
		f.before[i] = *t
		return
	}
	f.changed = f.before[i].join(t) || f.changed
}

// step follows an instruction.
func (f *flow) step(i int) {
	o, t := &f.p.ops[i], &f.before[i]
	after := *t
	dirty, guardDirty := o.load || t.dirtyAny(o.from, o.when), t.any(o.guard)
	for _, to := range o.to {
		after.write(to, o.when, dirty, guardDirty)
	}
	function := f.p.owner[i]
	base, _, _ := strings.Cut(o.name, ".")
	if base == "CALL" && strings.HasPrefix(o.label, ".") { // of the same function: ptxas writes branches so, too
		base = "BRA"
	}
	switch base {
	case "BRA":
		f.reach(f.p.labels[o.label], &after)
		lanes := strings.Contains(o.name, ".CONV") || strings.Contains(o.name, ".DIV") // it depends on which have come
		if lanes || len(o.guard) > 0 || len(o.from) > 0 {
			f.reach(i+1, &after)
		}
	case "EXIT":
		if len(o.guard) > 0 {
			f.reach(i+1, &after)
		}
	case "RET":
		f.changed = f.exits[function].add(after.taint) || !f.returns[function] || f.changed
		f.returns[function] = true
	case "CALL":
		called := f.p.owner[f.p.labels[o.label]]
		f.reach(f.p.labels[o.label], &after)
		if f.returns[called] {
			for k := range after.taint {
				after.taint[k] = after.taint[k]&^f.written[called][k] | f.exits[called][k]&f.written[called][k]
			}
			after.clean = [allState]condition{} // the function may have written predicates
			f.reach(i+1, &after)
		}
	default:
		f.reach(i+1, &after)
	}
}
