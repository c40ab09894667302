// Package auth signs and verifies TCP segments: TCP-AO (RFC 5925, RFC 5926) and TCP-MD5
// (RFC 2385).
//
// A State belongs to one connection, or to a record of one. The signature is an option of
// each segment, computed over the segment as it leaves, so it is added after segmentation
// and checked before anything else is believed.
//
// The package is pure and does not lock. The signing and verifying paths do not allocate.
package auth

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/binary"
	"hash"

	"github.com/millrace/millrace/wire"
)

// Keys sign and verify the segments of a connection: by TCP-AO where AO has a key, else by
// TCP-MD5.
type Keys struct {
	MD5 []byte  // password; nil for none
	AO  []AOKey // first: the one to send with
}

// AOKey is a master key tuple of TCP-AO (RFC 5925 3.1).
type AOKey struct {
	SendID, ReceiveID uint8
	Algorithm         AOAlgorithm
	Secret            []byte
	SkipOptions       bool // leave TCP options other than AO out of the MAC
}

// AOAlgorithm names the MAC and the key derivation of TCP-AO (RFC 5926).
type AOAlgorithm uint8

// Algorithms of RFC 5926.
const (
	AOSHA1   AOAlgorithm = iota // HMAC-SHA-1-96 with KDF_HMAC_SHA1
	AOAES128                    // AES-128-CMAC-96 with KDF_AES_128_CMAC
)

// Lengths of what a signature takes among the options, bytes.
const (
	md5OptionLen = 18           // RFC 2385 3.0
	aoMACLen     = 12           // 96 bits, RFC 5926 3.2
	aoOptionLen  = 4 + aoMACLen // RFC 5925 2.2
)

// State is the signature state of one connection: TCP-AO (RFC 5925) or, without keys for
// that, TCP-MD5 (RFC 2385).
type State struct {
	keys     *Keys
	tuple    wire.Tuple
	iss, irs uint32 // initial sequence numbers: traffic keys are derived from them (RFC 5925 5.2)
	hasIRS   bool   // irs is known

	current uint8 // index of the key that signs (RFC 5925 3.3, current_key)
	wanted  uint8 // index of the key that the peer is asked to sign with (rnext_key)

	sent, received extended
	out, in        trafficKey
	digest         hash.Hash // MD5

	Sign    func(wire.TCP) // sign, made once
	scratch [64]byte
	sum     [sha1.Size]byte
}

// New returns the state of the connection t whose initial sequence number is iss.
func New(k *Keys, t *wire.Tuple, iss uint32) *State {
	a := &State{}
	a.Init(k, t, iss)
	return a
}

// Init makes a as New does, for a State that is used for one record after another.
func (a *State) Init(k *Keys, t *wire.Tuple, iss uint32) {
	*a = State{keys: k, tuple: *t, iss: iss, sent: extended(iss)}
	a.Sign = a.signSegment
	if len(k.AO) == 0 {
		a.digest = md5.New()
	}
}

// SetPeerISN sets the peer's initial sequence number, which the traffic keys of all
// segments but the SYN need.
func (a *State) SetPeerISN(irs uint32) {
	a.irs, a.hasIRS, a.received = irs, true, extended(irs)
}

// Key returns the index of the key that signs, and UseKey sets it: SYN queue records keep
// it between segments.
func (a *State) Key() uint8 { return a.current }

func (a *State) UseKey(i uint8) { a.current = i }

// SetKeys changes the keys during the connection (RFC 5925 6.1). The present key goes on
// signing, if it is still there, until the peer asks for another; the peer is asked for the
// first.
func (a *State) SetKeys(k *Keys) {
	if len(a.keys.AO) == 0 || len(k.AO) == 0 {
		return // a connection keeps its kind of signature, RFC 5925 3.1
	}
	// Traffic keys belong to the old master keys; the next segment derives them anew.
	was := a.keys.AO[a.current].SendID
	a.keys, a.current, a.wanted = k, 0, 0
	a.in, a.out = trafficKey{}, trafficKey{}
	a.signWith(was)
}

