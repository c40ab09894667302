package bgp

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
)

// Sizes of messages in octets (RFC 4271 4.1). Extended messages (RFC 8654) are not negotiated: what the speaker sends fits.
const (
	headerLen  = 19
	maxMessage = 4096
)

// messageType is the octet behind the length of a message.
type messageType uint8

// Types of messages: RFC 4271 4.1, RFC 2918 3.
const (
	typeOpen         messageType = 1
	typeUpdate       messageType = 2
	typeNotification messageType = 3
	typeKeepalive    messageType = 4
	typeRefresh      messageType = 5
)

// leastLen returns the length of the shortest message of a type; 0 for a type that there is not.
func (t messageType) leastLen() int {
	switch t {
	case typeOpen:
		return headerLen + 10
	case typeUpdate:
		return headerLen + 4
	case typeNotification:
		return headerLen + 2
	case typeKeepalive:
		return headerLen
	case typeRefresh:
		return headerLen + 4
	}
	return 0
}

// beginMessage appends a header, and endMessage enters the length of what was appended since.
//
//	0                             16      18    19
//	+-----------------------------+-------+-----+
//	| marker, all ones            |length |type |
//	+-----------------------------+-------+-----+
func beginMessage(b []byte, t messageType) []byte {
	for range 16 {
		b = append(b, 0xff)
	}
	return append(b, 0, 0, byte(t))
}

func endMessage(b []byte, start int) []byte {
	binary.BigEndian.PutUint16(b[start+16:], uint16(len(b)-start))
	return b
}

// appendKeepalive appends a KEEPALIVE message.
func appendKeepalive(b []byte) []byte { return endMessage(beginMessage(b, typeKeepalive), len(b)) }

// parseHeader returns type and length of the message at the start of b, which has headerLen octets at least. The error is what the
// peer is sent (RFC 4271 6.1).
func parseHeader(b []byte) (t messageType, n int, err *Notification) {
	for _, v := range b[:16] {
		if v != 0xff {
			return 0, 0, &Notification{Code: codeHeader, Subcode: 1}
		}
	}
	n, t = int(binary.BigEndian.Uint16(b[16:])), messageType(b[18])
	least := t.leastLen()
	switch {
	case n < headerLen || n > maxMessage:
		return 0, 0, &Notification{Code: codeHeader, Subcode: 2, Data: b[16:18]}
	case least == 0:
		return 0, 0, &Notification{Code: codeHeader, Subcode: 3, Data: b[18:19]}
	case n < least || t == typeKeepalive && n != headerLen || t == typeRefresh && n != least:
		return 0, 0, &Notification{Code: codeHeader, Subcode: 2, Data: b[16:18]}
	}
	return t, n, nil
}

// reader reads messages from a connection, with a buffer for one.
type reader struct {
	from io.Reader
	buf  [maxMessage]byte
	have int // octets of a message that is not whole
}

// next returns the next message without its header, which is valid until the following call. After os.ErrDeadlineExceeded it may be
// called again: no octet is lost. A *Notification is an error of the peer.
func (r *reader) next() (messageType, []byte, error) {
	if err := r.fill(headerLen); err != nil {
		return 0, nil, err
	}
	t, n, wrong := parseHeader(r.buf[:])
	if wrong != nil {
		return 0, nil, wrong
	}
	if err := r.fill(n); err != nil {
		return 0, nil, err
	}
	r.have = 0
	return t, r.buf[headerLen:n], nil
}

// fill reads until the buffer has n octets. It reads no further than that, so that nothing of the next message is in the buffer
// when a session is handed over.
func (r *reader) fill(n int) error {
	for r.have < n {
		m, err := r.from.Read(r.buf[r.have:n])
		r.have += m
		if err != nil && r.have < n {
			return err
		}
	}
	return nil
}

// whole reports whether no message has been read in part.
func (r *reader) whole() bool { return r.have == 0 }

// isTimeout reports whether a deadline of the connection has passed.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
