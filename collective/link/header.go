package link

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// HeaderSize is the size of a Header on the wire.
const HeaderSize = 56

// version is that of the header.
const version = 1

// MaxMessage is the largest message, in bytes: 2^40.
const MaxMessage = 1 << 40

// Kind is the kind of a header.
type Kind uint8

// The kinds.
const (
	Data Kind = iota + 1
	Ack       // Serial is the number of fragments that were received on rail Offset
)

// ErrHeader is the error of bytes that are no header of a correct rank.
var ErrHeader = errors.New("collective: the peer sends what is no message")

// Key identifies a message between two ranks.
type Key struct {
	Context        uint64
	Sequence, Step uint32
}

// Header precedes the bytes of a message or fragment.
type Header struct {
	Kind Kind
	Key
	Fingerprint uint32
	Serial      uint64
	Offset      uint64
	Length      uint64
	Total       uint64
}

// Put writes the header to b.
func (h *Header) Put(b []byte) {
	_ = b[HeaderSize-1]
	b[0], b[1], b[2], b[3] = byte(h.Kind), version, 0, 0
	binary.LittleEndian.PutUint32(b[4:], h.Fingerprint)
	binary.LittleEndian.PutUint64(b[8:], h.Context)
	binary.LittleEndian.PutUint32(b[16:], h.Sequence)
	binary.LittleEndian.PutUint32(b[20:], h.Step)
	binary.LittleEndian.PutUint64(b[24:], h.Serial)
	binary.LittleEndian.PutUint64(b[32:], h.Offset)
	binary.LittleEndian.PutUint64(b[40:], h.Length)
	binary.LittleEndian.PutUint64(b[48:], h.Total)
}

// ParseHeader reads a header of HeaderSize bytes. The error is ErrHeader for one that no correct rank sends.
func ParseHeader(b []byte) (h Header, err error) {
	_ = b[HeaderSize-1]
	h = Header{
		Kind:        Kind(b[0]),
		Fingerprint: binary.LittleEndian.Uint32(b[4:]),
		Key:         Key{binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint32(b[20:])},
		Serial:      binary.LittleEndian.Uint64(b[24:]),
		Offset:      binary.LittleEndian.Uint64(b[32:]),
		Length:      binary.LittleEndian.Uint64(b[40:]),
		Total:       binary.LittleEndian.Uint64(b[48:]),
	}
	switch {
	case b[1] != version || b[2] != 0 || b[3] != 0:
		return h, fmt.Errorf("%w: version %d", ErrHeader, b[1])
	case h.Kind < Data || h.Kind > Ack:
		return h, fmt.Errorf("%w: kind %d", ErrHeader, b[0])
	case h.Kind == Data && (h.Total > MaxMessage || h.Length > h.Total || h.Offset > h.Total-h.Length):
		return h, fmt.Errorf("%w: bytes %d and %d more of %d", ErrHeader, h.Offset, h.Length, h.Total)
	case h.Kind != Data && (h.Length > 0 || h.Total > 0):
		return h, fmt.Errorf("%w: bytes in a message without any", ErrHeader)
	}
	return h, nil
}
