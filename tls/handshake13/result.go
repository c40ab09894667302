package handshake13

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"errors"
	"hash"
	"slices"
)

// This file has what a server has agreed on: the choices from AwaitingIdentity on, messages and secrets when it is Complete. What
// they return lies in the Server, unless it says otherwise, and is valid until Release.

// CipherSuite returns the cipher suite.
func (s *Server) CipherSuite() uint16 { return s.suiteID }

// Group returns the key exchange.
func (s *Server) Group() tls.CurveID { return s.group }

// Protocol returns the protocol of ALPN, "" for none.
func (s *Server) Protocol() string { return s.protocol }

// Resumed reports whether a session is resumed.
func (s *Server) Resumed() bool { return s.resumed != fullHandshake }

// Scheme returns the signature scheme of a full handshake.
func (s *Server) Scheme() tls.SignatureScheme { return s.scheme.id }

// ServerHello returns the message that is sent in the clear.
func (s *Server) ServerHello() []byte { return s.out[:s.helloEnd] }

// Flight returns the messages from EncryptedExtensions to Finished, which HandshakeWrite protects.
func (s *Server) Flight() []byte { return s.out[s.helloEnd:] }

// HandshakeRead returns the keys of the client's Finished.
func (s *Server) HandshakeRead() *Keys { return &s.handshakeRead }

// HandshakeWrite returns the keys of Flight.
func (s *Server) HandshakeWrite() *Keys { return &s.handshakeWrite }

// DataRead returns the keys of the client's data.
func (s *Server) DataRead() *Keys { return &s.read }

// DataWrite returns the keys of the server's data and of tickets.
func (s *Server) DataWrite() *Keys { return &s.write }

// Verify returns verify_data of the client's Finished, which is all that is missing from the handshake.
func (s *Server) Verify() []byte { return s.verify[:s.schedule.size] }

// SessionSecret returns the secret of a session that is to be resumed (RFC 8446 4.6.1).
func (s *Server) SessionSecret() []byte { return s.ticket[:s.schedule.size] }

// WantsTickets reports whether the client takes tickets that a server of this package makes (RFC 8446 4.2.9).
func (s *Server) WantsTickets() bool { return bytes.Contains(s.Hello.modes, []byte{pskWithDHE}) }

// errLength refuses more keying material than HKDF makes.
var errLength = errors.New("handshake13: too much keying material")

// Exporter returns a function that exports keying material (RFC 8446 7.5). It has its own copy of the secret.
func (s *Server) Exporter() func(label string, context []byte, length int) ([]byte, error) {
	h := sha256.New
	if s.schedule.size == maxHash {
		h = sha512.New384
	}
	master := slices.Clone(s.exporter[:s.schedule.size])
	return func(label string, context []byte, length int) ([]byte, error) {
		if length < 0 || length > 255*len(master) {
			return nil, errLength
		}
		empty, sum := h(), h()
		sum.Write(context)
		secret, err := expandAny(h, master, label, empty.Sum(nil), len(master))
		if err != nil {
			return nil, err
		}
		return expandAny(h, secret, "exporter", sum.Sum(nil), length)
	}
}

// expandAny is HKDF-Expand-Label of any length.
func expandAny(h func() hash.Hash, secret []byte, label string, context []byte, length int) ([]byte, error) {
	label = "tls13 " + label
	info := append16(nil, uint16(length))
	info = append(append(info, byte(len(label))), label...)
	info = append(append(info, byte(len(context))), context...)
	return hkdf.Expand(h, secret, string(info), length)
}
