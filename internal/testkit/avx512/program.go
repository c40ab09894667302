// Package avx512 executes Go assembly of AVX-512 in Go: so the code is tested on CPUs without the instructions.
//
// It reads what the assembler says that it parsed (go tool asm -debug), with macros expanded, and knows the instructions that the
// packages under gpukern use. What it does not know is an error when a program is loaded.
package avx512

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// Program is an assembled file.
type Program struct {
	functions map[string]int
	code      []instruction
}

// instruction is a step. next is the one behind it.
type instruction struct {
	text   string
	op     string
	line   int
	run    func(m *machine)
	target int
}

// Load reads a file of this package's folder. It skips the test where there is no go command.
func Load(t testing.TB, file string) *Program {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("there is no go command to read assembly with: %v", err)
	}
	include := filepath.Join(strings.TrimSpace(string(root)), "pkg", "include")
	out, err := exec.Command("go", "tool", "asm", "-debug", "-p", "p", "-I", include, "-D", "GOOS_linux", "-D", "GOARCH_amd64",
		"-o", filepath.Join(t.TempDir(), "object"), file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parse(string(out), strings.Split(string(source), "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// parsed is a line of the assembler: source line, number, file, instruction, operands.
var parsed = regexp.MustCompile(`^(\d+) \d+ \(.*\)\t([A-Z0-9.]+)\t?(.*)$`)

func parse(listing string, source []string) (*Program, error) {
	p := &Program{functions: map[string]int{}}
	for text := range strings.Lines(listing) {
		m := parsed.FindStringSubmatch(strings.TrimRight(text, "\n"))
		if m == nil {
			return nil, fmt.Errorf("avx512: a line of the assembler that is no instruction: %q", text)
		}
		line, _ := strconv.Atoi(m[1])
		if m[2] == "TEXT" {
			name, _, _ := strings.Cut(strings.TrimPrefix(m[3], "p."), "(SB)")
			p.functions[name] = len(p.code)
			continue
		}
		p.code = append(p.code, instruction{text: strings.TrimSpace(text), op: m[2], line: line})
		i := &p.code[len(p.code)-1]
		if !strings.HasPrefix(i.op, "J") {
			var err error
			if i.run, err = compile(m[2], operands(m[3])); err != nil {
				return nil, fmt.Errorf("avx512: %s: %w", i.text, err)
			}
		}
	}
	return p, p.link(source)
}

// operands splits at commas outside of parentheses.
func operands(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ", ")
}

// link finds the targets of jumps, which the assembler's text does not have: by the labels of the source, within the function.
func (p *Program) link(source []string) error {
	labels := map[string][]int{} // the first instructions behind labels of a name
	for n, text := range source {
		name, _, found := strings.Cut(text, ":")
		if !found || name == "" || strings.ContainsAny(name, " \t/#") {
			continue
		}
		at := 0
		for at < len(p.code) && p.code[at].line <= n+1 {
			at++
		}
		labels[name] = append(labels[name], at)
	}
	for i := range p.code {
		in := &p.code[i]
		if !strings.HasPrefix(in.op, "J") {
			continue
		}
		words := strings.Fields(source[in.line-1])
		targets := labels[words[len(words)-1]]
		k := slices.IndexFunc(targets, func(at int) bool { return p.functionOf(at) == p.functionOf(i) })
		if _, known := conditions[in.op]; k < 0 || !known {
			return fmt.Errorf("avx512: %s: the jump is not known", in.text)
		}
		in.target = targets[k]
	}
	return nil
}

// functionOf returns where the function of an instruction begins.
func (p *Program) functionOf(at int) (begin int) {
	for _, first := range p.functions {
		if first <= at {
			begin = max(begin, first)
		}
	}
	return begin
}

// Call runs a function. Arguments are uint64 or unsafe.Pointer. It returns how many instructions it took, by their names.
func (p *Program) Call(function string, arguments ...any) map[string]int {
	at, found := p.functions[function]
	if !found {
		panic("avx512: there is no function " + function)
	}
	m := machine{}
	for _, a := range arguments {
		switch v := a.(type) {
		case uint64:
			m.arguments = append(m.arguments, v)
		case unsafe.Pointer:
			m.arguments = append(m.arguments, uint64(uintptr(v)))
		default:
			panic(fmt.Sprintf("avx512: an argument of type %T", a))
		}
	}
	steps := map[string]int{}
	for {
		in := &p.code[at]
		steps[in.op]++
		switch {
		case in.op == "RET":
			return steps
		case in.run == nil && conditions[in.op](m.zero):
			at = in.target
			continue
		case in.run != nil:
			in.run(&m)
		}
		at++
	}
}

// conditions are those of jumps, by the zero flag.
var conditions = map[string]func(zero bool) bool{
	"JMP": func(bool) bool { return true },
	"JEQ": func(zero bool) bool { return zero },
	"JNE": func(zero bool) bool { return !zero },
}
