package udp

import (
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/wire"
)

// Steering selects the socket of a group to which a QUIC packet belongs by its destination
// connection ID (RFC 9000 5.2), so that a client may change its address and stay with its
// socket. Sockets of the group have indices (Socket.Index); their servers choose connection
// IDs for which Socket.Steered is their own index.
//
// A client's first packets have an ID that the client chose. The same rule sends all of
// them to the same socket, whose server then chooses the next ID.
type Steering struct {
	Length int // of connection IDs that the servers choose, bytes: 1 to 20 (RFC 9000 17.2)
	Offset int // of the byte within them that is the socket's index; -1 goes by a hash of the whole
}

// maxCID is the longest connection ID of QUIC version 1 (RFC 9000 17.2).
const maxCID = 20

// longHeader is the bit of a packet's first byte that marks a long header (RFC 8999 5.1).
const longHeader = 0x80

func (st *Steering) valid() bool {
	return st.Length >= 1 && st.Length <= maxCID && st.Offset >= -1 && st.Offset < st.Length
}

// connID returns the destination connection ID of a packet; nil where there is none.
//
//	long:  |1.......| version (4) | length (1) | ID ...       RFC 8999 5.1
//	short: |0.......| ID of the length that the server chose  RFC 8999 5.2
func (st *Steering) connID(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	if b[0]&longHeader == 0 {
		if len(b) < 1+st.Length {
			return nil
		}
		return b[1 : 1+st.Length]
	}
	if len(b) < 6 || b[5] == 0 || len(b) < 6+int(b[5]) {
		return nil
	}
	return b[6 : 6+int(b[5])]
}

// index returns which of n sockets an ID belongs to.
func (st *Steering) index(id []byte, n int, seed uint64) int {
	if st.Offset >= 0 && len(id) == st.Length {
		return int(id[st.Offset]) % n
	}
	return scale(hashBytes(id, seed), n)
}

// Steer sets how the group of s chooses among its sockets; nil goes by the flow's hash.
func (s *Socket) Steer(st *Steering) error {
	if s.sharers == nil {
		return ErrSteering
	}
	if st == nil {
		s.sharers.steering = nil
		return nil
	}
	if !st.valid() {
		return ErrSteering
	}
	c := *st
	s.sharers.steering = &c
	return nil
}

// Index returns the place of s in its group, from 0. It stays while s is open.
func (s *Socket) Index() int { return s.index }

// Steered returns the index of the socket in s's group that packets with a connection ID go
// to as the group is now, -1 where the group is not steered.
func (s *Socket) Steered(id []byte) int {
	if s.sharers == nil || s.sharers.steering == nil || len(id) == 0 {
		return -1
	}
	return s.sharers.From(s.sharers.steering.index(id, s.sharers.Indexes(), s.m.cfg.Seed)).index
}

// scale maps a hash to 0..n-1 by its upper bits.
func scale(h uint64, n int) int {
	hi, _ := bits.Mul64(h, uint64(n))
	return int(hi)
}

// mix is a round of a keyed hash: the folded halves of a product, as in wyhash.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xd1b54a32d192ed03)
	return hi ^ lo
}

// hashBytes hashes b with a secret.
func hashBytes(b []byte, seed uint64) uint64 {
	h := mix(seed, uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h, binary.LittleEndian.Uint64(b))
	}
	var tail uint64
	for _, c := range b {
		tail = tail<<8 | uint64(c)
	}
	return mix(mix(h, tail), seed)
}

// hashFlow hashes a flow with a secret.
func hashFlow(t *wire.Tuple, seed uint64) uint64 {
	h := mix(seed, uint64(t.LocalPort)<<16|uint64(t.RemotePort))
	h = mix(h, binary.LittleEndian.Uint64(t.Remote[0:]))
	h = mix(h, binary.LittleEndian.Uint64(t.Remote[8:]))
	h = mix(h, binary.LittleEndian.Uint64(t.Local[0:]))
	return mix(h, binary.LittleEndian.Uint64(t.Local[8:]))
}
