package http2

import (
	"errors"
	"fmt"
)

// ErrorCode is the reason why a stream or the connection ends (RFC 9113 7).
type ErrorCode uint32

// Error codes of RFC 9113 7.
const (
	NoError ErrorCode = iota
	ProtocolError
	InternalError
	FlowControlError
	SettingsTimeout
	StreamClosed
	FrameSizeError
	RefusedStream
	Cancel
	CompressionError
	ConnectError
	EnhanceYourCalm
	InadequateSecurity
	HTTP11Required
)

var codeNames = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
	"REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
}

// String returns the name in the RFC.
func (c ErrorCode) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("error code %d", uint32(c))
}

// ConnError ends the connection. The machine has appended the GOAWAY frame that reports it.
type ConnError struct {
	Code ErrorCode
	Text string
}

// Error describes what was wrong.
func (e *ConnError) Error() string { return fmt.Sprintf("http2: connection: %s: %s", e.Code, e.Text) }

// StreamError ends a stream. The machine has appended the RST_STREAM frame that reports it.
type StreamError struct {
	Code ErrorCode
	Text string
}

// Error describes what was wrong.
func (e *StreamError) Error() string { return fmt.Sprintf("http2: stream: %s: %s", e.Code, e.Text) }

// Errors of the sending side.
var (
	ErrTooManyStreams = errors.New("http2: the peer permits no further stream")
	ErrGoingAway      = errors.New("http2: the peer takes no more requests on the connection")
	ErrStreamEnded    = errors.New("http2: the stream has ended")
	ErrLength         = errors.New("http2: the content is not as long as Content-Length says")
)

func connError(code ErrorCode, text string) error { return &ConnError{code, text} }

func streamError(code ErrorCode, text string) *StreamError { return &StreamError{code, text} }

// What is refused. The errors are made once: an attacker decides how often they are needed.
var (
	errPreface       = connError(ProtocolError, "the connection does not begin with the preface of HTTP/2")
	errFirstFrame    = connError(ProtocolError, "the first frame is not SETTINGS")
	errFrameSize     = connError(FrameSizeError, "a frame exceeds the limit, or has a length that its type does not have")
	errStreamZero    = connError(ProtocolError, "a frame of a stream on the connection")
	errNotStreamZero = connError(ProtocolError, "a frame of the connection on a stream")
	errStreamID      = connError(ProtocolError, "a stream that its sender may not open")
	errIdleStream    = connError(ProtocolError, "a frame on a stream that is idle")
	errClosedStream  = connError(StreamClosed, "a frame on a stream that is closed")
	errContinuation  = connError(ProtocolError, "CONTINUATION without a field block, or another frame within one")
	errBlockSize     = connError(EnhanceYourCalm, "a field block exceeds the limit")
	errPush          = connError(ProtocolError, "PUSH_PROMISE")
	errPadding       = connError(ProtocolError, "padding that is longer than the frame")
	errSettingsValue = connError(ProtocolError, "a setting with a value that is not permitted")
	errWindowSetting = connError(FlowControlError, "an initial window that is too large")
	errWindow        = connError(FlowControlError, "more content than the window of the connection permits")
	errWindowZero    = connError(ProtocolError, "WINDOW_UPDATE of 0")
	errWindowLarge   = connError(FlowControlError, "a window of the connection that is too large")
	errIdleFrames    = connError(EnhanceYourCalm, "too many frames without effect")
	errResets        = connError(EnhanceYourCalm, "too many requests that are reset")
	errUnread        = connError(EnhanceYourCalm, "the peer does not read the answers to its frames")
	errHPACK         = connError(CompressionError, "a field block cannot be decoded")

	errStreamWindow      = streamError(FlowControlError, "more content than the window of the stream permits")
	errStreamWindowZero  = streamError(ProtocolError, "WINDOW_UPDATE of 0")
	errStreamWindowLarge = streamError(FlowControlError, "a window of the stream that is too large")
	errHalfClosed        = streamError(StreamClosed, "a frame after the end of the stream")
	errRefused           = streamError(RefusedStream, "more streams than are permitted, or the connection is going away")
	errDependsOnItself   = streamError(ProtocolError, "a stream that depends on itself")
	errPriority          = streamError(FrameSizeError, "PRIORITY with a wrong length")
	errTrailersNotLast   = streamError(ProtocolError, "trailers that do not end the stream")
	errDataFirst         = streamError(ProtocolError, "content before the header")
	errNoHeader          = streamError(ProtocolError, "the response ends before its header")
	errLengthDiffers     = streamError(ProtocolError, "the content is not as long as Content-Length says")
	errSectionSize       = streamError(EnhanceYourCalm, "a field section exceeds the limit")
	errTunnel            = streamError(ProtocolError, "fields within a tunnel")
)
