package aead

import (
	"crypto/subtle"
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// Sizes of FormAVX512 of ChaCha20.
const (
	blockSize = 64
	lanes     = 16 // blocks at once
	chunkSize = lanes * blockSize
)

// segment assigns lanes to blocks of one operation: lane l computes block base+l of the key stream. Its offsets are in
// chacha_amd64.s.
type segment struct {
	key   *[32]byte
	nonce *[16]byte
	base  uint32
	mask  uint32 // of lanes
}

// chachaOp is an operation that waits for its lanes.
type chachaOp struct {
	op    int // index in Batch.Ops
	first int // lane of block 0, which makes the key of Poly1305; the blocks behind the last whole chunk follow it
}

// chachaBatch shares passes of 16 blocks among operations. Whole chunks of a text take passes of their own; the blocks behind them,
// and block 0, are a few of each operation.
type chachaBatch struct {
	segments [2 * lanes]segment
	ops      [lanes]chachaOp
	used     int // segments
	waiting  int // operations
	busy     int // lanes
	stream   [lanes][blockSize]byte
	extra    [lanes][blockSize]byte
	poly     polyState
	tag      [TagSize]byte
}

// add assigns lanes to an operation, and runs a pass when they are all taken.
func (w *chachaBatch) add(b *Batch, i int, d direction) (done int) {
	op := &b.Ops[i]
	rest := (int(op.Len)%chunkSize + blockSize - 1) / blockSize
	if rest == lanes { // they do not fit beside block 0
		rest = 0
	}
	if w.busy+1+rest > lanes {
		done = w.flush(b, d)
	}
	key := &b.Keys[op.Key].image.ChaCha
	first := w.busy
	w.ops[w.waiting] = chachaOp{i, first}
	w.waiting++
	w.assign(key, &op.Nonce, first, 1, 0)
	if rest > 0 {
		w.assign(key, &op.Nonce, first+1, rest, 1+op.Len/chunkSize*lanes)
	}
	w.busy += 1 + rest
	return done
}

// assign gives n lanes the blocks from a number on.
func (w *chachaBatch) assign(key *[32]byte, nonce *[16]byte, lane, n int, block uint32) {
	s := &w.segments[w.used]
	w.used++
	s.key, s.nonce = key, nonce
	s.base, s.mask = block-uint32(lane), (1<<n-1)<<lane
}

// flush runs the pass and ends its operations.
func (w *chachaBatch) flush(b *Batch, d direction) (done int) {
	if w.waiting == 0 {
		return 0
	}
	chachaLanes(&w.segments[0], w.used, &w.stream)
	for _, at := range w.ops[:w.waiting] {
		op := &b.Ops[at.op]
		if op.Result = w.end(b, op, at.first, d); op.Result == Done {
			done++
		}
	}
	w.used, w.waiting, w.busy = 0, 0, 0
	return done
}

// end encrypts or decrypts a text, and makes or compares its tag.
func (w *chachaBatch) end(b *Batch, op *Op, first int, d direction) Result {
	text, aad := b.text(op)
	n := len(text) - TagSize
	key := &b.Keys[op.Key].image.ChaCha
	if d == seal {
		w.xor(key, op, first, text[:n])
	}
	w.poly.tag(&w.tag, &w.stream[first], aad, text[:n])
	if d == seal {
		copy(text[n:], w.tag[:])
		return Done
	}
	if !equalTags(&w.tag, text[n:]) {
		clear(text[:n])
		return Forged
	}
	w.xor(key, op, first, text[:n])
	return Done
}

// xor adds the key stream to a text.
func (w *chachaBatch) xor(key *[32]byte, op *Op, first int, text []byte) {
	chunks := len(text) / chunkSize
	if chunks > 0 {
		chachaXOR(key, &op.Nonce, 1, &text[0], chunks)
	}
	rest := text[chunks*chunkSize:]
	if len(rest) == 0 {
		return
	}
	stream := w.stream[:]
	from := first + 1
	if len(rest) > (lanes-1)*blockSize {
		s := segment{key: key, nonce: &op.Nonce, base: uint32(1 + chunks*lanes), mask: 1<<lanes - 1}
		chachaLanes(&s, 1, &w.extra)
		stream, from = w.extra[:], 0
	}
	subtle.XORBytes(rest, rest, unsafe.Slice(&stream[from][0], len(rest)))
}

// clear overwrites what is secret, and forgets the keys.
func (w *chachaBatch) clear() { *w = chachaBatch{} }

// polyState is Poly1305 in progress. The offsets are in poly1305_amd64.s.
type polyState struct {
	//lint:ignore U1000 assembly uses it
	sum [3][8]uint64 // by digits and lanes
	//lint:ignore U1000 assembly uses it
	powers [3][8]uint64 // of r: 8, 4, 7, 3, 6, 2, 5, 1, as the lanes have blocks
	//lint:ignore U1000 assembly uses it
	eighth [3][8]uint64 // r^8 in all lanes
	group  [groupSize]byte
	total  [3]uint64
}

// groupSize is the size of eight blocks.
const groupSize = 8 * 16

// blocksBehind has the mask of the lanes that have blocks, if a group begins with so many empty ones.
var blocksBehind = [8]uint8{0xff, 0xfe, 0xfa, 0xea, 0xaa, 0xa8, 0xa0, 0x80}

// tag computes the tag of associated data and ciphertext (RFC 8439 2.8), whose key is the beginning of block 0.
//
// The input is padded in front to whole groups, by blocks that count nothing: associated data, text, and lengths follow,
// each in whole blocks.
func (p *polyState) tag(tag *[TagSize]byte, key *[blockSize]byte, aad, text []byte) {
	aadBlocks, textBlocks := (len(aad)+15)/16, (len(text)+15)/16
	groups := (aadBlocks + textBlocks + 1 + 7) / 8
	empty := 8*groups - (aadBlocks + textBlocks + 1)
	in := polyInput{aad: aad, text: text, aadAt: 16 * empty, textAt: 16 * (empty + aadBlocks), lengthsAt: groupSize*groups - 16}

	polyStart(p, &key[0], p.stage(&in, 0), blocksBehind[empty])
	for at := groupSize; at < groupSize*groups; {
		if n := (in.textAt + len(text) - at) / groupSize; n > 0 && at >= in.textAt {
			polyGroups(p, &text[at-in.textAt], n)
			at += n * groupSize
			continue
		}
		polyGroups(p, p.stage(&in, at), 1)
		at += groupSize
	}
	polyEnd(p, &p.total)
	finishTag(tag, &p.total, key[16:32])
}

// polyInput is the message of a tag, and where its parts begin.
type polyInput struct {
	aad, text                []byte
	aadAt, textAt, lengthsAt int
}

// stage copies the group that begins at an offset of the input, and returns it.
func (p *polyState) stage(in *polyInput, at int) *byte {
	p.group = [groupSize]byte{}
	place(&p.group, in.aad, in.aadAt-at)
	place(&p.group, in.text, in.textAt-at)
	if in.lengthsAt-at == groupSize-16 {
		binary.LittleEndian.PutUint64(p.group[groupSize-16:], uint64(len(in.aad)))
		binary.LittleEndian.PutUint64(p.group[groupSize-8:], uint64(len(in.text)))
	}
	return &p.group[0]
}

// place copies what of data lies in a group if it begins at an offset from the group's start.
func place(group *[groupSize]byte, data []byte, at int) {
	if at < 0 {
		data = data[min(-at, len(data)):]
		at = 0
	}
	if at < groupSize {
		copy(group[at:], data)
	}
}

// finishTag reduces the sum of the lanes modulo 2^130-5, and adds the second half of the key (RFC 8439 2.5.1).
func finishTag(tag *[TagSize]byte, sum *[3]uint64, s []byte) {
	const mask44, mask42 = 1<<44 - 1, 1<<42 - 1
	h0, h1, h2 := sum[0], sum[1], sum[2]
	for range 2 {
		h1 += h0 >> 44
		h2 += h1 >> 44
		h0, h1 = h0&mask44+h2>>42*5, h1&mask44
		h2 &= mask42
	}
	h1 += h0 >> 44
	h0 &= mask44
	lo, carry := bits.Add64(h0, h1<<44, 0)
	hi, carry := bits.Add64(h1>>20, h2<<24, carry)
	top := h2>>40 + carry

	// It is below 2^130 and a little: subtract the modulus once if that leaves no borrow.
	lo5, carry := bits.Add64(lo, 5, 0)
	hi5, carry := bits.Add64(hi, 0, carry)
	reduce := -((top + carry) >> 2)
	lo ^= (lo ^ lo5) & reduce
	hi ^= (hi ^ hi5) & reduce

	lo, carry = bits.Add64(lo, binary.LittleEndian.Uint64(s), 0)
	hi, _ = bits.Add64(hi, binary.LittleEndian.Uint64(s[8:]), carry)
	binary.LittleEndian.PutUint64(tag[:], lo)
	binary.LittleEndian.PutUint64(tag[8:], hi)
}
