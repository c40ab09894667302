package replay

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/expression"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// ExpressionSearch searches pieces of streams for expressions, as expression.Set.ScanPieces does.
type ExpressionSearch interface {
	ScanPieces(pieces []expression.Piece, hits []expression.Hit) []expression.Hit
	Close() error
}

// OpenExpressions opens a search for a set.
type OpenExpressions func(set *expression.Set) (ExpressionSearch, error)

// onCores searches on the calling core.
type onCores struct{ *expression.Set }

func (onCores) Close() error { return nil }

// Bounds of a search. Payloads are collected until there are so many of them that a GPU has work for all of its threads;
// what is collected is copied, since frames are used again.
const (
	collectedBytes  = 16 << 20
	collectedPieces = 1 << 16
	followedStreams = 1 << 16 // directions of flows; payloads of more continue no other
)

// expressions searches the payloads of directions of flows, in the order of arrival as for literals, and reports each
// expression once in a direction.
type expressions struct {
	set    *expression.Set
	search ExpressionSearch
	report func(rule uint32, packet uint64, end uint32)

	windows gpukern.StreamWindows
	streams map[streamKey]*expression.Stream
	alone   int // payloads of streams that are not followed
	mem     []byte
	pieces  []expression.Piece
	places  []piecePlace
	hits    []expression.Hit

	bytes uint64
	took  time.Duration
}

// piecePlace is where a piece comes from.
type piecePlace struct {
	packet uint64
	from   uint32 // of the piece in the packet
}

// streamKey is a direction of a flow: addresses, ports and protocol.
type streamKey struct {
	src, dst [16]byte
	ports    uint32
	proto    uint8
	four     bool
}

// newExpressions opens the search of a run; nil without expressions.
func newExpressions(cfg *Config, report func(rule uint32, packet uint64, end uint32)) (*expressions, error) {
	if cfg.Patterns == nil || cfg.Patterns.Expressions().Len() == 0 {
		return nil, nil
	}
	x := &expressions{set: cfg.Patterns.Expressions(), report: report, streams: map[streamKey]*expression.Stream{}}
	x.search = onCores{x.set}
	if cfg.Expressions == nil {
		return x, nil
	}
	var err error
	if x.search, err = cfg.Expressions(x.set); err != nil {
		return nil, fmt.Errorf("expressions: %w", err)
	}
	return x, nil
}

// batch collects the payloads of a batch whose first packet has the number first, counted from 1.
func (x *expressions) batch(b *packet.Batch, first uint64) {
	if x == nil {
		return
	}
	number, counted := first-1, 0
	for x.windows.Begin(b, nil); x.windows.Next(); {
		w := &x.windows
		for ; counted <= w.D; counted++ { // packets up to this descriptor
			if counted == 0 || b.D[counted-1].Flags&packet.FlagMore == 0 {
				number++
			}
		}
		if len(x.mem)+len(w.Bytes) > collectedBytes || len(x.pieces) == collectedPieces {
			x.flush()
		}
		at := len(x.mem)
		x.mem = append(x.mem, w.Bytes...)
		x.pieces = append(x.pieces, expression.Piece{Bytes: x.mem[at:], Stream: x.stream(b, w)})
		x.places = append(x.places, piecePlace{number, uint32(w.From)})
	}
}

// stream returns the stream of a window.
func (x *expressions) stream(b *packet.Batch, w *gpukern.StreamWindows) *expression.Stream {
	head := w.D
	for head > 0 && b.D[head-1].Flags&packet.FlagMore != 0 {
		head--
	}
	d, p := &b.D[head], b.Bytes(head)
	k := streamKey{proto: d.Proto, four: d.Flags.Has(packet.FlagIPv4)}
	if k.four {
		ip := wire.IPv4(p[d.L3:])
		src, dst := ip.Src(), ip.Dst()
		copy(k.src[:], src[:])
		copy(k.dst[:], dst[:])
	} else {
		ip := wire.IPv6(p[d.L3:])
		k.src, k.dst = ip.Src(), ip.Dst()
	}
	if hasPorts(d) {
		k.ports = binary.BigEndian.Uint32(p[d.L4:])
	}
	if s := x.streams[k]; s != nil {
		return s
	}
	s := x.set.NewStream()
	if len(x.streams) < followedStreams {
		x.streams[k] = s
	} else {
		x.alone++
	}
	return s
}

// flush searches what is collected, before packets are numbered anew.
func (x *expressions) flush() {
	if x == nil || len(x.pieces) == 0 {
		return
	}
	began := time.Now()
	x.hits = x.search.ScanPieces(x.pieces, x.hits[:0])
	x.took += time.Since(began)
	x.bytes += uint64(len(x.mem))
	for _, h := range x.hits {
		at := x.places[h.Text]
		x.report(h.Rule, at.packet, at.from+h.End)
	}
	x.mem, x.pieces, x.places = x.mem[:0], x.pieces[:0], x.places[:0]
}

// finish ends all streams and returns what was searched. What ends with a stream is of packet 0.
func (x *expressions) finish() *Expressions {
	if x == nil {
		return nil
	}
	x.flush()
	x.hits = x.hits[:0]
	for _, s := range x.streams {
		x.hits = x.set.Finish(s, 0, x.hits)
	}
	slices.SortFunc(x.hits, func(a, b expression.Hit) int { return cmp.Compare(a.Rule, b.Rule) })
	for _, h := range x.hits {
		x.report(h.Rule, 0, 0)
	}
	return &Expressions{
		Expressions: x.set.Len(), Automata: x.set.Groups(), Bytes: x.bytes, Streams: len(x.streams), NotFollowed: x.alone, Seconds: x.took.Seconds(),
	}
}

func (x *expressions) close() error {
	if x == nil {
		return nil
	}
	return x.search.Close()
}

// Expressions describes a search for regular expressions.
type Expressions struct {
	Expressions int     `json:"expressions"`
	Automata    int     `json:"automata"` // each takes a step for every byte
	Bytes       uint64  `json:"bytes"`    // of payloads
	Streams     int     `json:"streams"`  // directions of flows
	NotFollowed int     `json:"not_followed"`
	Seconds     float64 `json:"seconds"` // that the search took
}
