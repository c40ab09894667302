package layers

import (
	"go/ast"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A package of more code than this has several subjects, and a type with more methods has several states: a reader cannot hold
// either. Test files and comments do not count.
const (
	mostLines   = 7000
	mostMethods = 60
)

// large lists the packages of more than mostLines lines of code, with their reasons.
const large = `
cmd/millrace : the command line, a file for each command; nothing imports it
gateway/config : one file of keys, whose sections refer to each other by names; a file for the decoder and the checks of each
internal/app/convert : three languages, each a parser and a front with a file for each construct, fill one model that nothing else sees
l4/datapath  : the stages of a packet read and change one table of connections; a file for each
l7/proxy     : the exchange of a request and what may take part in it (guards, caches, inspection, scripts, copies) change one state; a file for each
shim         : options, datagrams, rings and pairs are states of one socket of a program, under its locks
`

// wide lists the types of more than mostMethods methods, with their reasons.
const wide = `
tcp.Conn               : one control block (RFC 9293 3.3.1) whose variables nearly every rule reads; a file for each rule
tcp.Mux                : the sockets of one loop: demultiplexing, SYN queue, TIME-WAIT and timers share its tables
tcp/loss.Scoreboard    : RACK, TLP, PRR and SACK update one record of what is in flight
ip.Node                : one host: interfaces, routes and neighbours refer to each other for each packet
l4/control.Gateway     : the control side behind one lock; a file for each command
filter/expr.lowering   : one method for each form of the expression tree
filter/inspect.Engine  : flows, streams and rules of one loop, with one budget of memory
shim.sock              : one socket of a program; a method for each system call
socket.TCPConn         : net.Conn, and a method for each option of Linux
node.Node              : the runtime of a process: a method for each part that services may use
gateway/daemon.Daemon  : joins the parts of a gateway; a file for each part
http2.Machine          : a method for each frame type and each event of RFC 9113
stack/host.Host        : ip, tcp and udp as one handler
rdma/transport.QP      : requester and responder of one queue pair end each other and share memory, state and counters; a file for each part
stack.Loop             : one queue, run to completion
`

// entries reads lines of the form "name : reason".
func entries(t *testing.T, text string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for line := range strings.Lines(text) {
		name, why, ok := strings.Cut(line, " : ")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if why = strings.TrimSpace(why); !ok || why == "" {
			t.Errorf("entry without a reason: %q", line)
		}
		m[strings.TrimSpace(name)] = why
	}
	return m
}

// checkSizes compares sizes with a limit and the entries for what is larger.
func checkSizes(t *testing.T, sizes map[string]int, most int, what string, entries map[string]string) {
	t.Helper()
	for name, n := range sizes {
		if n > most && entries[name] == "" {
			t.Errorf("%s has %d %s, want at most %d: split it, or enter its reason", name, n, what, most)
		}
	}
	for name := range entries {
		if sizes[name] <= most {
			t.Errorf("%s has only %d %s: it needs no entry", name, sizes[name], what)
		}
	}
}

func TestNoPackageIsTooLarge(t *testing.T) {
	lines := map[string]int{}
	for _, f := range sources(t) {
		if f.test || strings.HasSuffix(f.path, "_bpfel.go") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, f.path))
		if err != nil {
			t.Fatal(err)
		}
		lines[f.dir] += linesOfCode(src)
	}
	checkSizes(t, lines, mostLines, "lines of code", entries(t, large))
}

// linesOfCode counts the lines that have a token.
func linesOfCode(src []byte) (n int) {
	set := token.NewFileSet()
	f := set.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(f, src, nil, 0)
	last := 0
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue // the scanner's own
		}
		first := f.Line(pos)
		end := first + strings.Count(text, "\n") // of a raw string
		n += end - max(first-1, last)
		last = end
	}
}

func TestLinesOfCode(t *testing.T) {
	src := "package p\n\n// comment\nvar a, b = 1, `x\ny`; var c = 2 // three tokens in a line are one\n/* b */\nfunc f() {\n}\n"
	if n := linesOfCode([]byte(src)); n != 5 {
		t.Errorf("%d lines of code, want 5", n)
	}
}

func TestNoTypeHasTooManyMethods(t *testing.T) {
	methods := map[string]int{}
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[f.dir+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
	}
	checkSizes(t, methods, mostMethods, "methods", entries(t, wide))
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}
