package tcp

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/wire"
)

// sipKey keys the hashes of flows and addresses that a peer must neither predict nor steer into collisions.
type sipKey random.Key

// deriveKey returns the key for one use of a secret; label names the use.
func deriveKey(secret *[32]byte, label string) sipKey {
	h := sha256.New()
	h.Write(secret[:])
	h.Write([]byte(label))
	return sipKey(random.KeyFrom(h.Sum(nil)))
}

// hashAddr adds an address to a hash.
func hashAddr(h *random.Hash, a *wire.Addr) {
	h.Word(binary.LittleEndian.Uint64(a[:8]))
	h.Word(binary.LittleEndian.Uint64(a[8:]))
}

// tuple hashes the flow and one word more: 44 bytes.
func (k sipKey) tuple(t *wire.Tuple, extra uint64) uint64 {
	h := random.Key(k).Start()
	hashAddr(&h, &t.Local)
	hashAddr(&h, &t.Remote)
	h.Word(extra)
	return h.Sum(44, uint64(t.LocalPort)<<16|uint64(t.RemotePort))
}

// addrs hashes two addresses and one word: 40 bytes.
func (k sipKey) addrs(a, b *wire.Addr, extra uint64) uint64 {
	h := random.Key(k).Start()
	hashAddr(&h, a)
	hashAddr(&h, b)
	h.Word(extra)
	return h.Sum(40, 0)
}
