package tls

import "bytes"

// helloRequests takes HelloRequests from what a client receives before ServerHello. A client that is negotiating ignores them, and they
// are not part of the handshake's hashes (RFC 5246 7.4.1.1), but crypto/tls refuses them as messages out of order.
//
// Only such a request that is a record of its own is taken, as servers flush it:
//
//	| type 22 | version 3, any | length 4 | HelloRequest 0 | length 0 |
//
// Anything else ends this for good and is crypto/tls's: so is a request behind ServerHello, which TLS 1.3 forbids (RFC 8446 4).
type helloRequests struct {
	held  [helloRequestSize]byte // the begin of a record that may be one
	n     int                    // bytes of held
	taken int
	over  bool
}

const helloRequestSize = recordHeader + messageHeader

// skip returns the input without requests, and how many bytes fewer it has: less than none where bytes that were held come first.
func (h *helloRequests) skip(in []byte) (rest []byte, skipped int) {
	came := len(in)
	for !h.over && len(in) > 0 {
		n := copy(h.held[h.n:], in)
		switch {
		case !h.matches(n):
			in = append(h.held[:h.n:h.n], in...)
			h.over = true
		case h.n+n < helloRequestSize:
			h.n += n
			in = nil
		default:
			in = in[n:]
			h.n = 0
			h.taken++
			h.over = h.taken == maxUseless // a further one is an error
		}
	}
	return in, came - len(in)
}

// matches reports whether held, with n bytes more, is a request as far as it goes.
func (h *helloRequests) matches(n int) bool {
	want := [helloRequestSize]byte{0: typeHandshake, 1: 3, 2: h.held[2], 4: messageHeader}
	return bytes.Equal(h.held[:h.n+n], want[:h.n+n])
}
