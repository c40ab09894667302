package cuda

import (
	"math/bits"
	"unsafe"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/packet"
)

// The kernel gk_literals: literals.cu says how it is launched. Who lists the texts that it searches:
//
//   - Without streams and without packets in pieces the header pass, in the device's memory. The host does
//     nothing between the two.
//   - Otherwise the host, by a windowList, when the header pass is done. What a text goes on from depends on all
//     texts before it, in the order of their arrival: a core follows that at the price of a copy of 64
//     bytes for each text and a look at the text's end, and does it once for both back ends.
//
// Batches that share Streams make their lists in the order of their submission. The list holds copies of
// the tails, so that searching may lag behind.

// literalThreads is the most threads that a block of gk_literals may have.
const literalThreads = 1024

// literalPass is struct gk_literal_pass. The words are addresses for the device.
type literalPass struct {
	Mem      uint64 // the arena, on a boundary of 128 bytes
	Size     uint64
	Texts    uint64
	Lines    uint64 // textLine bytes of each; 0 where the host has listed them
	Tails    uint64
	Set      uint64 // struct gk_literals, in struct gk_tables
	Counters uint64 // of literalCounters bytes, all 0
	Result   uint64 // struct gk_literal_result
	Found    uint64 // of N * (Limit + 2) words
	N        uint32
	Limit    uint32
}

// textLine is GK_TEXT_LINE.
const textLine = 128

// literalCounters is the size of struct gk_literal_counters, and literalPieces where in it pieces is.
const (
	literalCounters = 16
	literalPieces   = 12
)

// literalResult is struct gk_literal_result.
type literalResult struct {
	Words  uint32
	Pieces uint32
}

// literalWindow is struct gk_text: a text of a list.
type literalWindow struct {
	Off  uint32 // of the descriptor's first byte
	From uint16
	Len  uint16
	Tail uint32 // 1 + index in windowList.Tails; 0 is none
	Mark uint32 // descriptor << 1 | whether it continues the text before
}

// carryOverSize is GK_TAIL: the bytes, and last how many of them there are.
const carryOverSize = gpukern.CarryOverLen + 1

// windowList is the texts of a batch, in memory that the device maps.
type windowList struct {
	Texts []literalWindow // cap: as many as a batch has descriptors
	Tails []byte          // carryOverSize for each of the same number

	walk gpukern.StreamWindows
}

// fill lists the texts of b, which the header pass has been over and which fits in, and takes them into
// the streams, where there are any.
func (l *windowList) fill(b *packet.Batch, s *gpukern.Streams) {
	l.Texts = l.Texts[:0]
	tails := uint32(0)
	for l.walk.Begin(b, s); l.walk.Next(); {
		w := &l.walk
		t := literalWindow{Off: b.D[w.D].Off, From: uint16(w.From), Len: uint16(len(w.Bytes)), Mark: uint32(w.D) << 1}
		if !w.First {
			t.Mark |= 1
		}
		if tail := w.CarryOver(); len(tail) > 0 {
			slot := l.Tails[tails*carryOverSize:][:carryOverSize]
			copy(slot, tail)
			slot[carryOverSize-1] = uint8(len(tail))
			tails++
			t.Tail = tails
		}
		l.Texts = append(l.Texts, t)
	}
}

// matchLists bring what the kernel found, text by text as its warps came to them, into the order of the texts.
type matchLists struct {
	words []literal.Occurrence // the kernel's
	at    []uint32             // of each window that has matches, the index of its first word
	has   []uint64             // a bit for each text: it has matches
}

// foundWords is the number of words that the kernel may write of n texts.
func foundWords(n, limit int) int { return n * (limit + 2) }

func newMatchLists(most int, words []literal.Occurrence) matchLists {
	return matchLists{words, make([]uint32, most), make([]uint64, (most+63)/64)}
}

// sort finds the windows that the first n words are about. A window's first word has the text where a rule is, and how
// many matches follow where an end is.
func (f *matchLists) sort(n int) {
	clear(f.has)
	for i := 0; i < n; {
		head := f.words[i]
		f.at[head.Rule] = uint32(i)
		f.has[head.Rule/64] |= 1 << (head.Rule % 64)
		i += 1 + int(head.End)
	}
}

// of returns the matches of a text that has some.
func (f *matchLists) of(text int) []literal.Occurrence {
	at := f.at[text]
	return f.words[at+1:][:f.words[at].End]
}

// write writes the matches of the first n words into b.Matches. list is what the host has listed, nil where
// each packet is a text, and set is what was searched for.
func (f *matchLists) write(t *gpukern.MatchWriter, b *packet.Batch, list []literalWindow, n, limit int, set *literal.Set) {
	t.Begin(b, limit, set)
	f.sort(n)
	last := -1
	for i, set := range f.has {
		for ; set != 0; set &= set - 1 {
			text := 64*i + bits.TrailingZeros64(set)
			d, first := text, true
			if list != nil {
				d, first = int(list[text].Mark>>1), begins(list[last+1:text+1])
			}
			t.Write(d, 0, first, f.of(text))
			last = text
		}
	}
}

// begins reports whether a packet begins with one of the texts.
func begins(list []literalWindow) bool {
	for i := range list {
		if list[i].Mark&1 == 0 {
			return true
		}
	}
	return false
}

// The kernel writes literal.Occurrence as a word, rule << 32 | end, and a Go slice of them is made of its memory.
var _ = [1]struct{}{}[unsafe.Sizeof(literal.Occurrence{})-8]
