package sign

import (
	"crypto"
	"crypto/rsa"
	"fmt"
	"hash"
	"io"
)

// This file has the encodings of digests that RSA signs (RFC 8017 9).

// digestInfos are the DER encodings in front of a digest in EMSA-PKCS1-v1_5 (RFC 8017 9.2, note 1): SEQUENCE { SEQUENCE {
// OBJECT IDENTIFIER, NULL }, OCTET STRING }.
var digestInfos = map[crypto.Hash][]byte{
	crypto.SHA1:   digestInfo(20, 0x2b, 0x0e, 0x03, 0x02, 0x1a),
	crypto.SHA256: digestInfo(32, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01),
	crypto.SHA384: digestInfo(48, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02),
	crypto.SHA512: digestInfo(64, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03),
}

// digestInfo returns the prefix for a digest of size bytes by the hash with that object identifier.
func digestInfo(size byte, oid ...byte) []byte {
	n := byte(len(oid))
	p := []byte{0x30, n + size + 8, 0x30, n + 4, 0x06, n}
	p = append(p, oid...)
	return append(p, 0x05, 0x00, 0x04, size)
}

// Encodable reports whether a batch encodes digests of that kind.
func Encodable(opts crypto.SignerOpts) bool {
	_, known := digestInfos[opts.HashFunc()]
	return known
}

// Encode sets em, which has the length of the modulus in bytes, to the encoding of a digest that opts ask for. modulusBits
// is that of the key; salts come from random.
func Encode(em []byte, modulusBits int, random io.Reader, digest []byte, opts crypto.SignerOpts) error {
	h := opts.HashFunc()
	if _, known := digestInfos[h]; !known {
		return fmt.Errorf("sign: no digest of %v is encoded", h)
	}
	if len(digest) != h.Size() {
		return fmt.Errorf("sign: a digest of %d bytes, not the %d of %v", len(digest), h.Size(), h)
	}
	if pss, ok := opts.(*rsa.PSSOptions); ok {
		return encodePSS(em, modulusBits, random, digest, pss)
	}
	return encodePKCS1(em, digest, digestInfos[h])
}

// encodePKCS1 is EMSA-PKCS1-v1_5 (RFC 8017 9.2): 00 01 FF ... FF 00 DigestInfo.
func encodePKCS1(em, digest, info []byte) error {
	separator := len(em) - len(info) - len(digest) - 1
	if separator < 2+8 {
		return rsa.ErrMessageTooLong
	}
	em[0], em[1], em[separator] = 0, 1, 0
	for i := 2; i < separator; i++ {
		em[i] = 0xff
	}
	copy(em[separator+1:], info)
	copy(em[separator+1+len(info):], digest)
	return nil
}

// encodePSS is EMSA-PSS (RFC 8017 9.1.1): maskedDB || H || bc, in one bit less than the modulus has.
func encodePSS(em []byte, modulusBits int, random io.Reader, digest []byte, o *rsa.PSSOptions) error {
	bits := modulusBits - 1
	if len(em) > (bits+7)/8 { // a modulus of 8n+1 bits
		em[0] = 0
		em = em[1:]
	}
	h := o.HashFunc().New()
	room := len(em) - h.Size() - 2
	salt := o.SaltLength
	switch salt {
	case rsa.PSSSaltLengthAuto:
		salt = room
	case rsa.PSSSaltLengthEqualsHash:
		salt = h.Size()
	}
	if salt < 0 || salt > room {
		return rsa.ErrMessageTooLong
	}
	db, hashed := em[:len(em)-h.Size()-1], em[len(em)-h.Size()-1:]
	separator := len(db) - salt - 1
	clear(db[:separator])
	db[separator] = 1
	if _, err := io.ReadFull(random, db[separator+1:]); err != nil {
		return err
	}
	h.Write(make([]byte, 8))
	h.Write(digest)
	h.Write(db[separator+1:])
	h.Sum(hashed[:0])
	hashed[h.Size()] = 0xbc
	mask(db, hashed[:h.Size()], h)
	db[0] &= 0xff >> (8*len(em) - bits)
	return nil
}

// mask adds MGF1 of a seed to db (RFC 8017 B.2.1).
func mask(db, seed []byte, h hash.Hash) {
	var counter [4]byte
	var sum [64]byte
	for at := 0; at < len(db); {
		h.Reset()
		h.Write(seed)
		h.Write(counter[:])
		for _, b := range h.Sum(sum[:0]) {
			if at == len(db) {
				return
			}
			db[at] ^= b
			at++
		}
		counter[3]++ // never carries: a key has at most 512 bytes, a digest at least 20
	}
}
