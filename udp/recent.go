package udp

import (
	"encoding/binary"

	"github.com/millrace/millrace/wire"
)

// peerCache remembers to whom unconnected sockets sent lately. An ICMP report that a
// datagram was too long is believed only for such a peer: a forger must guess the ports
// (RFC 5927 7, RFC 8085 5.2). It is a table of hashes in which a later peer replaces an
// earlier one; reports for that are believed again after the next datagram to it.
type peerCache []uint64

// peerCacheSize is the number of slots, a power of two.
const peerCacheSize = 1024

// add remembers a flow. The local address may not be chosen yet, and does not count.
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

// hashPeer hashes a flow without its local address.
func hashPeer(t *wire.Tuple, seed uint64) uint64 {
	h := mix(seed, uint64(t.LocalPort)<<16|uint64(t.RemotePort))
	h = mix(h, binary.LittleEndian.Uint64(t.Remote[0:]))
	return mix(h, binary.LittleEndian.Uint64(t.Remote[8:])) | 1 // 0 is an empty place
}
