package auth

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/binary"
	"hash"

	"github.com/millrace/millrace/wire"
)

// trafficKey is the derived key of one direction. It is kept until master key, direction or
// ISN change, because deriving it costs more than a MAC.
type trafficKey struct {
	mac   hash.Hash
	index uint8 // of the master key
	syn   bool  // for the SYN, which is sent before the peer's sequence number is known
	seq   uint32
}

// sendKey returns the key that signs seg.
func (a *State) sendKey(seg wire.TCP) *trafficKey {
	syn := seg.Flags()&(wire.FlagSYN|wire.FlagACK) == wire.FlagSYN
	k := &a.out
	if k.mac == nil || k.index != a.current || k.syn != syn {
		// A SYN is signed before the peer's number is known: zero takes its place (RFC 5925
		// 5.2).
		remote := a.irs
		if syn {
			remote = 0
		}
		k.derive(a, a.current, syn, a.iss, remote, false)
	}
	return k
}

// receiveKey returns the key with which the peer signs seg by master key i.
func (a *State) receiveKey(seg wire.TCP, i uint8) *trafficKey {
	syn := seg.Flags()&(wire.FlagSYN|wire.FlagACK) == wire.FlagSYN
	irs, iss := a.irs, a.iss
	if seg.Flags().Has(wire.FlagSYN) && !a.hasIRS {
		irs = seg.Seq()
	}
	if syn {
		irs, iss = seg.Seq(), 0
	}
	k := &a.in
	if k.mac == nil || k.index != i || k.syn != syn || k.seq != irs {
		k.derive(a, i, syn, irs, iss, true)
	}
	return k
}

// derive computes the traffic key of master key i for one direction (RFC 5926 3.1) from
// addresses, ports and initial sequence numbers, the sender's first.
func (k *trafficKey) derive(a *State, i uint8, syn bool, from, to uint32, in bool) {
	t := a.tuple
	if in {
		t = t.Reverse()
	}
	master := &a.keys.AO[i]
	*k = trafficKey{index: i, syn: syn, seq: from}
	key := kdf(master, kdfContext(&t, from, to))
	if master.Algorithm == AOAES128 {
		k.mac = newCMAC([16]byte(key))
	} else {
		k.mac = hmac.New(sha1.New, key)
	}
}

// kdfContext is the context of RFC 5925 5.2.
func kdfContext(t *wire.Tuple, from, to uint32) []byte {
	b := make([]byte, 0, 44)
	if t.Local.Is4() {
		b = append(append(b, t.Local[12:]...), t.Remote[12:]...)
	} else {
		b = append(append(b, t.Local[:]...), t.Remote[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, t.LocalPort)
	b = binary.BigEndian.AppendUint16(b, t.RemotePort)
	b = binary.BigEndian.AppendUint32(b, from)
	return binary.BigEndian.AppendUint32(b, to)
}

// kdf returns the traffic key (RFC 5926 3.1.1): the PRF over counter, label, context and
// length in bits.
func kdf(k *AOKey, context []byte) []byte {
	b := append([]byte("\x01TCP-AO"), context...)
	if k.Algorithm == AOAES128 {
		return aesKDF(k.Secret, append(b, 0, 128))
	}
	h := hmac.New(sha1.New, k.Secret)
	h.Write(append(b, 0, 160))
	return h.Sum(nil)
}

// aesKDF is KDF_AES_128_CMAC (RFC 5926 3.1.1.2): a master key of another length is first
// hashed to 128 bits.
func aesKDF(secret, input []byte) []byte {
	var key [16]byte
	if len(secret) == len(key) {
		copy(key[:], secret)
	} else {
		h := newCMAC(key)
		h.Write(secret)
		h.Sum(key[:0])
	}
	h := newCMAC(key)
	h.Write(input)
	return h.Sum(nil)
}

// extended is a sequence number that counts on after 2^32: the latest seen. Its upper half
// is the sequence number extension (RFC 5925 6.2), which keeps a segment of 4 GiB ago from
// verifying again.
type extended uint64

// near returns the extended number closest to e with the low half seq.
func (e extended) near(seq uint32) extended {
	return e + extended(int64(int32(seq-uint32(e))))
}

// of returns the extension of seq, which lies within 2^31 of e.
func (e extended) of(seq uint32) uint32 { return uint32(e.near(seq) >> 32) }

// advance moves e to seq where that is later.
func (e *extended) advance(seq uint32) {
	if n := e.near(seq); int64(n-*e) > 0 {
		*e = n
	}
}
