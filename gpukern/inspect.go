package gpukern

import (
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/packet"
)

// Limits of the matches that are reported of one packet.
const (
	DefaultMatchLimit = 16
	MaxMatchLimit     = 255 // kernels keep the matches of a window in shared memory
)

// MatchLimit returns how many matches of a packet an engine reports that is configured with n.
func MatchLimit(n int) int {
	if n < 1 {
		return DefaultMatchLimit
	}
	return min(n, MaxMatchLimit)
}

// inspector is the last stage of the pass, over the whole batch: it searches for literals.
type inspector struct {
	streams *Streams // nil where no packet continues another
	limit   int
	windows StreamWindows
	out     MatchWriter
	found   []literal.Occurrence // in one window
}

// inspect writes the matches of b. Streams are followed even without a set: once there is one, a literal may
// begin in a packet that came before it.
func (n *inspector) inspect(b *packet.Batch, set *literal.Set) {
	n.out.Begin(b, n.limit, set)
	if set == nil && n.streams == nil {
		return
	}
	t := &n.windows
	for t.Begin(b, n.streams); t.Next(); {
		if set == nil {
			continue
		}
		n.found = set.Scan(t.CarryOver(), t.Bytes, n.limit, n.found[:0])
		n.out.Write(t.D, t.From, t.First, n.found)
	}
}

// MatchWriter writes the matches of windows into Batch.Matches: those of each packet up to a limit. Where there
// are more it adds an entry with Rule 0 and the End of the next. It allocates only while Batch.Matches grows.
type MatchWriter struct {
	b       *packet.Batch
	limit   int
	written int // of the current packet; above limit once it has an entry with Rule 0
}

// Begin clears the matches of b, names the set that they are of, and sets the limit of its packets.
func (t *MatchWriter) Begin(b *packet.Batch, limit int, set *literal.Set) {
	t.b, t.limit = b, limit
	b.Matches, b.Searched = b.Matches[:0], set.ID()
}

// Write appends the matches of the window of descriptor d, or of the part of a packet's window that lies there.
// Ends count from offset from of the descriptor's bytes; first marks the packet's first part.
// Windows come in the order of their descriptors. found is sorted and has at most one match beyond the limit.
func (t *MatchWriter) Write(d, from int, first bool, found []literal.Occurrence) {
	if first {
		t.written = 0
	}
	for _, m := range found {
		if t.written > t.limit {
			return
		}
		if t.written == t.limit {
			m.Rule = 0
		}
		t.written++
		t.b.Matches = append(t.b.Matches, packet.Match{D: uint32(d), Rule: m.Rule, End: uint32(from) + m.End})
	}
}
