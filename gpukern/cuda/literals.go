package cuda

import (
	"unsafe"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/packet"
)

// The kernel gk_literals: literals.cu says how it is launched. Which form of it a batch takes:
//
//   - Without streams and without packets in pieces, literalPass.desc: the device finds the texts by the
//     descriptors that the header pass has written. The host does nothing between the two.
//   - Otherwise a textList, made when the header pass is done. What a text goes on from depends on all
//     texts before it, in the order of their arrival: a core follows that at the price of a copy of 64
//     bytes for each text and a look at the text's end, and does it once for both back ends.
//
// Batches that share Streams make their lists in the order of their submission. The list holds copies of
// the tails, so that searching may lag behind.

// literalThreads is the most threads that a block of gk_literals may have.
const literalThreads = 1024

// literalPass is struct gk_literal_pass. The words are addresses for the device.
type literalPass struct {
	Mem     uint64 // the arena, on a boundary of 128 bytes
	Size    uint64
	Desc    uint64 // 0 where there is a list
	Texts   uint64
	Tails   uint64
	Set     uint64 // struct gk_literals, in struct gk_tables
	Next    uint64 // a word that is 0; or 0
	Counts  uint64 // of N words
	Matches uint64 // of N * (Limit + 1) literal.Match
	N       uint32
	Limit   uint32
}

// literalText is struct gk_text: a text of a list.
type literalText struct {
	Off  uint32 // of the descriptor's first byte
	From uint16
	Len  uint16
	Tail uint32 // 1 + index in textList.Tails; 0 is none
	Mark uint32 // descriptor << 1 | whether it continues the text before
}

// tailSize is GK_TAIL: the bytes, and last how many of them there are.
const tailSize = gpukern.TailLen + 1

// needsList reports whether the device cannot find the texts of b by itself.
func needsList(b *packet.Batch, s *gpukern.Streams) bool {
	if s != nil {
		return true
	}
	for i := range b.D {
		if b.D[i].Flags&packet.FlagMore != 0 {
			return true
		}
	}
	return false
}

// textList is the texts of a batch, in memory that the device maps.
type textList struct {
	Texts []literalText // cap: as many as a batch has descriptors
	Tails []byte        // tailSize for each of the same number

	walk gpukern.Texts
}

// fill lists the texts of b, which the header pass has been over and which fits in, and takes them into
// the streams, where there are any.
func (l *textList) fill(b *packet.Batch, s *gpukern.Streams) {
	l.Texts = l.Texts[:0]
	tails := uint32(0)
	for l.walk.Begin(b, s); l.walk.Next(); {
		w := &l.walk
		t := literalText{Off: b.D[w.D].Off, From: uint16(w.From), Len: uint16(len(w.Bytes)), Mark: uint32(w.D) << 1}
		if !w.First {
			t.Mark |= 1
		}
		if tail := w.Tail(); len(tail) > 0 {
			slot := l.Tails[tails*tailSize:][:tailSize]
			copy(slot, tail)
			slot[tailSize-1] = uint8(len(tail))
			tails++
			t.Tail = tails
		}
		l.Texts = append(l.Texts, t)
	}
}

// tellMatches writes what the kernel found into b.Matches. texts is the list, nil where there was none;
// counts and matches are the kernel's.
func tellMatches(t *gpukern.Teller, b *packet.Batch, texts []literalText, counts []uint32, matches []literal.Match, limit int) {
	t.Begin(b, limit)
	for i, n := range counts {
		d, first := i, true
		if texts != nil {
			d, first = int(texts[i].Mark>>1), texts[i].Mark&1 == 0
		}
		if n > 0 || first {
			t.Tell(d, 0, first, matches[i*(limit+1):][:n])
		}
	}
}

// The kernel writes literal.Match as a word, and a Go slice of them is made of its memory.
var _ = [1]struct{}{}[unsafe.Sizeof(literal.Match{})-8]
