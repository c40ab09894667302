package quiclb

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
)

// Lengths in octets. A connection ID of QUIC version 1 has at most 20 (RFC 9000 17.2), and the first
// octet is not the server's.
const (
	KeyLen      = aes.BlockSize
	MinServerID = 1
	MaxServerID = 15
	MinNonce    = 4
	MaxNonce    = 18
	MaxTogether = 19 // of a server ID and a nonce
	Rotations   = 7  // rotation 7 is for servers without a configuration: never routable
)

// ErrConfig is wrapped by all errors of New.
var ErrConfig = errors.New("quiclb: bad configuration")

// Config is a configuration that load balancers and servers share.
type Config struct {
	Rotation int    // 0 to 6: distinguishes IDs of this configuration from those of another
	ServerID int    // length of server IDs, octets
	Nonce    int    // length of nonces, octets
	Key      []byte // KeyLen octets; nil: IDs are not encrypted
}

// ServerID is the ID of a server, of up to MaxServerID octets. It is comparable.
type ServerID struct {
	octets [MaxServerID]byte
	length uint8
}

// NewServerID returns the server ID with the given octets, of which there are at most MaxServerID.
func NewServerID(octets []byte) ServerID {
	id := ServerID{length: uint8(len(octets))}
	copy(id.octets[:], octets)
	return id
}

// String returns the ID in hexadecimal digits.
func (s ServerID) String() string { return fmt.Sprintf("%x", s.octets[:s.length]) }

// Codec makes and reads the connection IDs of one configuration. It is immutable: goroutines may
// share it, each with a Scratch of its own.
type Codec struct {
	first    uint8 // rotation bits of the first octet
	serverID int
	length   int // of server ID and nonce
	block    cipher.Block
}

// Scratch is memory that Decode works in. Its zero value is ready.
type Scratch struct{ in, out [aes.BlockSize]byte }

// New returns the codec of a configuration.
func New(c Config) (*Codec, error) {
	switch together := c.ServerID + c.Nonce; {
	case c.Rotation < 0 || c.Rotation >= Rotations:
		return nil, fmt.Errorf("%w: rotation %d does not lie between 0 and %d", ErrConfig, c.Rotation, Rotations-1)
	case c.ServerID < MinServerID || c.ServerID > MaxServerID:
		return nil, fmt.Errorf("%w: server IDs have %d octets, not %d to %d", ErrConfig, c.ServerID, MinServerID, MaxServerID)
	case c.Nonce < MinNonce || together > MaxTogether:
		return nil, fmt.Errorf("%w: nonces have %d octets, not %d to %d", ErrConfig, c.Nonce, MinNonce, MaxTogether-c.ServerID)
	case c.Key != nil && len(c.Key) != KeyLen:
		return nil, fmt.Errorf("%w: the key has %d octets, not %d", ErrConfig, len(c.Key), KeyLen)
	}
	codec := &Codec{first: uint8(c.Rotation) << 5, serverID: c.ServerID, length: c.ServerID + c.Nonce}
	if c.Key != nil {
		block, err := aes.NewCipher(c.Key)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		codec.block = block
	}
	return codec, nil
}

// Len returns how many octets of a connection ID Decode needs.
func (c *Codec) Len() int { return 1 + c.length }

// Decode returns the server ID in a connection ID; false when it is too short or of another
// configuration. That a server has the ID is for the caller to find out: IDs that clients choose
// look like any. It allocates nothing; scratch is borrowed.
func (c *Codec) Decode(cid []byte, scratch *Scratch) (ServerID, bool) {
	if len(cid) < c.Len() || cid[0]&0xe0 != c.first {
		return ServerID{}, false
	}
	id := ServerID{length: uint8(c.serverID)}
	text := cid[1:c.Len()]
	switch {
	case c.block == nil:
		copy(id.octets[:c.serverID], text)
	case c.length == aes.BlockSize:
		scratch.in = [aes.BlockSize]byte(text)
		c.block.Decrypt(scratch.out[:], scratch.in[:])
		copy(id.octets[:c.serverID], scratch.out[:])
	default:
		h := split(text)
		c.decrypt(&h, scratch)
		copy(id.octets[:c.serverID], h.left[:h.n])
		if c.serverID > c.length/2 {
			h.join(&id)
		}
	}
	return id, true
}

// Encode appends a connection ID for a server and a nonce to dst. The five bits behind the rotation
// tell its length. The lengths of id and nonce are the configuration's.
func (c *Codec) Encode(dst []byte, id ServerID, nonce []byte) ([]byte, error) {
	if int(id.length) != c.serverID || len(nonce) != c.length-c.serverID {
		return dst, fmt.Errorf("%w: a server ID of %d and a nonce of %d octets, not %d and %d",
			ErrConfig, id.length, len(nonce), c.serverID, c.length-c.serverID)
	}
	dst = append(dst, c.first|uint8(c.length))
	at := len(dst)
	dst = append(append(dst, id.octets[:id.length]...), nonce...)
	text := dst[at:]
	switch {
	case c.block == nil:
	case c.length == aes.BlockSize:
		c.block.Encrypt(text, text)
	default:
		h := split(text)
		c.encrypt(&h, &Scratch{})
		h.put(text)
	}
	return dst, nil
}
