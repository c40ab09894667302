package quic

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
)

// Generation is the part of connection IDs by which processes that share a UDP socket, one after the other, find the packets of each:
//
//	 0           1                              8            12
//	+-----------+------------------------------+-------------+
//	| generation|  random                      |  tag        |
//	+-----------+------------------------------+-------------+
//
// The tag is of the first 8 bytes, by a key that all of these processes have. The connection ID of a client's first packets is one of its
// own choice (RFC 9000 7.2), and random: without the tag one in 256 would look like that of another process, which refuses it.
type Generation struct {
	number uint8
	tags   cipher.Block
}

const (
	generationLength = 12
	taggedLength     = 8
)

// NewGeneration returns a generation of processes that share a secret of at least 16 bytes.
func NewGeneration(number uint8, secret []byte) (*Generation, error) {
	key, err := deriveKey(secret, generationLabel)
	if err != nil {
		return nil, err
	}
	tags, err := aes.NewCipher(key[:])
	return &Generation{number, tags}, err
}

// generationLabel separates the key of tags.
const generationLabel = "millrace quic generation of connection IDs"

// Number returns the number of the generation.
func (g *Generation) Number() uint8 { return g.number }

// IDs returns connection IDs of the generation.
func (g *Generation) IDs() ConnectionIDs {
	return ConnectionIDs{Length: generationLength, Fill: func(id []byte) error {
		if err := randomID(id[1:taggedLength]); err != nil {
			return err
		}
		id[0] = g.number
		g.tag(id[taggedLength:], id)
		return nil
	}}
}

// tag writes the tag of an ID.
func (g *Generation) tag(to, id []byte) {
	var block [aes.BlockSize]byte
	copy(block[:taggedLength], id)
	g.tags.Encrypt(block[:], block[:])
	copy(to[:generationLength-taggedLength], block[:])
}

// of returns the generation of a packet, from its destination connection ID; that of g where it has none. The ID begins behind the first
// byte of a short header, and behind first byte, version and its own length in a long one (RFC 9000 17.2, 17.3).
func (g *Generation) of(packet []byte) uint8 {
	const long = 0x80
	at := 1
	if len(packet) > 0 && packet[0]&long != 0 {
		if at = 6; len(packet) < at || packet[at-1] != generationLength {
			return g.number
		}
	}
	if len(packet) < at+generationLength || packet[at] == g.number {
		return g.number
	}
	var tag [generationLength - taggedLength]byte
	id := packet[at:][:generationLength]
	g.tag(tag[:], id)
	if subtle.ConstantTimeCompare(tag[:], id[taggedLength:]) == 0 {
		return g.number
	}
	return id[0]
}

// NewSecret returns a random secret for NewGeneration and TransportConfig.Secret.
func NewSecret() ([]byte, error) {
	b := make([]byte, sha256.Size)
	if _, err := rand.Read(b); err != nil {
		return nil, fmt.Errorf("quic: %w", err)
	}
	return b, nil
}
