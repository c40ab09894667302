package http3

import (
	"fmt"

	"github.com/millrace/millrace/http3/qpack"
)

// ErrorCode is an error code of HTTP/3, with which a stream or the connection ends (RFC 9114 8.1).
type ErrorCode uint64

// Error codes of RFC 9114 8.1, RFC 9204 6, RFC 9297 5.2 and draft-ietf-webtrans-http3.
const (
	DatagramError        ErrorCode = 0x33
	NoError              ErrorCode = 0x100
	GeneralProtocolError ErrorCode = 0x101
	InternalError        ErrorCode = 0x102
	StreamCreationError  ErrorCode = 0x103
	ClosedCriticalStream ErrorCode = 0x104
	FrameUnexpected      ErrorCode = 0x105
	FrameError           ErrorCode = 0x106
	ExcessiveLoad        ErrorCode = 0x107
	IDError              ErrorCode = 0x108
	SettingsError        ErrorCode = 0x109
	MissingSettings      ErrorCode = 0x10a
	RequestRejected      ErrorCode = 0x10b
	RequestCancelled     ErrorCode = 0x10c
	RequestIncomplete    ErrorCode = 0x10d
	MessageError         ErrorCode = 0x10e
	ConnectError         ErrorCode = 0x10f
	VersionFallback      ErrorCode = 0x110

	QPACKDecompressionFailed ErrorCode = ErrorCode(qpack.CodeDecompressionFailed)
	QPACKEncoderStreamError  ErrorCode = ErrorCode(qpack.CodeEncoderStreamError)
	QPACKDecoderStreamError  ErrorCode = ErrorCode(qpack.CodeDecoderStreamError)

	// Of WebTransport: a stream of a session that is not there in time, and of one that has ended; a session that
	// exceeds its limits.
	WTBufferedStreamRejected ErrorCode = 0x3994bd84
	WTSessionGone            ErrorCode = 0x170d7b68
	WTFlowControlError       ErrorCode = 0x045d4487
)

var codeNames = [...]string{
	"H3_NO_ERROR", "H3_GENERAL_PROTOCOL_ERROR", "H3_INTERNAL_ERROR", "H3_STREAM_CREATION_ERROR", "H3_CLOSED_CRITICAL_STREAM",
	"H3_FRAME_UNEXPECTED", "H3_FRAME_ERROR", "H3_EXCESSIVE_LOAD", "H3_ID_ERROR", "H3_SETTINGS_ERROR", "H3_MISSING_SETTINGS",
	"H3_REQUEST_REJECTED", "H3_REQUEST_CANCELLED", "H3_REQUEST_INCOMPLETE", "H3_MESSAGE_ERROR", "H3_CONNECT_ERROR", "H3_VERSION_FALLBACK",
}

// String returns the name in the RFC.
func (c ErrorCode) String() string {
	switch {
	case c >= NoError && c <= VersionFallback:
		return codeNames[c-NoError]
	case c == DatagramError:
		return "H3_DATAGRAM_ERROR"
	case c == QPACKDecompressionFailed:
		return "QPACK_DECOMPRESSION_FAILED"
	case c == QPACKEncoderStreamError:
		return "QPACK_ENCODER_STREAM_ERROR"
	case c == QPACKDecoderStreamError:
		return "QPACK_DECODER_STREAM_ERROR"
	}
	return fmt.Sprintf("error code %#x", uint64(c))
}

// ConnError ends a connection.
type ConnError struct {
	Code   ErrorCode
	Text   string
	Remote bool // the peer ended it
}

// Error describes it.
func (e *ConnError) Error() string { return "http3: connection: " + describe(e.Code, e.Text, e.Remote) }

// StreamError ends a stream; the connection works on.
type StreamError struct {
	Code   ErrorCode
	Text   string
	Remote bool // the peer ended it
}

// Error describes it.
func (e *StreamError) Error() string { return "http3: stream: " + describe(e.Code, e.Text, e.Remote) }

func describe(c ErrorCode, text string, remote bool) string {
	s := c.String()
	if remote {
		s += " by the peer"
	}
	if text != "" {
		s += ": " + text
	}
	return s
}

func connError(c ErrorCode, text string) error { return &ConnError{Code: c, Text: text} }

// malformed is the error of a message that RFC 9114 4.1.2 calls so. Only its stream ends.
func malformed(text string) error { return &StreamError{Code: MessageError, Text: text} }
