// Package inflate decodes the bodies of messages whose Content-Encoding is gzip or deflate, as their bytes come.
//
// The decoders of the standard library read from a source that has all bytes: with them a body would be decoded again for each
// of its segments.
package inflate

import (
	"bytes"
	"encoding/binary"
)

// inflater decodes DEFLATE (RFC 1951), in the formats gzip (RFC 1952) and zlib (RFC 1950), as its bytes come. Checksums are not
// compared: receivers use what they have decoded before they know them.
//
// Each step reads whole symbols, or puts their bits back and waits for more input.
type inflater struct {
	format inflateFormat
	state  inflateState
	in     []byte // not read yet
	acc    uint64 // bits that were read, the next one lowest
	bits   uint   // how many
	last   bool   // the block is the last
	stored int    // bytes that are left of a stored block
	out    []byte
	limit  int // of out

	codes, distances huffman
}

// inflateFormat is the format around the blocks.
type inflateFormat uint8

const (
	formatGzip    inflateFormat = iota
	formatDeflate               // zlib, or blocks alone: "deflate" of HTTP is sent as both (RFC 9110 8.4.1.2)
)

type inflateState uint8

const (
	inflateHeader inflateState = iota
	inflateBlock
	inflateStored
	inflateCodes
	inflateTrailer
	inflateDone
	inflateFailed // these bytes are not in the format
)

// size returns how many bytes are allocated.
func (z *inflater) size() int { return inflaterSize + cap(z.in) + cap(z.out) }

const inflaterSize = 4 << 10

// maxHeader bounds the header of gzip, whose name and comment have no bound (RFC 1952 2.3).
const maxHeader = 64 << 10

// write decodes bytes that follow those before, up to the limit.
func (z *inflater) write(b []byte) {
	if z.state >= inflateDone || len(z.out) >= z.limit {
		return
	}
	z.in = append(z.in, b...)
	for len(z.out) < z.limit && z.step() {
	}
	if len(z.out) > z.limit {
		z.out = z.out[:z.limit]
	}
	if z.state >= inflateDone {
		z.in = nil
	} else {
		z.in = append(z.in[:0:0], z.in...) // what was read is given back: a slice of the old array would keep all of it
	}
}

// step reads as much as it can without another decision. It reports false where the input, or the text, has ended.
func (z *inflater) step() bool {
	switch z.state {
	case inflateHeader:
		return z.header()
	case inflateBlock:
		return z.block()
	case inflateStored:
		return z.copyStored()
	case inflateCodes:
		return z.symbol()
	case inflateTrailer:
		return z.trailer()
	}
	return false
}

func (z *inflater) fail() bool {
	z.state = inflateFailed
	return false
}

// header skips what comes before the blocks. Two bytes that may be the header of zlib are it: blocks alone, which some servers send as
// "deflate", would have to begin with a stored block whose padding is not zero for that.
func (z *inflater) header() bool {
	if len(z.in) < 2 {
		return false
	}
	if z.format == formatDeflate {
		if z.state = inflateBlock; z.in[0]&15 == 8 && binary.BigEndian.Uint16(z.in)%31 == 0 { // RFC 1950 2.2
			z.in = z.in[2:]
		}
		return true
	}
	n, ok := gzipHeader(z.in)
	if !ok {
		return z.fail()
	}
	if n == 0 {
		return false
	}
	z.in, z.state = z.in[n:], inflateBlock
	return true
}

// gzipHeader returns the length of a member's header (RFC 1952 2.3), 0 where it is not complete.
//
//	| 1f 8b | CM | FLG | MTIME 4 | XFL | OS | extra, name, comment, CRC16 as FLG says
func gzipHeader(b []byte) (n int, ok bool) {
	const fixed, hasCRC, hasExtra, hasName, hasComment = 10, 2, 4, 8, 16
	if b[0] != 0x1f || b[1] != 0x8b {
		return 0, false
	}
	if len(b) < fixed {
		return 0, true
	}
	flags := b[3]
	if b[2] != 8 || flags&0xe0 != 0 {
		return 0, false
	}
	n = fixed
	if flags&hasExtra != 0 {
		if len(b) < n+2 {
			return 0, true
		}
		n += 2 + int(binary.LittleEndian.Uint16(b[n:]))
	}
	for _, flag := range [2]byte{hasName, hasComment} {
		if flags&flag == 0 {
			continue
		}
		end := bytes.IndexByte(b[min(n, len(b)):], 0)
		if end < 0 {
			return 0, len(b) < maxHeader // a name without an end is not kept for ever
		}
		n += end + 1
	}
	if flags&hasCRC != 0 {
		n += 2
	}
	if n > len(b) {
		return 0, true
	}
	return n, true
}

