package http1

import (
	"errors"
	"fmt"
)

// Error is a message that the machine refuses. It ends the connection.
type Error struct {
	Status int // what a server answers before it closes; a proxy answers 502 where a backend's response is refused
	Text   string
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

func refuse(status int, text string) *Error { return &Error{status, text} }

// What is refused. The errors are made once: an attacker decides how often they are needed.
var (
	errBareLF        = refuse(400, "a line that ends without CR")
	errEmptyLine     = refuse(400, "an empty line in place of the start line")
	errRequestLine   = refuse(400, "the request line is not a method, a target and a version with one space between")
	errMethod        = refuse(400, "the method is no token")
	errTarget        = refuse(400, "the request target has a character that is not permitted, or no valid form")
	errAuthority     = refuse(400, "the authority has a character that is not permitted, or user information")
	errVersion       = refuse(505, "the version is not 1.0 or 1.1")
	errStatusLine    = refuse(502, "the status line is not a version, three digits and a reason")
	errName          = refuse(400, "a field name that is empty or no token, such as one with a blank before the colon")
	errValue         = refuse(400, "a field value with a character that is not permitted")
	errFold          = refuse(400, "a field line that begins with a blank")
	errHostMissing   = refuse(400, "Host is missing")
	errHostRepeated  = refuse(400, "Host comes twice")
	errHostDiffers   = refuse(400, "Host differs from the authority of the target")
	errLength        = refuse(400, "Content-Length is not one number")
	errLengthChunked = refuse(400, "Content-Length beside Transfer-Encoding")
	errCoding        = refuse(501, "a transfer coding other than chunked")
	errCodingOld     = refuse(400, "Transfer-Encoding in HTTP/1.0")
	errConnectBody   = refuse(400, "CONNECT with content")
	errUpgradeBody   = refuse(400, "Upgrade with content")
	errExpectation   = refuse(417, "an expectation other than one 100-continue")
	errChunkSize     = refuse(400, "a chunk whose size is not hexadecimal, too large or not followed by CRLF")
	errChunkEnd      = refuse(400, "a chunk that is longer than its size")
	errExtensions    = refuse(400, "too many bytes of chunk extensions")
	errTrailer       = refuse(400, "a trailer field that frames, routes or belongs to the connection")
	errTargetLong    = refuse(414, "the request line exceeds the limit")
	errHeadLong      = refuse(431, "the header exceeds the limit")
	errFieldsMany    = refuse(431, "more field lines than the limit")
	errTrailersLong  = refuse(400, "the trailers exceed the limit")
	errCutHead       = refuse(400, "the connection ends within a header")
	errCutContent    = refuse(400, "the connection ends within the content")
	errUnsolicited   = refuse(502, "bytes without a request")
	errInterimBody   = refuse(502, "an interim response with content")
	errNoUpgrade     = refuse(502, "101 without a request for it")
)
