// Package initial reads the ClientHello of a QUIC connection out of its first datagrams. It is in the CRYPTO frames of Initial
// packets, in any order. Their keys follow from the first Destination Connection ID of the client (RFC 9001 5.2; RFC 9369 3.3),
// so that anyone on the path can read it.
//
// Datagrams come from the caller. The package is pure; a Collector belongs to one caller.
package initial

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/millrace/millrace/tls/clienthello"
)

// Collector collects the CRYPTO frames of one connection. The zero value is ready.
type Collector struct {
	keys    *initialKeys
	data    []byte
	have    []span // what of data was received, in order, without overlaps
	packets int
}

// MaxHello bounds a ClientHello, in bytes: those with keys against quantum computers have about 2000.
const MaxHello = clienthello.DefaultLimit

type span struct{ from, to int }

// Bounds of what is collected.
const (
	maxSpans    = 64
	maxInitials = 16
)

type initialKeys struct {
	aead   cipher.AEAD
	header cipher.Block
	iv     [12]byte
}

// quicSalt returns the salt of a version, and the prefix of its labels. nil is a version without.
func quicSalt(version uint32) (salt []byte, prefix string) {
	switch {
	case version == 1, version == 0xff000021, version == 0xff000022:
		return saltV1, "quic "
	case version == 0x6b3343cf:
		return saltV2, "quicv2 "
	case version >= 0xff00001d && version <= 0xff000020:
		return saltDraft29, "quic "
	case version >= 0xff000017 && version <= 0xff00001c, version == 0xfaceb002:
		return saltDraft23, "quic "
	}
	return nil, ""
}

var (
	saltV1      = unhex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a")
	saltV2      = unhex("0dede3def700a6db819381be6e269dcbf9bd2ed9")
	saltDraft29 = unhex("afbfec289993d24c9e9786f19c6111e04390a899")
	saltDraft23 = unhex("c3eef712c72ebb5a11a7d2432bb46365bef9f502")
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// newInitialKeys derives the client's keys.
func newInitialKeys(version uint32, dcid []byte) *initialKeys {
	salt, prefix := quicSalt(version)
	if salt == nil {
		return nil
	}
	secret, err := hkdf.Extract(sha256.New, dcid, salt)
	if err != nil {
		return nil
	}
	client := expandLabel(secret, "client in", 32)
	k := &initialKeys{}
	block, err := aes.NewCipher(expandLabel(client, prefix+"key", 16))
	if err != nil {
		return nil
	}
	if k.aead, err = cipher.NewGCM(block); err != nil {
		return nil
	}
	if k.header, err = aes.NewCipher(expandLabel(client, prefix+"hp", 16)); err != nil {
		return nil
	}
	copy(k.iv[:], expandLabel(client, prefix+"iv", 12))
	return k
}

// expandLabel is HKDF-Expand-Label without a context (RFC 8446, 7.1).
func expandLabel(secret []byte, label string, n int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(info, byte(6+len(label)))
	info = append(info, "tls13 "...)
	info = append(info, label...)
	out, err := hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
	if err != nil {
		panic(err) // the length is a constant
	}
	return out
}

// Datagram reads the Initial packets of a datagram of the client, which it borrows. It reports false where the datagram is none of
// QUIC.
func (i *Collector) Datagram(p []byte) bool {
	for len(p) > 7 && p[0]&0xc0 == 0xc0 {
		packet, header, ok := longPacket(p)
		if !ok {
			return false
		}
		if header.initial && i.packets < maxInitials {
			i.packets++
			i.packet(packet, &header)
		}
		p = p[len(packet):]
	}
	return true
}

// More reports whether datagrams that follow may complete the ClientHello.
func (i *Collector) More() bool { return i.packets < maxInitials }

// Pending reports whether a part of the ClientHello has come.
func (i *Collector) Pending() bool { return len(i.have) > 0 && i.More() }

// Done forgets what has come: nothing more is collected.
func (i *Collector) Done() { *i = Collector{packets: maxInitials} }

// Size returns how many bytes are held.
func (i *Collector) Size() int { return cap(i.data) + cap(i.have)*spanSize }

// spanSize is the size of a span.
const spanSize = 16

// Version returns the version of a long header, and whether b begins with one (RFC 8999 5.1).
func Version(b []byte) (version uint32, ok bool) {
	if len(b) < 7 || b[0]&0x80 == 0 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b[1:]), true
}

// Known reports whether Initial packets of a version can be read.
func Known(version uint32) bool {
	salt, _ := quicSalt(version)
	return salt != nil
}

// longHeader holds the fields of a long header (RFC 9000, 17.2).
type longHeader struct {
	initial bool
	version uint32
	dcid    []byte
	number  int // the offset of the packet number
}

