package applayer

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/tls/clienthello"
)

// tlsFlow is the handshake of both directions, as far as it is not encrypted. TLS 1.3 encrypts all behind the
// ServerHello (RFC 8446 2), and with it the certificates: rules on those see TLS 1.2 and before.
type tlsFlow struct {
	stateless
	sides [2]tlsSide
	ja3s  string
	certs [][]byte
	hello bool // of the server
	sent  bool // the server's buffers have been inspected
}

// tlsSide is one direction.
type tlsSide struct {
	records []byte // incomplete
	message []byte // of handshake, incomplete
	done    bool   // what follows is encrypted
	changed bool   // a client has changed its cipher: only another hello is in clear (RFC 8446 4.1.4 and D.4)
}

// maxRecord is the longest record of TLS 1.2 and before, in bytes (RFC 5246 6.2.3).
const maxRecord = 1<<14 + 2048

// maxHandshake bounds one message: chains of certificates have some thousand bytes.
const maxHandshake = 128 << 10

// Types of records and of messages (RFC 8446 5.1, 4).
const (
	tlsChangeCipher = 20
	tlsAlert        = 21
	tlsHandshake    = 22
	tlsAppData      = 23

	tlsClientHello = 1
	tlsServerHello = 2
	tlsCertificate = 11
	tlsHelloDone   = 14
)

// Parse reads records. Records and messages have borders of their own: a message may take several records, and a record
// hold several messages (RFC 8446 5.1). A hello that is split over records, as evasion does, is found all the same.
func (t *tlsFlow) Parse(c *Context, text []byte) {
	s := &t.sides[c.side()]
	if s.done {
		return
	}
	s.records = append(s.records, text...)
	b := s.records
	for len(b) >= 5 && !s.done {
		n := int(binary.BigEndian.Uint16(b[3:]))
		if !isRecord(b) {
			s.done = true
			break
		}
		// isRecord has bounded n: what waits for the rest of a record is bounded with it.
		if len(b) < 5+n {
			break
		}
		switch b[0] {
		case tlsHandshake:
			if s.changed && !isWholeHello(b[5:5+n]) {
				s.done = true
				break
			}
			s.message = append(s.message, b[5:5+n]...)
			t.handshake(c, s)
		case tlsChangeCipher, tlsAppData:
			// In TLS 1.3 a client may send a change of cipher as a dummy before its second hello, for the sake of
			// middleboxes (RFC 8446 D.4): after it the second hello is still in clear. A server's is followed by
			// nothing in clear.
			if s.changed = true; c.Dir == signature.ToServer && b[0] == tlsChangeCipher {
				break
			}
			s.done = true
			if c.Dir == signature.ToClient {
				t.serverHello(c)
			}
		}
		b = b[5+n:]
	}
	s.records = append(s.records[:0], b...)
	if s.done {
		s.records, s.message = nil, nil
	}
}

// isWholeHello reports whether the text of a record is one hello of a client. Encrypted text has the first four bytes
// of one by chance once in 4 billion records.
func isWholeHello(b []byte) bool {
	return len(b) > 4 && b[0] == tlsClientHello && int(b[1])<<16|int(b[2])<<8|int(b[3]) == len(b)-4
}

// handshake reads messages: type, a length of three bytes, and the body (RFC 8446 4). Those that no rule reads are
// passed over by their length.
func (t *tlsFlow) handshake(c *Context, s *tlsSide) {
	for len(s.message) >= 4 {
		n := int(s.message[1])<<16 | int(s.message[2])<<8 | int(s.message[3])
		if n > maxHandshake {
			s.done = true
			return
		}
		if len(s.message) < 4+n {
			return
		}
		m := s.message[:4+n]
		switch {
		case m[0] == tlsClientHello && c.Dir == signature.ToServer:
			tlsClient(c, m)
		case m[0] == tlsServerHello && c.Dir == signature.ToClient:
			t.ja3s, t.hello = ja3s(m[4:]), true
		case m[0] == tlsCertificate && c.Dir == signature.ToClient:
			t.certs = certificates(m[4:])
			t.serverHello(c)
		case m[0] == tlsHelloDone:
			t.serverHello(c)
		}
		s.message = s.message[4+n:]
	}
}

