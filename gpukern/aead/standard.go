package aead

import (
	"crypto/cipher"
	"crypto/subtle"
)

// standard does one operation with the standard library.
func (k *Key) standard(d direction, op *Op, b *Batch) Result {
	k.prepare()
	text, aad := b.text(op) // the text has its tag behind
	n := len(text) - TagSize
	switch {
	case k.algorithm.cbc():
		return k.standardCBC(d, op, text, aad)
	case d == seal:
		k.aead.Seal(text[:0], op.Nonce[:12], text[:n], aad)
	default:
		if _, err := k.aead.Open(text[:0], op.Nonce[:12], text, aad); err != nil {
			clear(text[:n])
			return Forged
		}
	}
	return Done
}

// standardCBC is encrypt-then-MAC as ESP has it: the tag covers the header, the IV, the ciphertext, and the high half of an
// extended sequence number (RFC 4303 2.2.1, 2.8).
func (k *Key) standardCBC(d direction, op *Op, text, aad []byte) Result {
	n := len(text) - TagSize
	body, tag := text[:n], text[n:]
	if d == seal {
		cipher.NewCBCEncrypter(k.block, op.Nonce[:]).CryptBlocks(body, body)
		var sum [32]byte
		k.tagCBC(&sum, op, body, aad)
		copy(tag, sum[:])
		return Done
	}
	var sum [32]byte
	k.tagCBC(&sum, op, body, aad)
	if subtle.ConstantTimeCompare(sum[:TagSize], tag) != 1 {
		clear(body)
		return Forged
	}
	cipher.NewCBCDecrypter(k.block, op.Nonce[:]).CryptBlocks(body, body)
	return Done
}

func (k *Key) tagCBC(sum *[32]byte, op *Op, body, aad []byte) {
	h := k.hmac()
	defer k.release(h)
	last := len(aad) - 4 // where the low half of the sequence number is
	h.Write(aad[:4])
	h.Write(aad[last:])
	h.Write(op.Nonce[:])
	h.Write(body)
	h.Write(aad[4:last])
	h.Sum(sum[:0])
}
