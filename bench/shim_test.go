package main

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/bench/harness"
)

// TestExecComesBehindTheChangeOfUser so that the library is one that the user of the program may read.
func TestExecComesBehindTheChangeOfUser(t *testing.T) {
	b := &shimBench{dir: "/d", millrace: harness.Peer{Path: "millrace"}}
	for _, tc := range []struct {
		v          way
		argv, want []string
	}{
		{ways[0], []string{"nginx", "-c", "f"}, []string{"nginx", "-c", "f"}},
		{ways[1], []string{"nginx", "--", "f"}, []string{"millrace", "exec", "--socket", "/d/stack.sock", "--", "nginx", "--", "f"}},
		{ways[3], []string{"nginx"}, []string{"millrace", "exec", "--socket", "/d/stack.sock", "--rings", "--", "nginx"}},
		{ways[1], []string{"setpriv", "-u", "--", "p", "q"}, []string{"setpriv", "-u", "--", "millrace", "exec", "--socket", "/d/stack.sock", "--", "p", "q"}},
	} {
		if got := b.under(&tc.v, tc.argv); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.v.name, got, tc.want)
		}
	}
}

// TestRowsOfShimAreComplete: every row counts what a part of it counts, and each program has a CPU of its side.
func TestRowsOfShimAreComplete(t *testing.T) {
	b := &shimBench{e: &harness.Env{Self: "bench"}, dir: t.TempDir()}
	seen := map[string]bool{}
	for _, w := range b.rows() {
		if seen[w.name] || w.unit == "" || w.count == "" {
			t.Errorf("row %q is incomplete or there twice", w.name)
		}
		seen[w.name] = true
		if !slices.ContainsFunc(w.parts, func(p shimPart) bool { return p.name == w.part }) {
			t.Errorf("%s: no part %q", w.name, w.part)
		}
		for _, name := range w.contestants() {
			if !slices.ContainsFunc(ways, func(v way) bool { return v.name == name }) {
				t.Errorf("%s: no contestant %q", w.name, name)
			}
		}
		for _, g := range w.gates {
			if !slices.Contains(w.contestants(), g.Contestant) {
				t.Errorf("%s: a gate of %q, which does not run", w.name, g.Contestant)
			}
		}
		if !slices.ContainsFunc(w.parts, func(p shimPart) bool { return p.host }) {
			t.Errorf("%s: nothing is on the host", w.name)
		}
		for _, p := range w.parts {
			if p.program && (p.cpu == hostCPU) != p.host {
				t.Errorf("%s: %s is on CPU %d", w.name, p.name, p.cpu)
			}
		}
	}
}

// TestGatesHoldForNodesApart: what a contestant is measured against holds for the one that differs in its node's CPU alone.
func TestGatesHoldForNodesApart(t *testing.T) {
	b := &shimBench{e: &harness.Env{Self: "bench"}, dir: t.TempDir()}
	apart := 0
	for _, m := range b.measures() {
		for i, g := range m.Gates {
			other := withNodeApart[g.Contestant]
			if other == "" {
				continue
			}
			runs := slices.ContainsFunc(m.Contestants, func(c harness.Contestant) bool { return c.Name == other })
			want := g
			want.Contestant = other
			if has := slices.Contains(m.Gates[i:], want); has != runs {
				t.Errorf("%s: %q runs: %v, and has the gate: %v", m.Name, other, runs, has)
			} else if has {
				apart++
			}
		}
	}
	if apart == 0 {
		t.Error("no contestant has its node apart")
	}
}
