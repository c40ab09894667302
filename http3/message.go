package http3

import "github.com/millrace/millrace/semantics"

// Message is the control data of a message, after validation, and its fields. Its strings are those of the field section.
type Message = semantics.Message

// violations are the errors of what package semantics finds. They are made once: an attacker decides how often they are
// needed.
var violations = newViolations()

func newViolations() (e [semantics.Violations]error) {
	for v := range semantics.Violations {
		e[v] = malformed(v.Error())
	}
	return e
}

// invalid returns the error of a violation.
func invalid(err error) error {
	if v, ok := err.(semantics.Violation); ok { //nolint:errorlint // it comes as it is
		return violations[v]
	}
	return err
}

// Violations that are found while content arrives.
var (
	errLengthDiffers = malformed("the content is not as long as Content-Length says")
	errNoHeaders     = malformed("the response ends before its header")
	errIncomplete    = error(&StreamError{Code: RequestIncomplete, Text: "the request ends before it is complete"})
)
