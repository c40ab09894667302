package regex

import "github.com/millrace/millrace/gpukern/expression"

// maxAutomaton bounds the instructions of a program: counts in braces are spelled out.
const maxAutomaton = 4096

// conditions are the operations of automata that ask for the same as those of the matcher.
var conditions = map[op]expression.Op{
	opBegin: expression.Begin, opEnd: expression.End, opEndOrNewline: expression.FinalNewline, opLineBegin: expression.LineBegin,
	opLineEnd: expression.LineEnd, opWordEdge: expression.WordEdge, opNoWordEdge: expression.NoWordEdge,
}

// Program returns the expression as a program of automata, which match texts that Find matches from their begin on. It
// reports false for what no automaton of RE2's kind has: back-references, look-arounds, atomic groups, possessive
// repetitions and \G, and counts that spell out too long.
func (r *Regex) Program() (expression.Program, bool) {
	a := automaton{at: make([]int32, len(r.prog))}
	if r.anchored {
		a.add(expression.Inst{Op: expression.Begin, X: 1})
	}
	for pc := range r.prog {
		a.at[pc] = int32(len(a.prog))
		if !a.inst(&r.prog[pc], pc) || len(a.prog) > maxAutomaton {
			return nil, false
		}
	}
	for _, j := range a.jumps {
		*j.to(a.prog) = a.at[j.target]
	}
	return a.prog, true
}

// automaton is a program that is being translated.
type automaton struct {
	prog  expression.Program
	at    []int32 // by instruction of the matcher
	jumps []jump  // whose targets are not known before the end
}

// jump is a field of an instruction that is the place of an instruction of the matcher.
type jump struct {
	at     int
	y      bool
	target int
}

func (j jump) to(p expression.Program) *int32 {
	if j.y {
		return &p[j.at].Y
	}
	return &p[j.at].X
}

func (a *automaton) add(i expression.Inst) { a.prog = append(a.prog, i) }

// leads adds an instruction that goes on at instructions of the matcher.
func (a *automaton) leads(i expression.Inst, x, y int) {
	a.jumps = append(a.jumps, jump{len(a.prog), false, x}, jump{len(a.prog), true, y})
	a.add(i)
}

// inst translates one instruction and reports whether it can.
func (a *automaton) inst(i *inst, pc int) bool {
	switch i.op {
	case opByte:
		var s expression.ByteSet
		s.Add(i.c)
		a.leads(expression.Inst{Op: expression.Byte, Set: s}, pc+1, pc+1)
	case opSet:
		a.leads(expression.Inst{Op: expression.Byte, Set: expression.ByteSet(*i.set)}, pc+1, pc+1)
	case opRepeat:
		return a.repeat(i, pc)
	case opSplit:
		a.leads(expression.Inst{Op: expression.Split}, i.x, i.y)
	case opJump:
		a.leads(expression.Inst{Op: expression.Jump}, i.x, i.x)
	case opSave:
		a.leads(expression.Inst{Op: expression.Jump}, pc+1, pc+1)
	case opLoop: // an empty iteration leads nowhere that the others do not
		a.leads(expression.Inst{Op: expression.Split}, i.x, pc+1)
	case opMatch:
		a.add(expression.Inst{Op: expression.Match})
	case opFail:
		a.add(expression.Inst{Op: expression.Fail})
	default:
		to, ok := conditions[i.op]
		a.leads(expression.Inst{Op: to}, pc+1, pc+1)
		return ok
	}
	return true
}

// repeat spells out the repetition of a set. Whether it prefers more or less does not matter to an automaton.
func (a *automaton) repeat(i *inst, pc int) bool {
	most := max(i.max, i.min)
	if i.how == possessive || most > maxAutomaton {
		return false
	}
	set := expression.ByteSet(*i.set)
	here := func() int32 { return int32(len(a.prog)) }
	for range i.min {
		a.add(expression.Inst{Op: expression.Byte, Set: set, X: here() + 1})
	}
	if i.max < 0 {
		split := len(a.prog)
		a.jumps = append(a.jumps, jump{split, true, pc + 1})
		a.add(expression.Inst{Op: expression.Split, X: here() + 1})
		a.add(expression.Inst{Op: expression.Byte, Set: set, X: int32(split)})
		return true
	}
	for range i.max - i.min {
		split := len(a.prog)
		a.jumps = append(a.jumps, jump{split, true, pc + 1})
		a.add(expression.Inst{Op: expression.Split, X: here() + 1})
		a.add(expression.Inst{Op: expression.Byte, Set: set, X: here() + 1})
	}
	a.leads(expression.Inst{Op: expression.Jump}, pc+1, pc+1)
	return true
}
