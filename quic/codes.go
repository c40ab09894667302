package quic

import (
	"crypto/tls"
	"fmt"
)

// StreamID identifies a stream of a connection. Its two low bits say who opened it and whether it is
// unidirectional (RFC 9000 2.1).
type StreamID int64

// Version is a version of QUIC (RFC 9000 15).
type Version uint32

// The versions that this package speaks.
const (
	Version1 Version = 1          // RFC 9000
	Version2 Version = 0x6b3343cf // RFC 9369
)

func (v Version) String() string {
	switch v {
	case Version1:
		return "v1"
	case Version2:
		return "v2"
	}
	return fmt.Sprintf("%#x", uint32(v))
}

// ErrorCode is a transport error code (RFC 9000 20.1). Codes 0x100 to 0x1ff carry a TLS alert
// (RFC 9001 4.8).
type ErrorCode uint64

// Transport error codes of RFC 9000 20.1, and of RFC 9368 (VersionNegotiationError).
const (
	NoError                 ErrorCode = 0x0
	InternalError           ErrorCode = 0x1
	ConnectionRefused       ErrorCode = 0x2
	FlowControlError        ErrorCode = 0x3
	StreamLimitError        ErrorCode = 0x4
	StreamStateError        ErrorCode = 0x5
	FinalSizeError          ErrorCode = 0x6
	FrameEncodingError      ErrorCode = 0x7
	TransportParameterError ErrorCode = 0x8
	ConnectionIDLimitError  ErrorCode = 0x9
	ProtocolViolation       ErrorCode = 0xa
	InvalidToken            ErrorCode = 0xb
	ApplicationErrorCode    ErrorCode = 0xc
	CryptoBufferExceeded    ErrorCode = 0xd
	KeyUpdateError          ErrorCode = 0xe
	AEADLimitReached        ErrorCode = 0xf
	NoViablePath            ErrorCode = 0x10
	VersionNegotiationError ErrorCode = 0x11
)

var codeNames = [...]string{
	"NO_ERROR", "INTERNAL_ERROR", "CONNECTION_REFUSED", "FLOW_CONTROL_ERROR", "STREAM_LIMIT_ERROR",
	"STREAM_STATE_ERROR", "FINAL_SIZE_ERROR", "FRAME_ENCODING_ERROR", "TRANSPORT_PARAMETER_ERROR",
	"CONNECTION_ID_LIMIT_ERROR", "PROTOCOL_VIOLATION", "INVALID_TOKEN", "APPLICATION_ERROR",
	"CRYPTO_BUFFER_EXCEEDED", "KEY_UPDATE_ERROR", "AEAD_LIMIT_REACHED", "NO_VIABLE_PATH",
	"VERSION_NEGOTIATION_ERROR",
}

// Alert returns the TLS alert of a crypto error.
func (c ErrorCode) Alert() (alert uint8, ok bool) {
	return uint8(c), c >= 0x100 && c < 0x200
}

func (c ErrorCode) String() string {
	if int64(c) >= 0 && c < ErrorCode(len(codeNames)) {
		return codeNames[c]
	}
	if alert, ok := c.Alert(); ok {
		return fmt.Sprintf("CRYPTO_ERROR %#x (%v)", uint64(c), tls.AlertError(alert))
	}
	return fmt.Sprintf("error code %#x", uint64(c))
}
