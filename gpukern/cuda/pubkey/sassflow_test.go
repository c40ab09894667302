package pubkey

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// This file follows what the machine code of a kernel reads from memory through registers and predicates.

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

// op is an instruction.
type op struct {
	text    string
	name    string // with its modifiers
	guard   []int  // the predicate in front
	to      []int
	from    []int
	address []int
	load    bool
	memory  bool
	jump    bool   // may go elsewhere, or end
	label   string // where it goes
}

// program is a kernel with its functions.
type program struct {
	ops    []op
	labels map[string]int
	starts []int // of functions; the kernel is the first
	owner  []int // the function of each instruction
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
	control = []string{"BSSY", "BSYNC", "NOP", "YIELD", "WARPSYNC", "BMOV"}
	clean   = []string{"S2R", "S2UR", "CS2R"}
	// Instructions that read and write registers and predicates, and take the same time for all values.
	plain = []string{
		"IADD3", "UIADD3", "VIADD", "IMAD", "UIMAD", "IABS", "LEA", "ULEA", "LOP3", "ULOP3", "PLOP3", "UPLOP3", "SHF", "USHF", "SEL", "USEL",
		"MOV", "UMOV", "R2UR", "ISETP", "UISETP", "PRMT", "UPRMT", "SGXT", "USGXT", "VIMNMX", "IMNMX", "VIADDMNMX", "P2R", "HFMA2", "FLO", "UFLO",
		"I2F", "F2I", "MUFU", "LDC", "ULDC", "POPC", "UP2UR", "FSEL", "FMUL", "I2FP", "ULDC", "BMSK",
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
		o.load = o.memory && (!strings.Contains(name, ".64") || !strings.HasSuffix(name, "STRONG.SYS"))
		o.operands(base, operands)
	default:
		return o, fmt.Errorf("unknown instruction %s", o.text)
	}
	return o, nil
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
	case "ISETP", "UISETP", "PLOP3", "UPLOP3":
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
			for p := range 8 {
				o.from = append(o.from, preds+p)
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

// parseSASS reads what nvdisasm -c prints: kernels by name.
func parseSASS(text string) (map[string]*program, error) {
	all := map[string]*program{}
	var p *program
	for line := range strings.Lines(text) {
		if m := section.FindStringSubmatch(line); m != nil {
			p = &program{labels: map[string]int{}, starts: []int{0}}
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
	return all, nil
}

// written returns the places that each function may write, by itself and by functions that it calls.
func (p *program) written() []taint {
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
	p       *program
	before  []taint
	reached []bool
	exits   []taint
	returns []bool
	written []taint
	changed bool
}

// leaks returns the instructions by which somebody who watches time and addresses learns what was read.
func (p *program) leaks() (found []string) {
	f := &flow{
		p: p, before: make([]taint, len(p.ops)), reached: make([]bool, len(p.ops)),
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
		case o.jump && (t.any(o.guard) || t.any(o.from)):
			found = append(found, "a branch depends on what was read: "+o.text)
		case t.any(o.address):
			found = append(found, "an address depends on what was read: "+o.text)
		case o.memory && t.any(o.guard):
			found = append(found, "an access depends on what was read: "+o.text)
		}
	}
	return found
}

// reach has instruction i begin with t, or with what it had and t.
func (f *flow) reach(i int, t taint) {
	if i >= len(f.p.ops) {
		return
	}
	if !f.reached[i] {
		f.reached[i], f.changed = true, true
	}
	f.changed = f.before[i].add(t) || f.changed
}

// step follows an instruction.
func (f *flow) step(i int) {
	o, t := &f.p.ops[i], f.before[i]
	after := t
	dirty := o.load || t.any(o.from)
	for _, to := range o.to {
		v := dirty
		if len(o.guard) > 0 { // it may keep what it had
			v = v || t.has(to) || t.any(o.guard)
		}
		after.set(to, v)
	}
	function := f.p.owner[i]
	base, _, _ := strings.Cut(o.name, ".")
	if base == "CALL" && strings.HasPrefix(o.label, ".") { // of the same function: ptxas writes branches so, too
		base = "BRA"
	}
	switch base {
	case "BRA":
		f.reach(f.p.labels[o.label], after)
		if len(o.guard) > 0 || len(o.from) > 0 {
			f.reach(i+1, after)
		}
	case "EXIT":
		if len(o.guard) > 0 {
			f.reach(i+1, after)
		}
	case "RET":
		f.changed = f.exits[function].add(after) || !f.returns[function] || f.changed
		f.returns[function] = true
	case "CALL":
		called := f.p.owner[f.p.labels[o.label]]
		f.reach(f.p.labels[o.label], after)
		if f.returns[called] {
			for k := range after {
				after[k] = after[k]&^f.written[called][k] | f.exits[called][k]&f.written[called][k]
			}
			f.reach(i+1, after)
		}
	default:
		f.reach(i+1, after)
	}
}
