package http2

import "encoding/binary"

// Types of frames (RFC 9113 6).
const (
	frameData uint8 = iota
	frameHeaders
	framePriority
	frameReset
	frameSettings
	framePushPromise
	framePing
	frameGoAway
	frameWindowUpdate
	frameContinuation
)

// Flags of frames.
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

const (
	frameHeaderLen = 9
	maxStreamID    = 1<<31 - 1
	maxWindow      = 1<<31 - 1
	minFrame       = 1 << 14 // what every end accepts (RFC 9113 4.2)
	maxFrame       = 1<<24 - 1
	defaultWindow  = 65535 // until settings say otherwise (RFC 9113 6.9.2)
)

// Preface begins the connection of a client (RFC 9113 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// header is the header of a frame (RFC 9113 4.1):
//
//	length(24) type(8) flags(8) reserved(1) stream(31)
type header struct {
	length int
	kind   uint8
	flags  uint8
	stream uint32
}

func parseHeader(p []byte) header {
	return header{
		length: int(p[0])<<16 | int(p[1])<<8 | int(p[2]), kind: p[3], flags: p[4],
		stream: binary.BigEndian.Uint32(p[5:]) & maxStreamID,
	}
}

func (h *header) has(flag uint8) bool { return h.flags&flag != 0 }

// appendHeader appends the header of a frame.
func appendHeader(dst []byte, length int, kind, flags uint8, stream uint32) []byte {
	return append(dst, byte(length>>16), byte(length>>8), byte(length), kind, flags,
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

// appendWord appends a frame whose payload is one number of 32 bits: RST_STREAM, WINDOW_UPDATE.
func appendWord(dst []byte, kind uint8, stream, value uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHeader(dst, 4, kind, 0, stream), value)
}

// appendGoAway appends GOAWAY (RFC 9113 6.8).
func appendGoAway(dst []byte, last uint32, code ErrorCode) []byte {
	dst = binary.BigEndian.AppendUint32(appendHeader(dst, 8, frameGoAway, 0, 0), last)
	return binary.BigEndian.AppendUint32(dst, uint32(code))
}
