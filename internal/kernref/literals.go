package kernref

import (
	"bytes"
	"fmt"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// literals does gpukern.OpLiterals for a packet whose descriptors begin with first: the pieces of its text are put
// together, searched at once, and the matches assigned to the pieces that they end in.
func (r *packetView) literals(b *packet.Batch, first int, ops gpukern.Ops, l Lists) {
	start := r.payload
	if start == 0 {
		start = r.l4
	}
	end := min(r.end, len(r.all))
	if start == 0 || start >= end {
		return
	}
	text := r.all[start:end]
	var before []byte
	if d := &b.D[first]; ops&gpukern.OpFlow != 0 && d.Flow != 0 && l.Streams != nil {
		key := r.stream()
		before = l.Streams[key]
		l.Streams[key] = append(before[:len(before):len(before)], text...)
	}
	for _, m := range l.Literals.Scan(before, text, gpukern.MatchLimit(l.MatchLimit), nil) {
		d, at := first, start+int(m.End)
		for ; at > int(b.D[d].Len); d++ {
			at -= int(b.D[d].Len)
		}
		b.Matches = append(b.Matches, packet.Match{D: uint32(d), Rule: m.Rule, End: uint32(at)})
	}
}

// stream names the direction of the flow that r belongs to.
func (r *packetView) stream() string {
	sport, dport := r.sport, r.dport
	if r.flags&packet.FlagFragment != 0 {
		sport, dport = noPort, noPort
	}
	return fmt.Sprint(r.src, r.dst, r.proto, sport, dport)
}

// Text returns the text of a packet, and its offset: captured are the bytes of the first descriptor, all
// those of every one.
func Text(captured, all []byte) ([]byte, int) {
	r := look(captured, all, false)
	start := r.payload
	if start == 0 {
		start = r.l4
	}
	if r.flags&packet.FlagMalformed != 0 || start == 0 {
		return nil, 0
	}
	return all[start:max(start, min(r.end, len(all)))], start
}

// Stream names the direction of the flow that a packet belongs to.
func Stream(captured, all []byte) string { return look(captured, all, false).stream() }

// WholePacket returns the captured and all bytes of the packet that begins at descriptor i, and the
// descriptor behind it.
func WholePacket(b *packet.Batch, i int) (captured, all []byte, next int) {
	captured = b.Bytes(i)
	for all = bytes.Clone(captured); b.D[i].Flags&packet.FlagMore != 0 && i+1 < len(b.D); i++ {
		all = append(all, b.Bytes(i+1)...)
	}
	return captured, all, i + 1
}

// Literals returns what OpLiterals finds in b, flows being those in the descriptors.
func Literals(b *packet.Batch, l Lists) []packet.Match {
	ref := &packet.Batch{Arena: b.Arena, D: b.D}
	for i := 0; i < len(b.D); {
		captured, all, next := WholePacket(b, i)
		r := look(captured, all, false)
		if r.flags&packet.FlagMalformed != 0 {
			r.l4, r.payload = 0, 0
		}
		r.literals(ref, i, gpukern.OpLiterals|gpukern.OpFlow, l)
		i = next
	}
	return ref.Matches
}
