package fec

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Scheme is a code.
type Scheme uint8

// The schemes.
const (
	None Scheme = iota // datagrams as they are
	XOR                // one repair symbol for each block
	RLC                // random linear code over a sliding window
)

func (s Scheme) String() string {
	switch s {
	case None:
		return "none"
	case XOR:
		return "xor"
	case RLC:
		return "rlc"
	}
	return fmt.Sprintf("scheme %d", uint8(s))
}

// Symbols on the wire, integers in network byte order. ESI is the encoding symbol ID (RFC 5052 4), a
// count of source symbols from 0 that wraps.
//
//	source: | 0 (1) | ESI (4) | datagram ...
//	repair: | scheme (1) | first ESI (4) | count (1) | key (2) | sum ...
//
// A repair symbol sums, over count source symbols from the first, coefficient * (length (2) |
// datagram | zeros): the length is a part of what is summed, as in RFC 8681 4.2.
const (
	sourceHeader = 5
	repairHeader = 8
	lengthField  = 2
)

// Overhead is the number of bytes shorter that a datagram must be with FEC, so that its repair symbol fits too.
const Overhead = repairHeader + lengthField

// Errors of Decoder.Receive.
var (
	ErrMalformed = errors.New("fec: malformed symbol")
	ErrScheme    = errors.New("fec: repair symbol of a scheme that was not agreed on")
)

// repair is the header of a repair symbol.
type repair struct {
	scheme Scheme
	first  uint32
	count  int
	key    uint16
}

func appendSource(dst []byte, esi uint32, payload []byte) []byte {
	dst = append(dst, 0)
	dst = binary.BigEndian.AppendUint32(dst, esi)
	return append(dst, payload...)
}

func (r *repair) append(dst []byte) []byte {
	dst = append(dst, byte(r.scheme))
	dst = binary.BigEndian.AppendUint32(dst, r.first)
	dst = append(dst, byte(r.count))
	return binary.BigEndian.AppendUint16(dst, r.key)
}

func parseRepair(b []byte) (r repair, sum []byte, err error) {
	if len(b) < repairHeader+lengthField {
		return r, nil, ErrMalformed
	}
	r = repair{Scheme(b[0]), binary.BigEndian.Uint32(b[1:]), int(b[5]), binary.BigEndian.Uint16(b[6:])}
	if r.count == 0 || r.count > MaxWindow {
		return r, nil, ErrMalformed
	}
	return r, b[repairHeader:], nil
}

// coefficient returns the factor of the ith symbol, which is never 0: the density of RFC 8681 with
// DT = 15. It is a mix of key and i (SplitMix64) in place of TinyMT32 (RFC 8682).
func (r *repair) coefficient(i int) byte {
	if r.scheme == XOR {
		return 1
	}
	z := (uint64(r.key)<<32 | uint64(i)) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return byte((z^z>>31)%255) + 1
}