// signWith selects the key that sends as id, if there is one.
func (a *State) signWith(id uint8) {
	for i := range a.keys.AO {
		if a.keys.AO[i].SendID == id {
			a.current = uint8(i)
			return
		}
	}
}

// OptionLen is the length of the signature among the options, bytes.
func (a *State) OptionLen() int {
	if len(a.keys.AO) == 0 {
		return md5OptionLen
	}
	return aoOptionLen
}

// AppendOption appends the option with an empty signature, which Sign fills in.
func (a *State) AppendOption(b []byte) []byte {
	if len(a.keys.AO) == 0 {
		return wire.AppendMD5(b, [md5.Size]byte{})
	}
	var none [aoMACLen]byte
	return wire.AppendAO(b, a.keys.AO[a.current].SendID, a.keys.AO[a.wanted].ReceiveID, none[:])
}

// signSegment fills in the signature of a segment that is complete but for it and the
// checksum.
func (a *State) signSegment(seg wire.TCP) {
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

// Verify reports whether the peer has signed the segment. The key that a valid segment asks
// for signs from then on (RFC 5925 7.5). A segment that was merged from several has no
// signature that could be verified.
func (a *State) Verify(seg wire.TCP) bool {
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

// verifyAO tries every key with the ID of the segment: IDs need not be unique while keys
// are exchanged.
func (a *State) verifyAO(seg wire.TCP, opt []byte) bool {
	// The first SYN sets the peer's number: until it verifies, its own number is the only
	// reference.
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

// verified notes what a segment with a valid signature says.
func (a *State) verified(seg wire.TCP, next uint8) {
	if !a.hasIRS && seg.Flags().Has(wire.FlagSYN) {
		a.SetPeerISN(seg.Seq())
	}
	a.received.advance(seg.Seq())
	if a.keys.AO[a.current].SendID != next {
		a.signWith(next)
	}
}

// option returns the first whole option of the kind and length; nil where there is none.
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
func (a *State) pseudo(n int, in bool) []byte {
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

// header returns the 20 bytes of the header with a checksum of 0, as both signatures cover
// it.
func (a *State) header(seg wire.TCP) []byte {
	b := append(a.scratch[:0], seg[:wire.TCPLen]...)
	b[16], b[17] = 0, 0
	return b
}

// md5 returns the digest of RFC 2385 2.0: pseudo header, header without options, payload,
// password.
func (a *State) md5(seg wire.TCP, in bool) []byte {
	h := a.digest
	h.Reset()
	h.Write(a.pseudo(len(seg), in))
	h.Write(a.header(seg))
	h.Write(seg.Payload())
	h.Write(a.keys.MD5)
	return h.Sum(a.sum[:0])
}

// ao returns the MAC of RFC 5925 5.1 over the sequence number extension, pseudo header,
// header with all options or only this one, whose MAC is zero, and payload.
func (a *State) ao(seg wire.TCP, opt []byte, k *trafficKey, sne uint32, in bool) []byte {
	h := k.mac
	h.Reset()
	h.Write(binary.BigEndian.AppendUint32(a.scratch[:0], sne))
	h.Write(a.pseudo(len(seg), in))
	h.Write(a.header(seg))
	a.options(h, seg, opt, a.keys.AO[k.index].SkipOptions)
	h.Write(seg.Payload())
	return h.Sum(a.sum[:0])[:aoMACLen]
}

// options adds the options to the MAC, opt with zeros for the MAC itself.
func (a *State) options(h hash.Hash, seg wire.TCP, opt []byte, skip bool) {
	all := seg.Options()
	// The position follows from the capacities, which saves a second walk through the
	// options.
	at := cap(all) - cap(opt) // opt is a piece of all
	b := append(a.scratch[:0], all...)
	clear(b[at+4 : at+aoOptionLen])
	if skip {
		b = b[at : at+aoOptionLen]
	}
	h.Write(b)
}
