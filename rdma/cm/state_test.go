package cm

import (
	"strings"
	"testing"
)

// TestTransitions compares every state and event with the figures of InfiniBand's specification (135, 136 and 141), written down once more:
// r/R/w/e/- are the states by letter, and '.' is an event that the state does not take.
func TestTransitions(t *testing.T) {
	letters := "-rmpqRMedwsvS" // in the order of the states
	//   call: connect accept ready reject disconnect communicated  got: REQ MRA(REQ) REP MRA(REP) RTU REJ DREQ DREP  expired stale  SIDR: resolve answer REQ REP
	table := map[State]string{
		Idle:        "r . . . . .   q . . . . . . .  . .   s . v .",
		ReqSent:     ". . . - . .   . m p . . - . .  - .   . . . .",
		MraReceived: ". . . - . .   . m p . . - . .  - .   . . . .",
		RepReceived: ". . e - . .   . . . . . - w .  - .   . . . .",
		ReqReceived: ". R . - . .   . . . . . - . .  - -   . . . .",
		RepSent:     ". . . - d e   . . . M e - w .  - -   . . . .",
		MraOfRep:    ". . . - d e   . . . M e - w .  - -   . . . .",
		Established: ". . . . d .   . . . . . w w .  . d   . . . .",
		DreqSent:    ". . . . . .   . . . . . w w w  w .   . . . .",
		TimeWait:    ". . . . . .   . . . . . . . .  - .   . . . .",

		SidrSent:     ". . . - . .   . . . . . . . .  - .   . . . -",
		SidrReceived: ". . . . . .   . . . . . . . .  - .   . S . .",
		SidrReplied:  ". . . . . .   . . . . . . . .  - .   . . . .",
	}
	for s := range states {
		row := strings.ReplaceAll(table[s], " ", "")
		if len(row) != int(events) {
			t.Fatalf("%v: %d events", s, len(row))
		}
		for e := range events {
			want := State(strings.IndexByte(letters, row[e]))
			if row[e] == '.' {
				want = not
			}
			if got := transitions[s][e]; got != want {
				t.Errorf("%v, event %d: %v, want %v", s, e, got, want)
			}
		}
	}
}

// TestNames requires a name of every state, reason and kind.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	check := func(s string) {
		if s == "" || s == "unknown" || seen[s] {
			t.Errorf("name %q", s)
		}
		seen[s] = true
	}
	for s := range states {
		check(s.String())
	}
	for k := range eventKinds {
		check("event " + k.String())
	}
	for r := range Reasons {
		check("reason " + r.String())
	}
	for k := REQ; k <= SIDRREP; k++ {
		check(k.String())
	}
}
