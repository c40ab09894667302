package quic

import (
	"crypto/rand"
	"errors"
	"fmt"

	quicgo "github.com/quic-go/quic-go"
)

// ConnectionIDs configures how a transport chooses its connection IDs. The zero value is 8 random bytes.
type ConnectionIDs struct {
	// Length in bytes, 4 to 20 (RFC 9000 17.2); 0 is 8.
	Length int
	// Fill fills an ID of that length; nil is random bytes. IDs must be unique, and must not let an
	// observer link two of them (RFC 9000 5.1). Several goroutines call it at once.
	Fill func(id []byte) error
}

const (
	defaultIDLength = 8
	minIDLength     = 4
	maxIDLength     = 20
	// maxIDTries bounds the draws of SteeredIDs. With 256 sockets a draw fails with 255/256, so all
	// fail once in 10^27.
	maxIDTries = 16384
)

// ErrConnectionID is returned where no suitable connection ID was found.
var ErrConnectionID = errors.New("quic: no suitable connection ID")

// IndexedIDs returns random IDs with an index in the byte at offset: that of the loop or socket
// which owns the transport. udp.Steering with the same length and offset then brings all packets of
// a connection there, whatever address the client has.
func IndexedIDs(length, offset int, index uint8) ConnectionIDs {
	return ConnectionIDs{Length: length, Fill: func(id []byte) error {
		if offset < 0 || offset >= len(id) {
			return ErrConnectionID
		}
		if err := randomID(id); err != nil {
			return err
		}
		id[offset] = index
		return nil
	}}
}

// SteeredIDs returns IDs that owned accepts, drawn from ids until one does. It is for IDs that are
// steered by a hash, such as encrypted ones of a load balancer.
func SteeredIDs(ids ConnectionIDs, owned func(id []byte) bool) ConnectionIDs {
	fill := ids.fill()
	return ConnectionIDs{Length: ids.Length, Fill: func(id []byte) error {
		for range maxIDTries {
			if err := fill(id); err != nil {
				return err
			}
			if owned(id) {
				return nil
			}
		}
		return ErrConnectionID
	}}
}

// randomID fills id.
func randomID(id []byte) error {
	_, err := rand.Read(id)
	return err
}

func (c ConnectionIDs) fill() func(id []byte) error {
	if c.Fill == nil {
		return randomID
	}
	return c.Fill
}

func (c ConnectionIDs) check() error {
	if c.Length != 0 && (c.Length < minIDLength || c.Length > maxIDLength) {
		return fmt.Errorf("%w: connection IDs have 4 to 20 bytes", ErrConfig)
	}
	return nil
}

// generator presents ConnectionIDs to quic-go.
type generator struct {
	length int
	fill   func(id []byte) error
}

func (c ConnectionIDs) generator() *generator {
	g := &generator{length: c.Length, fill: c.fill()}
	if g.length == 0 {
		g.length = defaultIDLength
	}
	return g
}

func (g *generator) ConnectionIDLen() int { return g.length }

func (g *generator) GenerateConnectionID() (quicgo.ConnectionID, error) {
	var b [maxIDLength]byte
	id := b[:g.length]
	if err := g.fill(id); err != nil {
		return quicgo.ConnectionID{}, err
	}
	return quicgo.ConnectionIDFromBytes(id), nil
}
