package tcp

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/binary"
	"hash"

	"github.com/millrace/millrace/wire"
)

// Lengths of what a signature takes among the options, bytes.
const (
	md5OptionLen = 18           // RFC 2385 3.0
	aoMACLen     = 12           // 96 bits, RFC 5926 3.2
	aoOptionLen  = 4 + aoMACLen // RFC 5925 2.2
)

// auth signs and verifies the segments of one connection, by TCP-AO (RFC 5925) or, without keys for
// that, by TCP-MD5 (RFC 2385).
type auth struct {
	keys     *Keys
	tuple    wire.Tuple
	iss, irs uint32 // initial sequence numbers, from which traffic keys come (RFC 5925 5.2)
	hasIRS   bool   // irs is known

	current uint8 // index of the key that signs (RFC 5925 3.3, current_key)
	wanted  uint8 // index of the key that the peer shall sign with (rnext_key)

	sent, received extended
	out, in        trafficKey
	digest         hash.Hash // MD5

	signer  func(wire.TCP) // sign, made once
	scratch [64]byte
	sum     [sha1.Size]byte
}

// trafficKey is the MAC of one key and direction.
type trafficKey struct {
	mac   hash.Hash
	index uint8 // of the master key
	syn   bool  // for the SYN alone, which knows no peer's sequence number
	seq   uint32
}

// newAuth returns what signs for the connection t whose initial sequence number is iss.
func newAuth(k *Keys, t *wire.Tuple, iss uint32) *auth {
	a := &auth{}
	a.init(k, t, iss)
	return a
}

func (a *auth) init(k *Keys, t *wire.Tuple, iss uint32) {
	*a = auth{keys: k, tuple: *t, iss: iss, sent: extended(iss)}
	a.signer = a.sign
	if len(k.AO) == 0 {
		a.digest = md5.New()
	}
}

// peer tells the peer's initial sequence number.
func (a *auth) peer(irs uint32) {
	a.irs, a.hasIRS, a.received = irs, true, extended(irs)
}

// setKeys changes the keys during the connection (RFC 5925 6.1). Ours goes on signing until the peer
// asks for another, if it is still there; the peer is asked for the first.
func (a *auth) setKeys(k *Keys) {
	if len(a.keys.AO) == 0 || len(k.AO) == 0 {
		return // a connection keeps its kind of signature, RFC 5925 3.1
	}
	was := a.keys.AO[a.current].SendID
	a.keys, a.current, a.wanted = k, 0, 0
	a.in, a.out = trafficKey{}, trafficKey{}
	a.signWith(was)
}

// signWith makes the key that sends as id the one that signs, if there is one.
func (a *auth) signWith(id uint8) {
	for i := range a.keys.AO {
		if a.keys.AO[i].SendID == id {
			a.current = uint8(i)
			return
		}
	}
}

// optionLen is what the signature takes among the options, bytes.
func (a *auth) optionLen() int {
	if len(a.keys.AO) == 0 {
		return md5OptionLen
	}
	return aoOptionLen
}

// appendOption appends the option with an empty signature, which sign fills in.
func (a *auth) appendOption(b []byte) []byte {
	if len(a.keys.AO) == 0 {
		return wire.AppendMD5(b, [md5.Size]byte{})
	}
	var none [aoMACLen]byte
	return wire.AppendAO(b, a.keys.AO[a.current].SendID, a.keys.AO[a.wanted].ReceiveID, none[:])
}

// sign fills in the signature of a segment that is whole but for it and the checksum.
func (a *auth) sign(seg wire.TCP) {
	if len(a.keys.AO) == 0 {
		if opt := option(seg, wire.TCPOptMD5, md5OptionLen); opt != nil {
			copy(opt[2:], a.md5(seg, false))
		}
		return
	}
	if opt := option(seg, wire.TCPOptAO, aoOptionLen); opt != nil {
		mac := a.ao(seg, opt, a.sendKey(seg), a.sent.of(seg.Seq()), false)
		copy(opt[4:], mac)
		a.sent.advance(seg.Seq())
	}
}

// verify reports whether the peer has signed the segment. What one says of keys is heeded: that which
// it names is signed with from now on (RFC 5925 7.3).
func (a *auth) verify(seg wire.TCP) bool {
	if seg == nil {
		return false // merged: there is no telling
	}
	if len(a.keys.AO) == 0 {
		opt := option(seg, wire.TCPOptMD5, md5OptionLen)
		return opt != nil && subtle.ConstantTimeCompare(opt[2:], a.md5(seg, true)) == 1
	}
	opt := option(seg, wire.TCPOptAO, aoOptionLen)
	return opt != nil && a.verifyAO(seg, opt)
}

func (a *auth) verifyAO(seg wire.TCP, opt []byte) bool {
	from := a.received
	if seg.Flags().Has(wire.FlagSYN) && !a.hasIRS {
		from = extended(seg.Seq())
	}
	for i := range a.keys.AO {
		if a.keys.AO[i].ReceiveID != opt[2] {
			continue
		}
		k := a.receiveKey(seg, uint8(i))
		if subtle.ConstantTimeCompare(opt[4:], a.ao(seg, opt, k, from.of(seg.Seq()), true)) == 1 {
			a.verified(seg, opt[3])
			return true
		}
	}
	return false
}

