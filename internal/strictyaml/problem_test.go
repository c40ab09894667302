package strictyaml

import (
	"fmt"
	"strings"
	"testing"
)

func TestAProblemIsShownWithItsLine(t *testing.T) {
	for _, c := range []struct {
		p    Problem
		want string
	}{
		{Problem{File: "f", Line: 1, Column: 8, Message: "no", Source: "\t\x1b[31mred"}, "f:1:8: no\n  \t\ufffd[31mred\n  \t      ^\n"},
		{Problem{File: "f", Line: 2, Column: 1, Message: "no", Hint: "yes", Source: "  "}, "f:2:1: no\n  yes\n"},
		{Problem{Message: "no", Hint: "yes"}, "no\n  yes\n"},
	} {
		if got := c.p.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestAnErrorShowsTheFirstProblemsAndCountsTheOthers(t *testing.T) {
	list := func(n int) (all []Problem) {
		for i := range n {
			all = append(all, Problem{Message: fmt.Sprint("no ", i+1)})
		}
		return all
	}
	for _, c := range []struct {
		e     Error
		lines int
		last  string
	}{
		{Error{Problems: list(MaxShown)}, MaxShown, "no 20"},
		{Error{Problems: list(MaxShown + 1)}, MaxShown + 1, "and 1 more errors"},
		{Error{Problems: list(MaxShown + 1), More: 7, ShowAll: "check --all"}, MaxShown + 1, "and 8 more errors (check --all shows all)"},
		{Error{Problems: list(2), More: 7, ShowAll: "check --all"}, 3, "and 7 more errors"},
	} {
		lines := strings.Split(c.e.Error(), "\n")
		if len(lines) != c.lines || lines[0] != "no 1" || lines[len(lines)-1] != c.last {
			t.Errorf("%d problems: %q", len(c.e.Problems), lines)
		}
	}
	e := Error{Problems: list(300)}
	if all := strings.Split(e.Text(300), "\n"); len(all) != 300 || all[299] != "no 300" {
		t.Errorf("%d lines of all problems", len(all))
	}
}
