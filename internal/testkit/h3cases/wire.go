package h3cases

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// varint encodes an integer of QUIC in the fewest bytes.
func varint(v uint64) string {
	switch {
	case v < 1<<6:
		return string([]byte{byte(v)})
	case v < 1<<14:
		return string(binary.BigEndian.AppendUint16(nil, uint16(v)|1<<14))
	case v < 1<<30:
		return string(binary.BigEndian.AppendUint32(nil, uint32(v)|2<<30))
	}
	return string(binary.BigEndian.AppendUint64(nil, v|3<<62))
}

// readVarint decodes one, with its size; 0 if it is cut.
func readVarint(s string) (v uint64, n int) {
	if s == "" {
		return 0, 0
	}
	n = 1 << (s[0] >> 6)
	if len(s) < n {
		return 0, 0
	}
	v = uint64(s[0] & 63)
	for i := 1; i < n; i++ {
		v = v<<8 | uint64(s[i])
	}
	return v, n
}

// frame encodes a frame.
func frame(kind uint64, payload string) string {
	return varint(kind) + varint(uint64(len(payload))) + payload
}

// Types of frames and streams.
const (
	data           = 0x0
	headersType    = 0x1
	cancelPush     = 0x3
	settingsType   = 0x4
	pushPromise    = 0x5
	goAway         = 0x7
	maxPushID      = 0xd
	priority       = 0xf0700
	priorityOfPush = 0xf0701
	grease         = 0x1f*7 + 0x21

	controlStream, pushStreamType, encoderStream, decoderStream = "\x00", "\x01", "\x02", "\x03"
)

// section encodes fields, name after value after name, as literals without tables or Huffman code.
func section(fields ...string) string {
	var b strings.Builder
	b.WriteString("\x00\x00")
	for i := 0; i < len(fields); i += 2 {
		b.WriteString(prefixed(0x20, 3, len(fields[i])) + fields[i])
		b.WriteString(prefixed(0, 7, len(fields[i+1])) + fields[i+1])
	}
	return b.String()
}

// prefixed encodes an integer of RFC 7541 5.1.
func prefixed(first byte, bits uint, v int) string {
	limit := 1<<bits - 1
	if v < limit {
		return string([]byte{first | byte(v)})
	}
	b := []byte{first | byte(limit)}
	for v -= limit; v >= 128; v >>= 7 {
		b = append(b, byte(v)|128)
	}
	return string(append(b, byte(v)))
}

// headers encodes a HEADERS frame.
func headers(fields ...string) string { return frame(headersType, section(fields...)) }

// request returns HEADERS of a valid request with further fields.
func request(method, path string, more ...string) string {
	return headers(append([]string{":method", method, ":scheme", "https", ":authority", "h3.example", ":path", path}, more...)...)
}

// settings encodes a SETTINGS frame of identifiers and values.
func settings(pairs ...uint64) string {
	var p string
	for _, v := range pairs {
		p += varint(v)
	}
	return frame(settingsType, p)
}

// statuses of the static table (RFC 9204 Appendix A).
var statuses = map[int]int{
	24: 103, 25: 200, 26: 304, 27: 404, 28: 503, 63: 100, 64: 204, 65: 206, 66: 302, 67: 400, 68: 403, 69: 421, 70: 425, 71: 500,
}

// status returns :status of a field section that refers to the static table only.
func status(s string) (int, error) {
	if len(s) < 3 || s[:2] != "\x00\x00" {
		return 0, fmt.Errorf("field section %x refers to a table that was not permitted", s)
	}
	b := s[2]
	switch {
	case b&0xC0 == 0xC0:
		index := int(b & 63)
		if index == 63 {
			index += int(s[3])
		}
		if n, found := statuses[index]; found {
			return n, nil
		}
	case b&0xF0 == 0x50:
		at := 3
		if b&15 == 15 {
			at++
		}
		return digits(s[at:])
	}
	return 0, fmt.Errorf("the field section %x does not begin with :status", s)
}

// digits decodes a literal of three digits.
func digits(s string) (n int, err error) {
	if len(s) < 3 {
		return 0, errors.New("a status that is cut")
	}
	if s[0]&0x80 == 0 {
		_, err = fmt.Sscanf(s[1:4], "%d", &n)
		return n, err
	}
	// In the Huffman code 0 to 2 are 00000 to 00010, and 3 to 9 are 011001 to 011111.
	bits := ""
	for i := range int(s[0] & 0x7F) {
		bits += fmt.Sprintf("%08b", s[1+i])
	}
	for range 3 {
		var v int
		if _, err := fmt.Sscanf(bits[:5], "%b", &v); err != nil {
			return 0, err
		}
		if bits = bits[5:]; v > 2 {
			v = v<<1 | int(bits[0]-'0')
			bits = bits[1:]
			v -= 0b011001 - 3
		}
		n = n*10 + v
	}
	return n, nil
}
