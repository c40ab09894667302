package gpukern

import (
	"fmt"

	"github.com/millrace/millrace/packet"
)

// literals does OpLiterals for a packet whose descriptors begin with first: the pieces of its text are put
// together, searched at once, and the matches assigned to the pieces that they end in.
func (r *refPacket) literals(b *packet.Batch, first int, ops Ops, l Lists) {
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
	if d := &b.D[first]; ops&OpFlow != 0 && d.Flow != 0 && l.Streams != nil {
		key := r.direction()
		before = l.Streams[key]
		l.Streams[key] = append(before[:len(before):len(before)], text...)
	}
	for _, m := range l.Literals.Scan(before, text, MatchLimit(l.MatchLimit), nil) {
		d, at := first, start+int(m.End)
		for ; at > int(b.D[d].Len); d++ {
			at -= int(b.D[d].Len)
		}
		b.Matches = append(b.Matches, packet.Match{D: uint32(d), Rule: m.Rule, End: uint32(at)})
	}
}

// direction names the direction of the flow that r belongs to.
func (r *refPacket) direction() string {
	sport, dport := r.sport, r.dport
	if r.flags&packet.FlagFragment != 0 {
		sport, dport = noPort, noPort
	}
	return fmt.Sprint(r.src, r.dst, r.proto, sport, dport)
}