// tlsClient inspects a hello, which rules see as a transaction of its own: the server may never answer. The name is
// set before the parse: it comes from a scan that bears a hello which the parser refuses, as a server might.
func tlsClient(c *Context, m []byte) {
	c.Message.Reset()
	c.Message.Text = m
	if name, _, _ := bytes.Cut(clienthello.SentServerName(m[4:]), []byte{0}); len(name) > 0 { // up to a zero, as rules expect
		c.Message.Put(signature.TLSSNI, name)
	}
	var h clienthello.Hello
	if clienthello.ParseMessage(m, &h) != nil { // a name that no DNS name is, such as one with a dot at its end
		c.inspect()
		return
	}
	text := h.AppendJA3Text(nil)
	hash := md5.Sum(text)
	c.Message.Put(signature.JA3String, text)
	c.Message.Put(signature.JA3Hash, []byte(hex.EncodeToString(hash[:])))
	c.Message.Put(signature.JA4Hash, []byte(h.JA4()))
	c.inspect()
}

// serverHello inspects what the server has sent in clear, once.
func (t *tlsFlow) serverHello(c *Context) {
	if t.sent || !t.hello {
		return
	}
	t.sent = true
	c.Message.Reset()
	hash := md5.Sum([]byte(t.ja3s))
	c.Message.Put(signature.JA3SHash, []byte(hex.EncodeToString(hash[:])))
	c.Message.Put(signature.JA3SString, []byte(t.ja3s))
	for i, cert := range t.certs {
		c.Message.Put(signature.TLSCerts, cert)
		if i > 0 {
			continue // names are those of the server's own certificate, the first (RFC 8446 4.4.2)
		}
		if x, ok := parseCertificate(cert); ok {
			c.Message.Put(signature.TLSCertSubject, []byte(x.subject))
			c.Message.Put(signature.TLSCertIssuer, []byte(x.issuer))
			c.Message.Put(signature.TLSCertSerial, []byte(colons(x.serial, "%02X")))
		}
		print := sha1.Sum(cert)
		c.Message.Put(signature.TLSCertFingerprint, []byte(colons(print[:], "%02x")))
		c.Message.Text = cert
	}
	c.inspect()
	t.certs = nil
}

// colons writes bytes in hexadecimal, with colons between them, as rules of Suricata have serial numbers (upper case)
// and fingerprints (lower case).
func colons(b []byte, format string) string {
	var s []string
	for _, c := range b {
		s = append(s, fmt.Sprintf(format, c))
	}
	return strings.Join(s, ":")
}

// ja3s returns version, cipher suite and extensions of a ServerHello, in decimal, as JA3 joins them. Its layout (RFC
// 8446 4.1.3): version 2, random 32, session ID with its length, suite 2, compression 1, extensions. MD5 of it is a
// name that lists of servers use, and protects nothing.
func ja3s(b []byte) string {
	if len(b) < 35 {
		return ""
	}
	version, at := binary.BigEndian.Uint16(b), 35+int(b[34])
	if len(b) < at+3 {
		return ""
	}
	suite := binary.BigEndian.Uint16(b[at:])
	var ext []string
	if b = b[at+3:]; len(b) >= 2 {
		for b = b[2:]; len(b) >= 4; {
			n := int(binary.BigEndian.Uint16(b[2:]))
			if len(b) < 4+n {
				break
			}
			ext = append(ext, strconv.Itoa(int(binary.BigEndian.Uint16(b))))
			b = b[4+n:]
		}
	}
	return fmt.Sprintf("%d,%d,%s", version, suite, strings.Join(ext, "-"))
}

// certificates returns the chain of a Certificate message of TLS 1.2 and before (RFC 5246 7.4.2).
func certificates(b []byte) (list [][]byte) {
	if len(b) < 3 {
		return nil
	}
	for b = b[3:]; len(b) >= 3; {
		n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if len(b) < 3+n {
			break
		}
		list = append(list, bytes.Clone(b[3:3+n]))
		b = b[3+n:]
	}
	return list
}

// Size implements Parser.
func (t *tlsFlow) Size() int {
	n := cap(t.certs) * sliceSize
	for i := range t.sides {
		n += cap(t.sides[i].records) + cap(t.sides[i].message)
	}
	for _, cert := range t.certs {
		n += cap(cert)
	}
	return n
}
