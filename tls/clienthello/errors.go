package clienthello

import "errors"

// Kinds of errors, for errors.Is.
var (
	// ErrIncomplete reports that the bytes so far are the beginning of a ClientHello.
	ErrIncomplete = errors.New("clienthello: incomplete")
	// ErrNotTLS reports that the stream does not begin with a TLS handshake record.
	ErrNotTLS = errors.New("clienthello: not TLS")
	// ErrMalformed reports that the records or the ClientHello break the protocol.
	ErrMalformed = errors.New("clienthello: malformed")
	// ErrTooLarge reports that the ClientHello exceeds the limit.
	ErrTooLarge = errors.New("clienthello: too large")
)

// Alert is a code of an alert (RFC 8446 6).
type Alert uint8

// The alerts that a server answers a bad ClientHello with, and a proxy that knows no server for it.
const (
	AlertUnexpectedMessage Alert = 10
	AlertRecordOverflow    Alert = 22
	AlertHandshakeFailure  Alert = 40
	AlertIllegalParameter  Alert = 47
	AlertAccessDenied      Alert = 49
	AlertDecodeError       Alert = 50
	AlertProtocolVersion   Alert = 70
	AlertInternalError     Alert = 80
	AlertUnrecognizedName  Alert = 112
)

// Append appends the record of the alert, fatal and in the clear, to dst. Its version is that of
// TLS 1.2, which every version accepts here (RFC 8446 5.1).
func (a Alert) Append(dst []byte) []byte {
	return append(dst, recordAlert, 3, 3, 0, 2, 2, byte(a))
}

// Error is the reason why a stream has no ClientHello. All are variables of the package: none is allocated.
type Error struct {
	Kind  error // ErrNotTLS, ErrMalformed or ErrTooLarge
	Alert Alert // what a server sends; a peer that does not speak TLS understands none
	What  string
}

// Error returns the kind and the element at fault.
func (e *Error) Error() string { return e.Kind.Error() + ": " + e.What }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

func malformed(what string) *Error { return &Error{ErrMalformed, AlertDecodeError, what} }

func illegal(what string) *Error { return &Error{ErrMalformed, AlertIllegalParameter, what} }

var (
	errRecordType    = &Error{ErrNotTLS, AlertUnexpectedMessage, "no handshake record"}
	errRecordVersion = &Error{ErrNotTLS, AlertProtocolVersion, "unknown version of the record"}
	errRecordLength  = &Error{ErrMalformed, AlertRecordOverflow, "record of more than 16384 bytes"}
	errRecordEmpty   = &Error{ErrMalformed, AlertUnexpectedMessage, "empty handshake record"}
	errInterleaved   = &Error{ErrMalformed, AlertUnexpectedMessage, "other record inside of the ClientHello"}
	errMessageType   = &Error{ErrMalformed, AlertUnexpectedMessage, "handshake does not begin with a ClientHello"}
	errTooLarge      = &Error{ErrTooLarge, AlertHandshakeFailure, "exceeds the limit"}
	errExtensions    = &Error{ErrTooLarge, AlertHandshakeFailure, "too many extensions"}

	errShort       = malformed("cut short")
	errTrailing    = malformed("bytes after the extensions")
	errSessionID   = malformed("session ID")
	errSuites      = malformed("cipher suites")
	errCompression = malformed("compression methods")
	errExtension   = malformed("length of an extension")
	errServerName  = malformed("server_name")
	errALPN        = malformed("application_layer_protocol_negotiation")
	errVersions    = malformed("supported_versions")
	errGroups      = malformed("supported_groups")
	errPoints      = malformed("ec_point_formats")
	errSignatures  = malformed("signature_algorithms")
	errDuplicate   = illegal("extension sent twice")
	errHostName    = illegal("host name with bytes that no name has")
	errPSKNotLast  = illegal("pre_shared_key is not the last extension")
)