// trailer skips what follows the last block. Another member of gzip may follow (RFC 1952 2.2).
func (z *inflater) trailer() bool {
	z.align()
	if z.format == formatDeflate {
		z.state = inflateDone
		return false
	}
	if len(z.in) < 8+2 {
		return false
	}
	if z.in[8] != 0x1f || z.in[9] != 0x8b {
		z.state = inflateDone
		return false
	}
	z.in, z.state = z.in[8:], inflateHeader
	return true
}

// fill reads bytes into the accumulator.
func (z *inflater) fill() {
	for z.bits <= 56 && len(z.in) > 0 {
		z.acc |= uint64(z.in[0]) << z.bits
		z.in = z.in[1:]
		z.bits += 8
	}
}

// align drops the bits up to the next byte, and puts whole bytes back: at most eight were read in a row, so they are before in.
func (z *inflater) align() {
	z.acc >>= z.bits & 7
	z.bits &^= 7
	if z.bits == 0 {
		return
	}
	back := make([]byte, 0, 8+len(z.in))
	for ; z.bits > 0; z.bits -= 8 {
		back = append(back, byte(z.acc))
		z.acc >>= 8
	}
	z.in, z.acc = append(back, z.in...), 0
}

// take reads n bits. It reports false where there are fewer.
func (z *inflater) take(n uint) (v int, ok bool) {
	if z.bits < n {
		if z.fill(); z.bits < n {
			return 0, false
		}
	}
	v = int(z.acc & (1<<n - 1))
	z.acc >>= n
	z.bits -= n
	return v, true
}

// inflateMark is a place to go back to. A symbol that is cut by a segment is read again from its begin, so that no step has to keep the
// half of one.
type inflateMark struct {
	in   []byte
	acc  uint64
	bits uint
}

func (z *inflater) mark() inflateMark { return inflateMark{z.in, z.acc, z.bits} }

// wait goes back to a place until there is more input.
func (z *inflater) wait(m inflateMark) bool {
	z.in, z.acc, z.bits = m.in, m.acc, m.bits
	return false
}

// block reads the header of a block (RFC 1951 3.2.3): a bit that marks the last, and two of its kind. A stored block begins at the next
// byte with its length and the complement of that.
func (z *inflater) block() bool {
	m := z.mark()
	last, ok := z.take(1)
	kind, ok2 := z.take(2)
	if !ok || !ok2 {
		return z.wait(m)
	}
	switch kind {
	case 0:
		z.align()
		if len(z.in) < 4 {
			return z.wait(m)
		}
		n, not := binary.LittleEndian.Uint16(z.in), binary.LittleEndian.Uint16(z.in[2:])
		if n != ^not {
			return z.fail()
		}
		z.in, z.stored, z.state = z.in[4:], int(n), inflateStored
	case 1:
		z.fixedCodes()
		z.state = inflateCodes
	case 2:
		switch z.dynamicCodes() {
		case codesMissing:
			return z.wait(m)
		case codesWrong:
			return z.fail()
		}
		z.state = inflateCodes
	default:
		return z.fail()
	}
	z.last = last == 1
	return true
}

func (z *inflater) endOfBlock() bool {
	if z.state = inflateBlock; z.last {
		z.state = inflateTrailer
	}
	return true
}

func (z *inflater) copyStored() bool {
	n := min(z.stored, len(z.in))
	z.out = append(z.out, z.in[:n]...)
	z.in, z.stored = z.in[n:], z.stored-n
	if z.stored > 0 {
		return false
	}
	return z.endOfBlock()
}

// Lengths and distances (RFC 1951 3.2.5): the least value of each symbol, and how many bits that follow are added to it.
var (
	lengthBase    = [29]uint16{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
	lengthExtra   = [29]uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	distanceBase  = [30]uint16{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}
	distanceExtra = [30]uint8{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}
)

// symbol reads a literal, the end of the block, or a length and a distance: at most 48 bits.
func (z *inflater) symbol() bool {
	const endOfBlock = 256
	z.fill()
	m := z.mark()
	s := z.codes.decode(z)
	switch {
	case s == codeMissing:
		return z.wait(m)
	case s == codeWrong || s >= 257+len(lengthBase):
		return z.fail()
	case s < endOfBlock:
		z.out = append(z.out, byte(s))
		return true
	case s == endOfBlock:
		return z.endOfBlock()
	}
	more, ok := z.take(uint(lengthExtra[s-257]))
	n := int(lengthBase[s-257]) + more
	d := codeMissing
	if ok {
		d = z.distances.decode(z)
	}
	switch {
	case d == codeMissing:
		return z.wait(m)
	case d == codeWrong || d >= len(distanceBase):
		return z.fail()
	}
	if more, ok = z.take(uint(distanceExtra[d])); !ok {
		return z.wait(m)
	}
	back := int(distanceBase[d]) + more
	if back > len(z.out) {
		return z.fail()
	}
	for range n { // the bytes that are copied may be copied again
		z.out = append(z.out, z.out[len(z.out)-back])
	}
	return true
}
