package websocket

import (
	"encoding/binary"
	"fmt"
)

// Role is the end of a connection: a client masks what it sends, a server does not (RFC 6455 5.1).
type Role uint8

// Values of Role.
const (
	Server Role = iota
	Client
)

// String returns the role's name.
func (r Role) String() string {
	if r == Client {
		return "client"
	}
	return "server"
}

// Opcode is the type of a frame (RFC 6455 5.2). Text and Binary are also the types of messages.
type Opcode uint8

// Values of Opcode. The others are reserved.
const (
	Continuation Opcode = 0x0
	Text         Opcode = 0x1 // the message is UTF-8
	Binary       Opcode = 0x2
	opClose      Opcode = 0x8
	opPing       Opcode = 0x9
	opPong       Opcode = 0xA
)

// String returns the name of the opcode in RFC 6455.
func (o Opcode) String() string {
	switch o {
	case Continuation:
		return "continuation"
	case Text:
		return "text"
	case Binary:
		return "binary"
	case opClose:
		return "close"
	case opPing:
		return "ping"
	case opPong:
		return "pong"
	}
	return fmt.Sprintf("opcode %#x", uint8(o))
}

// isControl reports whether frames of the opcode are control frames: the top bit of four (RFC 6455 5.5).
func (o Opcode) isControl() bool { return o&0x8 != 0 }

// isMessage reports whether the opcode is a type of message.
func (o Opcode) isMessage() bool { return o == Text || o == Binary }

// The bits of a frame's first two bytes (RFC 6455 5.2):
//
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
//	+-+-+-+-+-------+-+-------------+
//	|F|R|R|R| opcode|M| length  (7) |
//	|I|S|S|S|  (4)  |A|  126: 16 bits follow
//	|N|V|V|V|       |S|  127: 64 bits follow
//	| |1|2|3|       |K|             |
//	+-+-+-+-+-------+-+-------------+
const (
	bitFin     = 0x80
	bitRSV1    = 0x40 // RFC 7692 6: the message is compressed
	bitsRSV23  = 0x30
	maskOpcode = 0x0F
	bitMask    = 0x80
	maskLength = 0x7F

	length16 = 126
	length64 = 127

	// maxControl is the most payload of a control frame (RFC 6455 5.5).
	maxControl = 125

	// maxHeader is the longest header: two bytes, a 64-bit length, the masking key.
	maxHeader = 14
)

// header is a decoded frame header. first has the flags and the opcode as they came.
type header struct {
	first   byte
	masked  bool
	minimal bool   // the length has its shortest encoding
	length  uint64 // of the payload, in bytes
	key     uint32 // the masking key as a little-endian word
}

func (h header) fin() bool      { return h.first&bitFin != 0 }
func (h header) opcode() Opcode { return Opcode(h.first & maskOpcode) }

// headerSize returns the size of a header from its second byte.
func headerSize(second byte) int {
	n := 2
	switch second & maskLength {
	case length16:
		n += 2
	case length64:
		n += 8
	}
	if second&bitMask != 0 {
		n += 4
	}
	return n
}

// parseHeader decodes the header that b begins with and returns its size, 0 if b ends before it does.
func parseHeader(b []byte) (h header, n int) {
	if len(b) < 2 {
		return h, 0
	}
	if n = headerSize(b[1]); len(b) < n {
		return h, 0
	}
	h.first, h.masked = b[0], b[1]&bitMask != 0
	switch short := uint64(b[1] & maskLength); short {
	case length16:
		h.length = uint64(binary.BigEndian.Uint16(b[2:]))
		h.minimal = h.length >= length16
	case length64:
		h.length = binary.BigEndian.Uint64(b[2:])
		h.minimal = h.length > 0xFFFF
	default:
		h.length, h.minimal = short, true
	}
	if h.masked {
		h.key = binary.LittleEndian.Uint32(b[n-4 : n])
	}
	return h, n
}

// appendHeader appends a header with the shortest encoding of the length, without a masking key.
func appendHeader(dst []byte, first byte, mask byte, length int) []byte {
	switch {
	case length < length16:
		return append(dst, first, mask|byte(length))
	case length <= 0xFFFF:
		return append(dst, first, mask|length16, byte(length>>8), byte(length))
	}
	return binary.BigEndian.AppendUint64(append(dst, first, mask|length64), uint64(length))
}
