package udp

import (
	"encoding/binary"

	"github.com/millrace/millrace/wire"
)

// peerCache remembers to whom unconnected sockets sent last, so that a report that such a
// datagram was too long can be told from a forged one, whose author has to guess the peer's
// port too (RFC 5927 7, RFC 8085 5.2). It is a table of hashes: a later peer takes the
// place of an earlier one, whose reports are then believed when it is sent to again.
type peerCache []uint64

// peerCacheSize is how many there are room for; a power of two.
const peerCacheSize = 1024

// add remembers a flow. Its local address may not be chosen yet, and does not count.
func (r *peerCache) add(t *wire.Tuple, seed uint64) {
	if *r == nil {
		*r = make(peerCache, peerCacheSize)
	}
	x := hashPeer(t, seed)
	(*r)[x>>1%peerCacheSize] = x
}

// has reports whether a flow is remembered.
func (r peerCache) has(t *wire.Tuple, seed uint64) bool {
	x := hashPeer(t, seed)
	return r != nil && r[x>>1%peerCacheSize] == x
}

// hashPeer hashes what a flow has without its local address.
func hashPeer(t *wire.Tuple, seed uint64) uint64 {
	h := mix(seed, uint64(t.LocalPort)<<16|uint64(t.RemotePort))
	h = mix(h, binary.LittleEndian.Uint64(t.Remote[0:]))
	return mix(h, binary.LittleEndian.Uint64(t.Remote[8:])) | 1 // 0 is an empty place
}
