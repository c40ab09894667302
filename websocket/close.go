package websocket

import (
	"errors"
	"fmt"
	"strconv"
)

// CloseCode is the status code of a Close frame (RFC 6455 7.4).
type CloseCode uint16

// Values of CloseCode: RFC 6455 7.4.1 and the registry that it opens. 3000 to 3999 are for
// registration by libraries and frameworks, 4000 to 4999 for private use.
const (
	CloseNormal             CloseCode = 1000
	CloseGoingAway          CloseCode = 1001
	CloseProtocolError      CloseCode = 1002
	CloseUnsupportedData    CloseCode = 1003
	CloseNoStatus           CloseCode = 1005 // never sent: the Close frame has no code
	CloseAbnormal           CloseCode = 1006 // never sent: the stream ended without a Close frame
	CloseInvalidPayload     CloseCode = 1007
	ClosePolicyViolation    CloseCode = 1008
	CloseMessageTooBig      CloseCode = 1009
	CloseMandatoryExtension CloseCode = 1010
	CloseInternalError      CloseCode = 1011
	CloseServiceRestart     CloseCode = 1012
	CloseTryAgainLater      CloseCode = 1013
	CloseBadGateway         CloseCode = 1014
	CloseTLSHandshake       CloseCode = 1015 // never sent
)

var closeNames = map[CloseCode]string{
	CloseNormal:             "normal closure",
	CloseGoingAway:          "going away",
	CloseProtocolError:      "protocol error",
	CloseUnsupportedData:    "unsupported data",
	CloseNoStatus:           "no status received",
	CloseAbnormal:           "abnormal closure",
	CloseInvalidPayload:     "invalid payload data",
	ClosePolicyViolation:    "policy violation",
	CloseMessageTooBig:      "message too big",
	CloseMandatoryExtension: "mandatory extension",
	CloseInternalError:      "internal error",
	CloseServiceRestart:     "service restart",
	CloseTryAgainLater:      "try again later",
	CloseBadGateway:         "bad gateway",
	CloseTLSHandshake:       "TLS handshake",
}

// String returns the number and, if it has one, the name.
func (c CloseCode) String() string {
	if name := closeNames[c]; name != "" {
		return strconv.Itoa(int(c)) + " (" + name + ")"
	}
	return strconv.Itoa(int(c))
}

// Valid reports whether a Close frame may have the code (RFC 6455 7.4.2).
func (c CloseCode) Valid() bool {
	switch {
	case c == 1004, c == CloseNoStatus, c == CloseAbnormal:
		return false
	case c >= CloseNormal && c <= CloseBadGateway:
		return true
	}
	return c >= 3000 && c <= 4999
}

// CloseError reports that the peer closed the connection. Its Code is CloseNoStatus if the Close
// frame had none.
type CloseError struct {
	Code   CloseCode
	Reason string // UTF-8, from the peer, at most 123 bytes
}

// Error describes the Close frame.
func (e *CloseError) Error() string {
	if e.Reason == "" {
		return "websocket: closed by the peer: " + e.Code.String()
	}
	return fmt.Sprintf("websocket: closed by the peer: %v: %q", e.Code, e.Reason)
}

// ProtocolError reports that the peer broke the protocol or exceeded a limit. The connection must be
// failed: send a Close frame with Code, then close the stream (RFC 6455 7.1.7).
type ProtocolError struct {
	Code CloseCode
	Text string // what was wrong
	RFC  string // the section that forbids it, empty for limits
}

// Error describes the violation.
func (e *ProtocolError) Error() string {
	if e.RFC == "" {
		return "websocket: " + e.Text
	}
	return "websocket: " + e.Text + " (RFC " + e.RFC + ")"
}

// The violations that a Machine reports.
var (
	errReservedBits     = &ProtocolError{CloseProtocolError, "reserved bit set", "6455 5.2"}
	errReservedOpcode   = &ProtocolError{CloseProtocolError, "reserved opcode", "6455 5.2"}
	errLength           = &ProtocolError{CloseProtocolError, "length not in its shortest encoding, or its top bit set", "6455 5.2"}
	errNotMasked        = &ProtocolError{CloseProtocolError, "frame of a client not masked", "6455 5.1"}
	errMasked           = &ProtocolError{CloseProtocolError, "frame of a server masked", "6455 5.1"}
	errControlFragment  = &ProtocolError{CloseProtocolError, "control frame fragmented", "6455 5.5"}
	errControlLength    = &ProtocolError{CloseProtocolError, "control frame longer than 125 bytes", "6455 5.5"}
	errNoMessage        = &ProtocolError{CloseProtocolError, "continuation frame outside of a message", "6455 5.4"}
	errInMessage        = &ProtocolError{CloseProtocolError, "new message inside of a fragmented one", "6455 5.4"}
	errUTF8             = &ProtocolError{CloseInvalidPayload, "text is not UTF-8", "6455 8.1"}
	errCloseLength      = &ProtocolError{CloseProtocolError, "close frame of one byte", "6455 5.5.1"}
	errCloseCode        = &ProtocolError{CloseProtocolError, "close code that must not be sent", "6455 7.4"}
	errDeflate          = &ProtocolError{CloseInvalidPayload, "compressed message is not DEFLATE data", "7692 7.2.2"}
	errFrameTooBig      = &ProtocolError{CloseMessageTooBig, "frame exceeds the limit", ""}
	errMessageTooBig    = &ProtocolError{CloseMessageTooBig, "message exceeds the limit", ""}
	errTooManyFragments = &ProtocolError{ClosePolicyViolation, "message has more fragments than the limit", ""}
	errConnTooBig       = &ProtocolError{ClosePolicyViolation, "connection received more than the limit", ""}
	errRatio            = &ProtocolError{CloseMessageTooBig, "compression ratio exceeds the limit", ""}
)

// Errors of the sending side. They are faults of the caller, and nothing was appended.
var (
	ErrCloseSent   = errors.New("websocket: close frame already sent")
	ErrMessageOpen = errors.New("websocket: fragmented message not finished")
	ErrOpcode      = errors.New("websocket: not a type of message")
	ErrControlSize = errors.New("websocket: control frame longer than 125 bytes")
	ErrCloseCode   = errors.New("websocket: close code that must not be sent")
	ErrCloseReason = errors.New("websocket: close reason is not UTF-8")
)
