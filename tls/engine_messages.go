package tls

import (
	"bytes"
	"crypto/tls"
)

// Handshake messages after the handshake (RFC 8446 4.6, RFC 5246 7.4.1.1).
const (
	messageHelloRequest     = 0
	messageNewSessionTicket = 4
	messageKeyUpdate        = 24
)

// handshakeData takes the content of a handshake record: one message, several, or a part of one.
func (r *records) handshakeData(p []byte) error {
	if len(p) == 0 {
		return alertUnexpectedMessage // RFC 8446 5.1
	}
	if r.message != nil {
		r.message = append(r.message, p...)
		p = r.message
	}
	rest, err := r.handleAll(p)
	switch {
	case err != nil:
		return err
	case len(rest) == 0:
		r.message = nil
	case r.message == nil || len(rest) < len(p): // otherwise it is there: records of one byte must not copy it each time
		r.message = bytes.Clone(rest)
	}
	return nil
}

// handleAll takes the whole messages of p, and returns the rest.
func (r *records) handleAll(p []byte) ([]byte, error) {
	for len(p) >= 4 {
		size := 4 + int(p[1])<<16 + int(p[2])<<8 + int(p[3])
		if size > maxMessage {
			return nil, alertInternalError
		}
		if len(p) < size {
			break
		}
		if err := r.handle(p[:size], len(p) == size); err != nil {
			return nil, err
		}
		p = p[size:]
	}
	return p, nil
}

// handle takes a message. last says that its record ends with it.
func (r *records) handle(m []byte, last bool) error {
	if err := countUseless(&r.messages, maxUseless); err != nil {
		return err
	}
	if r.read.version != tls.VersionTLS13 {
		return r.handle12(m)
	}
	switch {
	case m[0] == messageKeyUpdate:
		return r.keyUpdate(m[4:], last)
	case m[0] == messageNewSessionTicket && r.e.role == client:
		return r.standard.ticket(m)
	}
	return alertUnexpectedMessage
}

// handle12 refuses to renegotiate: a client says so to the server's HelloRequest (RFC 5246 7.4.1.1), and
// a server treats a ClientHello as crypto/tls does.
func (r *records) handle12(m []byte) error {
	if m[0] != messageHelloRequest || r.e.role != client {
		return alertUnexpectedMessage
	}
	if len(m) != 4 {
		return alertDecodeError
	}
	return alertNoRenegotiation
}

// keyUpdate takes the peer's next keys (RFC 8446 4.6.3).
func (r *records) keyUpdate(body []byte, last bool) error {
	const notRequested, requested = 0, 1
	switch {
	case len(body) != 1:
		return alertDecodeError
	case body[0] != notRequested && body[0] != requested:
		return alertIllegalParameter
	case !last:
		return alertUnexpectedMessage // what follows would be under the old keys (RFC 8446 5.1)
	}
	r.read.update(r.suite)
	// The reply may wait for the next data and then answers all requests (RFC 8446 4.6.3). So a peer that only
	// asks, and never reads, cannot make Pending grow.
	r.replyDue = r.replyDue || body[0] == requested
	return nil
}

// updateWriteKey queues a KeyUpdate and changes the keys of what follows.
func (r *records) updateWriteKey(request bool) {
	out := &r.e.out
	out.grow(keyUpdateSize)
	out.set(r.appendKeyUpdate(out.buf, request))
}

// refresh appends a KeyUpdate to dst, within its capacity, when the peer has asked for one or the keys have protected
// enough records (RFC 8446 5.5). It is called before data.
func (r *records) refresh(dst []byte) []byte {
	if !r.refreshDue() {
		return dst
	}
	return r.appendKeyUpdate(dst, false)
}

func (r *records) refreshDue() bool {
	return r.replyDue || r.write.seq >= maxRecordsPerKey && r.write.version == tls.VersionTLS13
}

// keyUpdateSize is the size of a KeyUpdate record in bytes.
const keyUpdateSize = 5 + maxOverhead

func (r *records) appendKeyUpdate(dst []byte, request bool) []byte {
	m := [5]byte{messageKeyUpdate, 0, 0, 1, 0}
	if request {
		m[4] = 1
	}
	dst = r.write.seal(dst, typeHandshake, m[:])
	r.write.update(r.suite)
	r.replyDue = false
	return dst
}