// longPacket returns the first packet of a datagram.
func longPacket(p []byte) (packet []byte, h longHeader, ok bool) {
	h.version = binary.BigEndian.Uint32(p[1:])
	kind := p[0] >> 4 & 3
	if h.version == 0x6b3343cf {
		kind = (kind + 3) & 3 // RFC 9369, 3.2
	}
	at := 6 + int(p[5])
	if p[5] > 20 || at >= len(p) {
		return nil, h, false
	}
	h.dcid, h.initial = p[6:at], kind == 0
	at += 1 + int(p[at])
	if kind == 3 { // Retry has no length
		return p, h, true
	}
	if kind == 0 {
		token, n := varint(p, at)
		at += n + token
		if n == 0 || token > len(p) {
			return nil, h, false
		}
	}
	size, n := varint(p, at)
	at += n
	if n == 0 || size > len(p)-at || at > len(p) {
		return nil, h, false
	}
	h.number = at
	return p[:at+size], h, true
}

// varint reads a number at an offset; n is 0 where it is not whole (RFC 9000, 16).
func varint(p []byte, at int) (value, n int) {
	if at < 0 || at >= len(p) {
		return 0, 0
	}
	n = 1 << (p[at] >> 6)
	if at+n > len(p) {
		return 0, 0
	}
	x := uint64(p[at] & 0x3f)
	for _, b := range p[at+1 : at+n] {
		x = x<<8 | uint64(b)
	}
	if x > 1<<30 {
		return 0, 0
	}
	return int(x), n
}

// packet decrypts one Initial packet and keeps its CRYPTO frames. What is not the client's, or damaged, does not decrypt.
func (i *Collector) packet(p []byte, h *longHeader) {
	if i.keys == nil {
		if i.keys = newInitialKeys(h.version, h.dcid); i.keys == nil {
			i.packets = maxInitials
			return
		}
	}
	if h.number+20 > len(p) {
		return
	}
	var mask [16]byte
	i.keys.header.Encrypt(mask[:], p[h.number+4:h.number+20]) // RFC 9001, 5.4.3
	first := p[0] ^ mask[0]&0x0f
	n := int(first&3) + 1
	plain := append([]byte{}, p...)
	plain[0] = first
	var number uint64
	for k := range n {
		plain[h.number+k] ^= mask[1+k]
		number = number<<8 | uint64(plain[h.number+k])
	}
	nonce := i.keys.iv
	for k := range 8 {
		nonce[4+k] ^= byte(number >> (56 - 8*k))
	}
	body := h.number + n
	frames, err := i.keys.aead.Open(plain[body:body], nonce[:], plain[body:], plain[:body])
	if err == nil {
		i.frames(frames)
	}
}

// frames keeps the CRYPTO frames of a packet. Any other frame that an Initial may have is skipped (RFC 9000, 17.2.2).
func (i *Collector) frames(p []byte) {
	for at := 0; at < len(p); {
		kind := p[at]
		at++
		switch kind {
		case 0, 1: // PADDING, PING
		case 2, 3:
			if at = skipAck(p, at, kind == 3); at < 0 {
				return
			}
		case 6:
			offset, a := varint(p, at)
			size, b := varint(p, at+a)
			at += a + b
			if a == 0 || b == 0 || size > len(p)-at {
				return
			}
			i.keep(offset, p[at:at+size])
			at += size
		default:
			return
		}
	}
}

// skipAck returns the offset behind an ACK frame, or -1.
func skipAck(p []byte, at int, ecn bool) int {
	fields := 4
	for k := 0; k < fields; k++ {
		v, n := varint(p, at)
		if n == 0 {
			return -1
		}
		at += n
		if k == 2 {
			if v > len(p) {
				return -1
			}
			fields += 2 * v
			if ecn {
				fields += 3
			}
		}
	}
	return at
}

// keep stores bytes at an offset of the handshake's stream.
func (i *Collector) keep(offset int, b []byte) {
	to := offset + len(b)
	if len(b) == 0 || to > MaxHello || len(i.have) >= maxSpans {
		return
	}
	if to > len(i.data) {
		i.data = append(i.data, make([]byte, to-len(i.data))...)
	}
	copy(i.data[offset:], b)
	merged := i.have[:0:0]
	add := span{offset, to}
	for _, s := range i.have {
		if s.to < add.from || s.from > add.to {
			merged = append(merged, s)
		} else {
			add = span{min(s.from, add.from), max(s.to, add.to)}
		}
	}
	i.have = append(merged, add)
}

// Hello returns the ClientHello with the header of its message once it is whole; it aliases the collector. more reports whether it may
// become so.
func (i *Collector) Hello() (message []byte, more bool) {
	if i.packets > maxInitials {
		return nil, false
	}
	for _, s := range i.have {
		if s.from != 0 || s.to < 4 {
			continue
		}
		size := 4 + (int(i.data[1])<<16 | int(i.data[2])<<8 | int(i.data[3]))
		if i.data[0] != 1 || size > MaxHello {
			return nil, false
		}
		if s.to >= size {
			return i.data[:size], false
		}
	}
	return nil, i.More()
}