// verified notes what a segment with a right signature tells.
func (a *auth) verified(seg wire.TCP, next uint8) {
	if !a.hasIRS && seg.Flags().Has(wire.FlagSYN) {
		a.peer(seg.Seq())
	}
	a.received.advance(seg.Seq())
	if a.keys.AO[a.current].SendID != next {
		a.signWith(next)
	}
}

// option returns the first option of the kind and length, whole; nil where there is none.
func option(seg wire.TCP, kind uint8, length int) []byte {
	b := seg.Options()
	for len(b) >= 2 && b[0] != wire.OptionEnd {
		if b[0] == wire.OptionNOP {
			b = b[1:]
			continue
		}
		n := int(b[1])
		if n < 2 || n > len(b) {
			return nil
		}
		if b[0] == kind && n == length {
			return b[:n]
		}
		b = b[n:]
	}
	return nil
}

// pseudo returns the pseudo header of a segment of n bytes: the peer's where in, else ours.
func (a *auth) pseudo(n int, in bool) []byte {
	src, dst := &a.tuple.Local, &a.tuple.Remote
	if in {
		src, dst = dst, src
	}
	b := a.scratch[:0]
	if src.Is4() {
		b = append(append(b, src[12:]...), dst[12:]...)
		return append(b, 0, wire.ProtoTCP, byte(n>>8), byte(n))
	}
	b = append(append(b, src[:]...), dst[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return append(b, 0, 0, 0, wire.ProtoTCP)
}

// header returns the 20 bytes of the header with a checksum of 0.
func (a *auth) header(seg wire.TCP) []byte {
	b := append(a.scratch[:0], seg[:wire.TCPLen]...)
	b[16], b[17] = 0, 0
	return b
}

// md5 returns the digest of RFC 2385 2.0: pseudo header, header without options, payload, password.
func (a *auth) md5(seg wire.TCP, in bool) []byte {
	h := a.digest
	h.Reset()
	h.Write(a.pseudo(len(seg), in))
	h.Write(a.header(seg))
	h.Write(seg.Payload())
	h.Write(a.keys.MD5)
	return h.Sum(a.sum[:0])
}

// ao returns the MAC of RFC 5925 5.1: sequence number extension, pseudo header, header with all its
// options or only this one, whose MAC is 0, and payload.
func (a *auth) ao(seg wire.TCP, opt []byte, k *trafficKey, sne uint32, in bool) []byte {
	h := k.mac
	h.Reset()
	h.Write(binary.BigEndian.AppendUint32(a.scratch[:0], sne))
	h.Write(a.pseudo(len(seg), in))
	h.Write(a.header(seg))
	a.options(h, seg, opt, a.keys.AO[k.index].SkipOptions)
	h.Write(seg.Payload())
	return h.Sum(a.sum[:0])[:aoMACLen]
}

// options adds the options, of which opt is in the MAC with zeros for the MAC itself.
func (a *auth) options(h hash.Hash, seg wire.TCP, opt []byte, skip bool) {
	all := seg.Options()
	at := cap(all) - cap(opt) // opt is a piece of all
	b := append(a.scratch[:0], all...)
	clear(b[at+4 : at+aoOptionLen])
	if skip {
		b = b[at : at+aoOptionLen]
	}
	h.Write(b)
}

// sendKey returns the key that signs seg.
func (a *auth) sendKey(seg wire.TCP) *trafficKey {
	syn := seg.Flags()&(wire.FlagSYN|wire.FlagACK) == wire.FlagSYN
	k := &a.out
	if k.mac == nil || k.index != a.current || k.syn != syn {
		remote := a.irs
		if syn {
			remote = 0
		}
		k.derive(a, a.current, syn, a.iss, remote, false)
	}
	return k
}

// receiveKey returns the key with which the peer, using master key i, signs seg.
func (a *auth) receiveKey(seg wire.TCP, i uint8) *trafficKey {
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

// derive computes the traffic key of master key i for one direction (RFC 5926 3.1): from the addresses,
// ports and initial sequence numbers, the sender's first.
func (k *trafficKey) derive(a *auth, i uint8, syn bool, from, to uint32, in bool) {
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

// kdf returns the traffic key (RFC 5926 3.1.1): the PRF over counter, label, context and length in bits.
func kdf(k *AOKey, context []byte) []byte {
	b := append([]byte("\x01TCP-AO"), context...)
	if k.Algorithm == AOAES128 {
		return aesKDF(k.Secret, append(b, 0, 128))
	}
	h := hmac.New(sha1.New, k.Secret)
	h.Write(append(b, 0, 160))
	return h.Sum(nil)
}

// aesKDF is KDF_AES_128_CMAC (RFC 5926 3.1.1.2): a master key of another length is made into 128 bits first.
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

// extended is a sequence number that goes on counting after 2^32: the high half is what RFC 5925 6.2
// calls the sequence number extension. It is the latest seen.
type extended uint64

func (e extended) near(seq uint32) extended {
	return e + extended(int64(int32(seq-uint32(e))))
}

// of returns the extension that seq has, which is near.
func (e extended) of(seq uint32) uint32 { return uint32(e.near(seq) >> 32) }

// advance counts on to seq where it is later.
func (e *extended) advance(seq uint32) {
	if n := e.near(seq); int64(n-*e) > 0 {
		*e = n
	}
}
