package collective

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A connection begins with the proof that both ends have the key. Integers are big endian.
//
//	client  hello      magic 4  version 2  purpose 1  zero 1  rank 4  size 4  generation 4  rail 4  nonce 16
//	server  challenge  magic 4  version 2  zero 2  nonce 16  HMAC-SHA256(key, "server" hello challenge) 32
//	client  proof      HMAC-SHA256(key, "client" hello challenge) 32
//	server  verdict    status 1  length 2  text
const (
	handshakeMagic   = 0x4d52434f // MRCO
	handshakeVersion = 1
	nonceSize        = 16
	helloSize        = 24 + nonceSize
	challengeSize    = 8 + nonceSize + sha256.Size
	verdictMost      = 1 << 10
	handshakeTime    = 10 * time.Second
)

// purpose is the use of a connection.
type purpose uint8

const (
	purposeJoin purpose = iota + 1 // to the coordinator, which it stays connected with
	purposeData                    // messages of operations
)

// hello is the first message of a client.
type hello struct {
	purpose                      purpose
	rank, size, generation, rail uint32
	nonce                        [nonceSize]byte
}

// Errors of rendezvous.
var (
	ErrVersion      = errors.New("collective: the ranks have different versions: run the same build on all")
	ErrKey          = errors.New("collective: the peer does not have the same key")
	ErrNotMillrace  = errors.New("collective: the peer is no rank: check address and port, and TLS on both sides")
	ErrRefused      = errors.New("collective: the peer refuses the connection")
	errHelloPurpose = fmt.Errorf("%w: purpose or reserved bits", ErrNotMillrace)
)

func (h *hello) bytes() []byte {
	b := make([]byte, 0, helloSize)
	b = binary.BigEndian.AppendUint32(b, handshakeMagic)
	b = binary.BigEndian.AppendUint16(b, handshakeVersion)
	b = append(b, byte(h.purpose), 0)
	for _, v := range []uint32{h.rank, h.size, h.generation, h.rail} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return append(b, h.nonce[:]...)
}

// parsePrefix checks magic and version.
func parsePrefix(b []byte) error {
	if binary.BigEndian.Uint32(b) != handshakeMagic {
		return ErrNotMillrace
	}
	if v := binary.BigEndian.Uint16(b[4:]); v != handshakeVersion {
		return fmt.Errorf("%w (the peer %d, this one %d)", ErrVersion, v, handshakeVersion)
	}
	return nil
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) != helloSize {
		return h, ErrNotMillrace
	}
	if err := parsePrefix(b); err != nil {
		return h, err
	}
	h.purpose = purpose(b[6])
	if h.purpose != purposeJoin && h.purpose != purposeData || b[7] != 0 {
		return h, errHelloPurpose
	}
	h.rank, h.size = binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	h.generation, h.rail = binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint32(b[20:])
	copy(h.nonce[:], b[24:])
	return h, nil
}

// proof computes the MAC by which an end shows that it has the key.
func proof(key []byte, side string, hello, challenge []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(side))
	m.Write(hello)
	m.Write(challenge[:8+nonceSize])
	return m.Sum(nil)
}

// greet is the handshake of a client.
func greet(conn net.Conn, h hello, key []byte) error {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	if _, err := rand.Read(h.nonce[:]); err != nil {
		return err
	}
	first := h.bytes()
	if _, err := conn.Write(first); err != nil {
		return err
	}
	challenge := make([]byte, challengeSize)
	if _, err := io.ReadFull(conn, challenge[:8]); err != nil {
		return fmt.Errorf("%w (%w)", ErrNotMillrace, err)
	}
	if err := parsePrefix(challenge); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, challenge[8:]); err != nil {
		return err
	}
	if !hmac.Equal(challenge[8+nonceSize:], proof(key, "server", first, challenge)) {
		return ErrKey
	}
	if _, err := conn.Write(proof(key, "client", first, challenge)); err != nil {
		return err
	}
	var v [3]byte
	if _, err := io.ReadFull(conn, v[:]); err != nil {
		return fmt.Errorf("%w (%w)", ErrKey, err)
	}
	text := make([]byte, min(binary.BigEndian.Uint16(v[1:]), verdictMost))
	if _, err := io.ReadFull(conn, text); err != nil {
		return err
	}
	if v[0] != 0 {
		return fmt.Errorf("%w: %s", ErrRefused, bytes.ToValidUTF8(text, []byte("?")))
	}
	return conn.SetDeadline(time.Time{})
}

// welcome is the handshake of a server. accept decides about a client that has the key; its error goes to the client.
func welcome(conn net.Conn, key []byte, accept func(h *hello) error) (h hello, err error) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	first := make([]byte, helloSize)
	if _, err := io.ReadFull(conn, first); err != nil {
		return h, err
	}
	h, parseErr := parseHello(first)
	if parseErr != nil && !errors.Is(parseErr, ErrVersion) {
		return h, parseErr
	}
	challenge := binary.BigEndian.AppendUint32(make([]byte, 0, challengeSize), handshakeMagic)
	challenge = binary.BigEndian.AppendUint16(challenge, handshakeVersion)
	challenge = challenge[:8+nonceSize]
	if _, err := rand.Read(challenge[8:]); err != nil {
		return h, err
	}
	challenge = append(challenge, proof(key, "server", first, challenge)...)
	if _, err := conn.Write(challenge); err != nil {
		return h, err
	}
	if parseErr != nil { // the client learns the version from the challenge
		return h, parseErr
	}
	answer := make([]byte, sha256.Size)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return h, err
	}
	if !hmac.Equal(answer, proof(key, "client", first, challenge)) {
		return h, ErrKey
	}
	verdict := []byte{0, 0, 0}
	refused := accept(&h)
	if refused != nil {
		text := refused.Error()
		text = text[:min(len(text), verdictMost)]
		verdict = append(binary.BigEndian.AppendUint16([]byte{1}, uint16(len(text))), text...)
	}
	if _, err := conn.Write(verdict); err != nil {
		return h, err
	}
	if refused != nil {
		return h, refused
	}
	return h, conn.SetDeadline(time.Time{})
}
