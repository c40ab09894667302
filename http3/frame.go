package http3

import "encoding/binary"

// Types of frames (RFC 9114 7.2, RFC 9218 7.1).
const (
	frameData          = 0x0
	frameHeaders       = 0x1
	frameCancelPush    = 0x3
	frameSettings      = 0x4
	framePushPromise   = 0x5
	frameGoAway        = 0x7
	frameMaxPushID     = 0xd
	framePriority      = 0xf0700 // PRIORITY_UPDATE of a request
	framePriorityPush  = 0xf0701 // PRIORITY_UPDATE of a push
	frameWebTransport  = 0x41    // begins a bidirectional stream of a session, has no length
	maxVarint          = 1<<62 - 1
	maxFrameHeader     = 16
	maxControlFrame    = 16 << 10 // bytes of a control frame that is kept
	firstReservedH2    = 0x2      // with 0x6, 0x8 and 0x9: of HTTP/2 (RFC 9114 7.2.8)
	streamControl      = 0x0
	streamPush         = 0x1
	streamEncoder      = 0x2
	streamDecoder      = 0x3
	streamWebTransport = 0x54
	settingTable       = 0x1
	settingSection     = 0x6
	settingBlocked     = 0x7
	settingConnect     = 0x8
	settingDatagram    = 0x33

	// Limits of a session of WebTransport at its begin (draft 9.2).
	settingSessionData       = 0x2b61
	settingSessionUniStreams = 0x2b64
	settingSessionStreams    = 0x2b65

	// How WebTransport is enabled has changed from draft to draft.
	settingSessionsOldest = 0x2b603742 // SETTINGS_ENABLE_WEBTRANSPORT, to draft 6
	settingSessionsOld    = 0xc671706a // SETTINGS_WEBTRANSPORT_MAX_SESSIONS, to draft 13
	settingSessions14     = 0x14e9cd29 // SETTINGS_WT_MAX_SESSIONS, draft 14
	settingSessions       = 0x2c7cf000 // SETTINGS_WT_ENABLED, from draft 15
)

// reservedH2 reports whether a frame type is one of HTTP/2 that HTTP/3 has none for.
func reservedH2(t uint64) bool { return t == firstReservedH2 || t == 0x6 || t == 0x8 || t == 0x9 }

// A variable-length integer (RFC 9000 16) has in the top two bits of its first byte the power of two of its
// bytes.

// appendVarint appends v in the shortest form. It must be below 2^62.
func appendVarint(dst []byte, v uint64) []byte {
	switch {
	case v < 1<<6:
		return append(dst, byte(v))
	case v < 1<<14:
		return append(dst, byte(v>>8)|0x40, byte(v))
	case v < 1<<30:
		return binary.BigEndian.AppendUint32(dst, uint32(v)|0x80<<24)
	}
	return binary.BigEndian.AppendUint64(dst, v|0xC0<<56)
}

// varint parses an integer and returns its size in bytes, 0 if it is cut.
func varint(p []byte) (v uint64, n int) {
	if len(p) == 0 {
		return 0, 0
	}
	n = 1 << (p[0] >> 6)
	if len(p) < n {
		return 0, 0
	}
	switch n {
	case 1:
		return uint64(p[0]), 1
	case 2:
		return uint64(binary.BigEndian.Uint16(p)) & (1<<14 - 1), 2
	case 4:
		return uint64(binary.BigEndian.Uint32(p)) & (1<<30 - 1), 4
	}
	return binary.BigEndian.Uint64(p) & maxVarint, 8
}

// varintSize returns the bytes of v.
func varintSize(v uint64) int {
	switch {
	case v < 1<<6:
		return 1
	case v < 1<<14:
		return 2
	case v < 1<<30:
		return 4
	}
	return 8
}

// frameHeader parses type and length of a frame (RFC 9114 7.1) and returns their size, 0 if it is cut.
func frameHeader(p []byte) (kind, length uint64, n int) {
	kind, a := varint(p)
	if a == 0 {
		return 0, 0, 0
	}
	length, b := varint(p[a:])
	if b == 0 {
		return kind, 0, 0
	}
	return kind, length, a + b
}

func appendFrameHeader(dst []byte, kind, length uint64) []byte {
	return appendVarint(appendVarint(dst, kind), length)
}

// appendVarintFrame appends a frame whose payload is an integer.
func appendVarintFrame(dst []byte, kind, v uint64) []byte {
	return appendVarint(appendFrameHeader(dst, kind, uint64(varintSize(v))), v)
}
