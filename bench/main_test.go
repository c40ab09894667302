package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// TestMain lets the test program play roles, as the program itself does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "role" {
		os.Exit(role.Run(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func TestTheCommandLineIsCheckedBeforeAnythingRuns(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no suite":          {nil, exitUsage, "which suite"},
		"unknown suite":     {[]string{"-suite", "nonsense"}, exitUsage, `no suite "nonsense"`},
		"unknown flag":      {[]string{"-fast"}, exitUsage, "not defined"},
		"stray argument":    {[]string{"-suite", "packet-io", "now"}, exitUsage, `unexpected argument "now"`},
		"no rounds":         {[]string{"-suite", "packet-io", "-rounds", "0"}, exitUsage, "must be positive"},
		"list":              {[]string{"-list"}, exitOK, "packet-io"},
		"help is no mishap": {[]string{"-h"}, exitOK, "-suite"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(context.Background(), c.args, &out, &errs)
			if said := out.String() + errs.String(); code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("run(%q) = %d, want %d; it said %q, want %q in it", c.args, code, c.code, said, c.says)
			}
		})
	}
}

func TestEverySuiteHasItsOwnName(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range suites {
		if seen[s.Name] || s.Name == "" || s.Title == "" || s.Open == nil {
			t.Errorf("suite %q is incomplete or listed twice", s.Name)
		}
		seen[s.Name] = true
	}
}

func TestASuiteMayHaveItsOwnNumberOfRounds(t *testing.T) {
	for args, want := range map[string][2]int{"-suite x": {defaultRounds, 3}, "-suite x -rounds 7": {7, 7}, "-suite x -rounds 5": {5, 5}} {
		f, err := parseFlags(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{f.plan(harness.Suite{}).Rounds, f.plan(harness.Suite{Rounds: 3}).Rounds}; got != want {
			t.Errorf("%s: %v rounds, want %v", args, got, want)
		}
	}
}
