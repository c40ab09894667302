package aead

import (
	"encoding/binary"
	"unsafe"
)

// wideGCM does one operation by FormAVX512. The tag that a text should have is made in tag: who learns it can forge that text.
func (k *Key) wideGCM(d direction, op *Op, b *Batch, tag *[TagSize]byte) Result {
	text, aad := b.text(op) // the text has its tag behind
	n := len(text) - TagSize
	p, a := unsafe.SliceData(text), unsafe.SliceData(aad)
	if d == seal {
		sealGCM(&k.image, &op.Nonce, a, len(aad), p, n, &text[n])
		return Done
	}
	openGCM(&k.image, &op.Nonce, a, len(aad), p, n, &tag[0])
	if !equalTags(tag, text[n:]) {
		clear(text[:n])
		return Forged
	}
	return Done
}

// equalTags compares tags in a time that does not depend on them.
func equalTags(a *[TagSize]byte, b []byte) bool {
	b = b[:TagSize]
	x := binary.LittleEndian.Uint64(a[:]) ^ binary.LittleEndian.Uint64(b)
	y := binary.LittleEndian.Uint64(a[8:]) ^ binary.LittleEndian.Uint64(b[8:])
	return x|y == 0
}
