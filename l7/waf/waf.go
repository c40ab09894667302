// Package waf evaluates requests and responses by the rules of a web application firewall, beside the loops of a proxy: a set of rules as
// large as OWASP's takes a millisecond for a request, in which a loop serves a hundred others.
//
// It is the contract between package proxy, which has the messages, and an engine, which has the rules. The engine is injected, so that a
// program without one does not carry it: cmd/coraza adapts Coraza. What the package does itself is to bound the work, to contain an engine
// that panics or takes too long, and to count.
package waf

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/millrace/millrace/semantics"
)

// Mode selects what follows from rules that deny.
type Mode uint8

// Values of Mode.
const (
	Detect  Mode = iota // a line in the access log
	Prevent             // the client is answered the status of the rule
)

// File is a file of rules. Name is that of the configuration; a name that begins with "crs" stands for rules of the engine's.
type File struct{ Name, Path string }

// Range is the IDs of rules from First to Last.
type Range struct{ First, Last int }

// Settings select rules, and bound what they see.
type Settings struct {
	Files     []File  // in this order
	Without   []Range // rules of them that are left out
	Mode      Mode
	Content   int           // bytes of a message's content that rules see
	Reject    bool          // a request with more content is refused; otherwise rules see the beginning
	Timeout   time.Duration // of an evaluation, with the wait for it
	Responses bool          // responses are evaluated too
	Check     bool          // the rules are compiled for their errors alone: no log that they name is made
}

// Compiler reads rules. An error in a file is a *FileError, or several that errors.Join has joined.
type Compiler func(Settings) (Ruleset, error)

// FileError is an error in a file of rules.
type FileError struct {
	File    File
	Path    string // where it is, if a file that File includes has it; "" is File's
	Line    int    // from 1; 0 is the file as a whole
	Source  string // the line
	Message string
	Hint    string
}

func (e *FileError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File.Path, e.Line, e.Message) }

// Ruleset is a compiled set of rules. Any goroutine may call Begin.
type Ruleset interface {
	Begin() Transaction
	// Close frees what the rules have taken. Transactions that were begun may go on.
	Close() error
}

// Transaction is the evaluation of one request and its response, by one goroutine at a time. Its methods are called in this order, and each at
// most once.
type Transaction interface {
	// Request evaluates the header of a request, and what rules ask of one without content if ends.
	Request(r *Request, ends bool) Verdict
	// Content evaluates the content of the request. It borrows p.
	Content(p []byte) Verdict
	// Response evaluates the header of a response, and what rules ask of one without content if ends.
	Response(r *Response, ends bool) Verdict
	// ResponseContent evaluates the content of the response. It borrows p.
	ResponseContent(p []byte) Verdict
	// Close ends the transaction, and returns the matches of all of it: some rules see what has become of a message.
	Close() (matched []int)
}

// Request is the header of a request. It depends on no memory of a connection.
type Request struct {
	Client, Server           netip.AddrPort
	Method, Target, Protocol string
	Host                     string
	Fields                   []semantics.Field
}

// Response is the header of a response.
type Response struct {
	Status   int
	Protocol string
	Fields   []semantics.Field
}

// Verdict is the result of a call.
type Verdict struct {
	Status  int   // that the client is answered; 0: the message passes
	Rule    int   // the ID of the rule that has denied it
	Matched []int // IDs of all rules so far that have matched and that log
	Content bool  // rules ask for the content of the message
}

// AppendReason appends what the access log has of a verdict: the rule that denies, and those that have matched.
func (v *Verdict) AppendReason(b []byte) []byte {
	if v.Rule == 0 && len(v.Matched) == 0 {
		return b
	}
	b = append(b, "waf"...)
	if v.Rule != 0 {
		b = fmt.Appendf(b, " %d", v.Rule)
	}
	sep := byte('(')
	for _, id := range v.Matched {
		if id == v.Rule {
			continue
		}
		if sep == '(' {
			b = append(b, ' ')
		}
		b = fmt.Appendf(append(b, sep), "%d", id)
		sep = ' '
	}
	if sep == ' ' {
		b = append(b, ')')
	}
	return b
}
