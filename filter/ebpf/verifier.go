package ebpf

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cilium/ebpf"
)

// VerifierError reports why the kernel's verifier rejected a program.
type VerifierError struct {
	Program string
	Source  string   // the line of source code where it stopped, "" where the object has none
	Reason  string   // the verifier's last words
	Log     []string // all of them
	err     error
}

// Error is one line, or two with the source.
func (e *VerifierError) Error() string {
	s := fmt.Sprintf("the verifier rejects program %s: %s", e.Program, e.Reason)
	if e.Source != "" {
		s += "\n  at " + e.Source
	}
	return s
}

// Unwrap returns the kernel's error.
func (e *VerifierError) Unwrap() error { return e.err }

var (
	// sourceLine is a line of source in the log: "; TEXT @ FILE:LINE", without the place before Linux 6.9.
	sourceLine = regexp.MustCompile(`^; (.*)$`)
	register   = regexp.MustCompile(`^R\d+ `) // such a line needs the one before it
	summary    = regexp.MustCompile(`^(processed \d+ insns|verification time|stack depth|mark_precise|from \d+ to |\d+: |arg#|R\d+(_[a-z]+)?=|last_idx|regs=|parent )`)
)

// explainLoad returns err, or a VerifierError where the verifier has said something.
func explainLoad(program string, err error) error {
	var v *ebpf.VerifierError
	if !errors.As(err, &v) || len(v.Log) == 0 {
		return err
	}
	e := &VerifierError{Program: program, Log: v.Log, err: v.Cause}
	for i := len(v.Log) - 1; i >= 0 && (e.Reason == "" || e.Source == ""); i-- {
		line := strings.TrimSpace(v.Log[i])
		switch m := sourceLine.FindStringSubmatch(line); {
		case m != nil && e.Source == "":
			e.Source = sourceText(m[1])
		case m == nil && line != "" && !summary.MatchString(line) && (e.Reason == "" || e.Source == "" && register.MatchString(e.Reason)):
			e.Reason = strings.TrimSuffix(line+"; "+e.Reason, "; ")
		}
	}
	if e.Reason == "" {
		e.Reason = v.Cause.Error()
	}
	return e
}

// sourceText returns "FILE:LINE: TEXT" of what the verifier prints behind a semicolon.
func sourceText(s string) string {
	if i := strings.LastIndex(s, " @ "); i >= 0 {
		return s[i+3:] + ": " + s[:i]
	}
	return s
}
