package http1

import (
	"errors"
	"fmt"
)

// Error is a message that the machine refuses. It ends the connection.
type Error struct {
	Status int // what a server answers before it closes; a proxy answers 502 where a backend's response is refused
	Reason Reason
	Text   string
}

// Reason classifies the rule that a message breaks, for counters.
type Reason uint8

// Values of Reason.
const (
	Syntax      Reason = iota // of lines, names and values
	Framing                   // Content-Length, Transfer-Encoding and chunks
	Host                      // or another authority
	Target                    // of the request
	Version                   // or another protocol
	Size                      // a limit
	Trailer                   // a field that must not come after the content
	Expectation               // that is not known
	Incomplete                // the connection ends within the message
	Unsolicited               // a response, or a change of protocol, that was not requested
	Reasons                   // how many there are
)

// String returns a name for labels.
func (r Reason) String() string {
	return [Reasons]string{"syntax", "framing", "host", "target", "version", "size", "trailer", "expectation", "incomplete", "unsolicited"}[r]
}

// Error describes what was wrong with the message.
func (e *Error) Error() string { return fmt.Sprintf("http1: %s (status %d)", e.Text, e.Status) }

// Errors of the sending side. They are faults of the caller, and nothing was appended.
var (
	ErrNoRequest  = errors.New("http1: a response without a request")
	ErrInProgress = errors.New("http1: the message before is not complete")
	ErrLength     = errors.New("http1: the content is not as long as Content-Length says")
	ErrNotChunked = errors.New("http1: trailers need the chunked coding")
)

func refuse(status int, r Reason, text string) *Error { return &Error{status, r, text} }

// What is refused. The errors are made once: an attacker decides how often they are needed.
var (
	errBareLF        = refuse(400, Syntax, "a line that ends without CR")
	errEmptyLine     = refuse(400, Syntax, "an empty line in place of the start line")
	errRequestLine   = refuse(400, Syntax, "the request line is not a method, a target and a version with one space between")
	errMethod        = refuse(400, Syntax, "the method is no token")
	errTarget        = refuse(400, Target, "the request target has a character that is not permitted, or no valid form")
	errAuthority     = refuse(400, Host, "the authority has a character that is not permitted, or user information")
	errVersion       = refuse(505, Version, "the version is not 1.0 or 1.1")
	errStatusLine    = refuse(502, Syntax, "the status line is not a version, three digits and a reason")
	errName          = refuse(400, Syntax, "a field name that is empty or no token, such as one with a blank before the colon")
	errValue         = refuse(400, Syntax, "a field value with a character that is not permitted")
	errFold          = refuse(400, Syntax, "a field line that begins with a blank")
	errHostMissing   = refuse(400, Host, "Host is missing")
	errHostRepeated  = refuse(400, Host, "Host comes twice")
	errHostDiffers   = refuse(400, Host, "Host differs from the authority of the target")
	errLength        = refuse(400, Framing, "Content-Length is not one number")
	errLengthChunked = refuse(400, Framing, "Content-Length beside Transfer-Encoding")
	errCoding        = refuse(501, Framing, "a transfer coding other than chunked")
	errCodingOld     = refuse(400, Framing, "Transfer-Encoding in HTTP/1.0")
	errConnectBody   = refuse(400, Framing, "CONNECT with content")
	errContentOld    = refuse(400, Framing, "content of GET, HEAD or DELETE in HTTP/1.0")
	errUpgradeBody   = refuse(400, Framing, "Upgrade with content")
	errExpectation   = refuse(417, Expectation, "an expectation other than one 100-continue")
	errChunkSize     = refuse(400, Framing, "a chunk whose size is not hexadecimal, too large or not followed by CRLF")
	errChunkEnd      = refuse(400, Framing, "a chunk that is longer than its size")
	errExtensions    = refuse(400, Size, "too many bytes of chunk extensions")
	errTrailer       = refuse(400, Trailer, "a trailer field that frames, routes or belongs to the connection")
	errTargetLong    = refuse(414, Size, "the request line exceeds the limit")
	errHeadLong      = refuse(431, Size, "the header exceeds the limit")
	errFieldsMany    = refuse(431, Size, "more field lines than the limit")
	errTrailersLong  = refuse(400, Size, "the trailers exceed the limit")
	errCutHead       = refuse(400, Incomplete, "the connection ends within a header")
	errCutContent    = refuse(400, Incomplete, "the connection ends within the content")
	errUnsolicited   = refuse(502, Unsolicited, "bytes without a request")
	errInterimBody   = refuse(502, Framing, "an interim response with content")
	errNoUpgrade     = refuse(502, Unsolicited, "101 without a request for it")
)
