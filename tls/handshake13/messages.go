package handshake13

import (
	"crypto/mlkem"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"

	"github.com/millrace/millrace/gpukern/x25519"
)

// Handshake messages (RFC 8446 4).
const (
	messageServerHello         = 2
	messageNewSessionTicket    = 4
	messageEncryptedExtensions = 8
	messageCertificate         = 11
	messageCertificateVerify   = 15
	messageFinished            = 20
)

// TicketLifetime is how long a client may use a ticket, seconds: the most that RFC 8446 4.6.1 permits, as in crypto/tls.
const TicketLifetime = 7 * 24 * 3600

// begin16 and end16 write a vector whose length has 16 bits: begin16 leaves room for it, end16 sets it.
func begin16(b []byte) ([]byte, int) { return append(b, 0, 0), len(b) + 2 }

func end16(b []byte, start int) []byte {
	binary.BigEndian.PutUint16(b[start-2:], uint16(len(b)-start))
	return b
}

func begin24(b []byte) ([]byte, int) { return append(b, 0, 0, 0), len(b) + 3 }

func end24(b []byte, start int) []byte {
	n := len(b) - start
	b[start-3], b[start-2], b[start-1] = byte(n>>16), byte(n>>8), byte(n)
	return b
}

func append16(b []byte, values ...uint16) []byte {
	for _, v := range values {
		b = append(b, byte(v>>8), byte(v))
	}
	return b
}

// appendServerHello appends ServerHello (RFC 8446 4.1.3):
//
//	version=0x0303 random(32) session_id cipher_suite compression=0 { supported_versions, key_share, pre_shared_key }
func (s *Server) appendServerHello(b []byte) []byte {
	b, message := begin24(append(b, messageServerHello))
	b = append(append16(b, tls.VersionTLS12), s.random[:]...)
	b = append(append(b, byte(len(s.Hello.SessionID))), s.Hello.SessionID...)
	b = append(append16(b, s.suiteID), 0)
	b, extensions := begin16(b)
	b = append16(b, extSupportedVersions, 2, tls.VersionTLS13)
	size := x25519.Size
	if s.ciphertext != nil {
		size += mlkem.CiphertextSize768
	}
	b = append16(b, extKeyShare, uint16(4+size), uint16(s.group), uint16(size))
	b = append(append(b, s.ciphertext...), s.Exchange.Public[:]...)
	if s.resumed != fullHandshake {
		b = append16(b, extPreSharedKey, 2, uint16(s.resumed))
	}
	return end24(end16(b, extensions), message)
}

// appendExtensions appends EncryptedExtensions (RFC 8446 4.3.1): the protocol, and that the name was used.
func (s *Server) appendExtensions(b []byte) []byte {
	b, message := begin24(append(b, messageEncryptedExtensions))
	b, extensions := begin16(b)
	if n := len(s.protocol); n > 0 {
		b = append16(b, extALPN, uint16(2+1+n), uint16(1+n))
		b = append(append(b, byte(n)), s.protocol...)
	}
	if s.resumed == fullHandshake && len(s.Hello.SentName) > 0 {
		b = append16(b, extServerName, 0)
	}
	return end24(end16(b, extensions), message)
}

// appendCertificate appends Certificate (RFC 8446 4.4.2): no context, then each certificate with its extensions. Those of the
// first one are an OCSP response and timestamps, if the client takes them.
func (s *Server) appendCertificate(b []byte) []byte {
	b, message := begin24(append(b, messageCertificate))
	b, list := begin24(append(b, 0))
	for i, der := range s.cert.Certificate {
		var cert, extensions int
		b, cert = begin24(b)
		b = end24(append(b, der...), cert)
		b, extensions = begin16(b)
		if i == 0 {
			b = s.appendStaples(b)
		}
		b = end16(b, extensions)
	}
	return end24(end24(b, list), message)
}

func (s *Server) appendStaples(b []byte) []byte {
	if ocsp := s.cert.OCSPStaple; s.Hello.OCSP && len(ocsp) > 0 {
		b = append16(b, extStatusRequest, uint16(1+3+len(ocsp)))
		b, response := begin24(append(b, statusOCSP))
		return s.appendTimestamps(end24(append(b, ocsp...), response))
	}
	return s.appendTimestamps(b)
}

func (s *Server) appendTimestamps(b []byte) []byte {
	if !s.Hello.SCT || len(s.cert.SignedCertificateTimestamps) == 0 {
		return b
	}
	b, extension := begin16(append16(b, extSCT))
	b, list := begin16(b)
	for _, sct := range s.cert.SignedCertificateTimestamps {
		b = append(append16(b, uint16(len(sct))), sct...)
	}
	return end16(end16(b, list), extension)
}

// encodable reports whether the lengths of a certificate's parts fit into their fields.
func encodable(cert *tls.Certificate) bool {
	const max16, max24 = 1<<16 - 1, 1<<24 - 1
	staples := 4 + 4 + len(cert.OCSPStaple) + 4 + 2
	for _, sct := range cert.SignedCertificateTimestamps {
		staples += 2 + len(sct)
	}
	all := staples
	for _, der := range cert.Certificate {
		all += 3 + 2 + len(der)
	}
	return len(cert.Certificate) > 0 && staples <= max16 && all+1+3 <= max24
}

func (s *Server) appendCertificateVerify(b, signature []byte) []byte {
	b, message := begin24(append(b, messageCertificateVerify))
	b = append16(b, uint16(s.scheme.id), uint16(len(signature)))
	return end24(append(b, signature...), message)
}

// AppendTicket appends NewSessionTicket (RFC 8446 4.6.1) without a nonce and extensions. age_add hides how old a ticket is; a
// server that takes no early data does not need it again.
func AppendTicket(b, ticket []byte) []byte {
	var ageAdd [4]byte
	_, _ = rand.Read(ageAdd[:])
	b, message := begin24(append(b, messageNewSessionTicket))
	b = append(binary.BigEndian.AppendUint32(b, TicketLifetime), ageAdd[:]...)
	b, label := begin16(append(b, 0))
	b = end16(append(b, ticket...), label)
	return end24(append16(b, 0), message)
}
