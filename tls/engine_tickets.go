package tls

import (
	"crypto/tls"
	"errors"
)

// ticketReader has crypto/tls store the session of a NewSessionTicket message: only crypto/tls can make
// the ClientSessionState of a Config's ClientSessionCache.
//
// Its record layer is where the handshake left it. So the message is encrypted for it, with the server's first
// keys and the sequence number that it expects. These records never leave the process, and nothing that crypto/tls
// writes is sent.
type ticketReader struct {
	conn      *tls.Conn
	transport *transport
	suite     *suite
	server    protection // seals what crypto/tls reads; both have their ciphers only during ticket
	client    protection // opens what it writes: alerts
}

// newTicketReader returns the reader for a client that keeps sessions, otherwise nil.
func newTicketReader(h *handshake, r *records) *ticketReader {
	c := h.keys.config
	if h.keys.role != client || r.read.version != tls.VersionTLS13 || c.ClientSessionCache == nil || c.SessionTicketsDisabled {
		return nil
	}
	t := &ticketReader{conn: h.conn, transport: h.transport, suite: r.suite}
	t.server.secret, t.client.secret = r.read.secret, r.write.secret
	t.client.seq = r.write.seq
	return t
}

// ticket takes a NewSessionTicket message. An error is the alert that crypto/tls answers it with.
func (t *ticketReader) ticket(m []byte) error {
	if t == nil {
		return checkTicket(m)
	}
	for _, p := range []*protection{&t.server, &t.client} {
		seq := p.seq
		p.init(t.suite, p.secret)
		p.seq = seq
		defer func() { p.aead = nil }()
	}
	// The byte of data ends Read, and crypto/tls's count of records without data.
	in := make([]byte, 0, len(m)+1+2*maxOverhead)
	for len(m) > 0 {
		n := min(len(m), maxPlaintext)
		in = t.server.seal(in, typeHandshake, m[:n])
		m = m[n:]
	}
	in = t.server.seal(in, typeData, []byte{0})

	var replies output
	e := t.transport.e
	e.out, replies = replies, e.out
	t.transport.in = in
	_, err := t.conn.Read(make([]byte, 1))
	t.transport.in = nil
	e.out, replies = replies, e.out
	if err == nil {
		return nil
	}
	if p := replies.pending(); len(p) > recordHeader {
		if plain, typ, openErr := t.client.open(p); openErr == nil && typ == typeAlert && len(plain) == 2 {
			return tls.AlertError(plain[1])
		}
	}
	return errors.Join(alertInternalError, err)
}

// checkTicket checks the form of a message that is not used (RFC 8446 4.6.1).
func checkTicket(m []byte) error {
	b := m[4:]
	if len(b) < 8 { // lifetime, age_add
		return alertDecodeError
	}
	_, b, ok1 := vector(b[8:], 1) // nonce
	ticket, b, ok2 := vector(b, 2)
	_, b, ok3 := vector(b, 2) // extensions
	if !ok1 || !ok2 || !ok3 || len(ticket) == 0 || len(b) > 0 {
		return alertDecodeError
	}
	return nil
}

// vector splits a variable-length vector off, whose length has width bytes (RFC 8446 3.4).
func vector(b []byte, width int) (v, rest []byte, ok bool) {
	size := 0
	for i := range width {
		if i == len(b) {
			return nil, nil, false
		}
		size = size<<8 | int(b[i])
	}
	if len(b) < width+size {
		return nil, nil, false
	}
	return b[width : width+size], b[width+size:], true
}
