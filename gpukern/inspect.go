package gpukern

import (
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/packet"
)

// Limits of the matches that are told of one packet.
const (
	DefaultMatchLimit = 16
	MaxMatchLimit     = 255 // kernels keep the list of a text in fast memory
)

// MatchLimit returns how many matches of a packet an engine tells that is configured with n.
func MatchLimit(n int) int {
	if n < 1 {
		return DefaultMatchLimit
	}
	return min(n, MaxMatchLimit)
}

// inspector is the last stage of the pass, over the whole batch: it finds literals.
type inspector struct {
	streams *Streams // nil where packets are texts of their own
	limit   int
	texts   Texts
	teller  Teller
	found   []literal.Match // of one text
}

// inspect writes the matches of b. Without a set, streams are followed nevertheless: with the next set,
// their tails must lie in front of their texts.
func (n *inspector) inspect(b *packet.Batch, set *literal.Set) {
	n.teller.Begin(b, n.limit)
	if set == nil && n.streams == nil {
		return
	}
	t := &n.texts
	for t.Begin(b, n.streams); t.Next(); {
		if set == nil {
			continue
		}
		n.found = set.Scan(t.Tail(), t.Bytes, n.limit, n.found[:0])
		n.teller.Tell(t.D, t.From, t.First, n.found)
	}
}

// Teller writes the matches of texts into Batch.Matches: those of each packet up to a limit, and where
// there are more an entry with Rule 0 and the End of the next. It allocates only while Batch.Matches
// grows.
type Teller struct {
	b     *packet.Batch
	limit int
	told  int // of the packet at hand; above limit when it has an entry with Rule 0
}

// Begin makes b a batch without matches, of whose packets at most limit matches will be told.
func (t *Teller) Begin(b *packet.Batch, limit int) {
	t.b, t.limit = b, limit
	b.Matches = b.Matches[:0]
}

// Tell appends what was found in the text of descriptor d, or the piece of a packet's text that lies
// there: ends count from offset from of the descriptor's bytes; first says that it is the packet's first
// piece. Texts come in the order of their descriptors, found is sorted and complete up to the limit: where
// there are more, one more.
func (t *Teller) Tell(d, from int, first bool, found []literal.Match) {
	if first {
		t.told = 0
	}
	for _, m := range found {
		if t.told > t.limit {
			return
		}
		if t.told == t.limit {
			m.Rule = 0
		}
		t.told++
		t.b.Matches = append(t.b.Matches, packet.Match{D: uint32(d), Rule: m.Rule, End: uint32(from) + m.End})
	}
}
