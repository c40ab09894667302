package fastcgi

import (
	"encoding/binary"
	"strconv"
)

// A record is a header of 8 bytes, content of at most 65535, and padding of at most 255 (FastCGI 1.0, 3.3):
//
//	version, type, id (2), length of the content (2), length of the padding, reserved
const (
	version    = 1
	headerLen  = 8
	MaxContent = 65535
)

// ID is the id of every request. 0 is that of management records.
const ID = 1

// recordType is the type of a record.
type recordType uint8

// Values of recordType.
const (
	typeBegin   recordType = 1
	typeEnd     recordType = 3
	typeParams  recordType = 4
	typeStdin   recordType = 5
	typeStdout  recordType = 6
	typeStderr  recordType = 7
	typeValues  recordType = 10
	typeUnknown recordType = 11
)

// roleResponder is the role of an application that answers requests (FastCGI 1.0, 6.2).
const roleResponder = 1

// keepConn is the flag of a request after which the application leaves the connection open.
const keepConn = 1

// appendHeader appends the header of a record, without padding: 5 does not require any.
func appendHeader(dst []byte, t recordType, n int) []byte {
	return append(dst, version, byte(t), 0, ID, byte(n>>8), byte(n), 0, 0)
}

// AppendBegin appends FCGI_BEGIN_REQUEST for the role of a responder. With keep the application leaves the connection open.
func AppendBegin(dst []byte, keep bool) []byte {
	flags := byte(0)
	if keep {
		flags = keepConn
	}
	return append(appendHeader(dst, typeBegin, 8), 0, roleResponder, flags, 0, 0, 0, 0, 0)
}

// AppendPair appends a variable as a name-value pair (FastCGI 1.0, 3.4). Lengths below 128 take one byte, others four.
func AppendPair(dst []byte, name, value string) []byte {
	dst = appendLen(appendLen(dst, len(name)), len(value))
	return append(append(dst, name...), value...)
}

func appendLen(dst []byte, n int) []byte {
	if n < 0x80 {
		return append(dst, byte(n))
	}
	return binary.BigEndian.AppendUint32(dst, uint32(n)|1<<31)
}

// AppendParams appends the records of FCGI_PARAMS for pairs, and the empty one that ends the stream. The specification has one stream
// of bytes, but PHP reads each record by itself: a record ends with a pair, unless that is longer than a record.
func AppendParams(dst, pairs []byte) []byte {
	for len(pairs) > 0 {
		n := 0
		for n < len(pairs) {
			_, _, size, ok := cutPair(pairs[n:])
			if !ok { // pairs of AppendPair always are
				size = len(pairs) - n
			}
			if n > 0 && n+size > MaxContent {
				break
			}
			n += size
		}
		dst = appendStream(dst, typeParams, pairs[:n])
		pairs = pairs[n:]
	}
	return appendHeader(dst, typeParams, 0)
}

// appendStream appends content of a stream in as many records as it takes.
func appendStream(dst []byte, t recordType, p []byte) []byte {
	for len(p) > 0 {
		n := min(len(p), MaxContent)
		dst = append(appendHeader(dst, t, n), p[:n]...)
		p = p[n:]
	}
	return dst
}

// AppendStdinHeader appends the header of a record with n bytes of the request's content, at most MaxContent, which follow. n is not 0:
// AppendStdinEnd ends the stream.
func AppendStdinHeader(dst []byte, n int) []byte { return appendHeader(dst, typeStdin, n) }

// AppendStdin appends content of the request.
func AppendStdin(dst, p []byte) []byte { return appendStream(dst, typeStdin, p) }

// AppendStdinEnd ends the content of the request.
func AppendStdinEnd(dst []byte) []byte { return appendHeader(dst, typeStdin, 0) }

// cutPair returns the first pair of a stream of params, and its size with the lengths. ok is false where it is not complete.
func cutPair(p []byte) (name, value []byte, size int, ok bool) {
	n, p1, ok1 := cutLen(p)
	v, p2, ok2 := cutLen(p1)
	if !ok1 || !ok2 || n > len(p2) || v > len(p2)-n {
		return nil, nil, 0, false
	}
	return p2[:n], p2[n : n+v], len(p) - len(p2) + n + v, true
}

func cutLen(p []byte) (n int, rest []byte, ok bool) {
	switch {
	case len(p) == 0:
		return 0, nil, false
	case p[0] < 0x80:
		return int(p[0]), p[1:], true
	case len(p) < 4:
		return 0, nil, false
	}
	return int(binary.BigEndian.Uint32(p) &^ (1 << 31)), p[4:], true
}

// AppendLength appends the variable CONTENT_LENGTH.
func AppendLength(dst []byte, n int64) []byte {
	return AppendPair(dst, "CONTENT_LENGTH", strconv.FormatInt(n, 10))
}
