package gpukern

import (
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
)

// lookup is the memory of the stages that ask the tables.
type lookup struct {
	match acl.Matcher             // of the rules; of the routes its walk
	who   [tuple.ChunkSize]uint8  // the packets of the family that is looked up
	place [tuple.ChunkSize]uint16 // of their rules
}

// pass does the header pass over b, chunk by chunk and stage by stage.
func (c *CPU) pass(b *packet.Batch, t *tableSet) {
	for i := 0; i < len(b.D); {
		i = parse(c.work, b, i, c.ops)
		if c.ops&OpChecksum != 0 {
			checksum(c.work, b)
		}
		if c.ops&OpHash != 0 {
			hash(c.work, b, &c.key)
		}
		if c.flow == nil {
			c.lookups(c.work, b, t)
			continue
		}
		c.flow.Assign(c.work, b, c.flows)
		rest := c.flow.Recall(c.work, b, c.flows, t.generation)
		c.lookups(rest, b, t)
		c.flow.Remember(rest, b, c.flows, t.generation)
	}
	if c.ops&OpLiterals != 0 {
		c.find.inspect(b, t.Literals)
	} else {
		b.Matches = b.Matches[:0]
	}
}

// lookups are the stages that ask the tables.
func (c *CPU) lookups(w *tuple.Chunk, b *packet.Batch, t *tableSet) {
	if c.ops&OpACL != 0 && t.ACL != nil {
		c.look.acl(w, b, t.ACL)
	}
	if c.ops&OpLPM != 0 && t.Routes != nil {
		c.look.lpm(w, b, t.Routes)
	}
}

// parse is the first stage: it reads the headers of packets from descriptor i on, fills the chunk
// with their tuples, and returns the first descriptor that it left.
func parse(w *tuple.Chunk, b *packet.Batch, i int, ops Ops) int {
	l2encap := ops&OpL2Encap != 0
	w.N = 0
	w.Heads = loadHeads(b.Arena.Mem, b.D[i:min(i+tuple.ChunkSize, len(b.D))])
	for i < len(b.D) && w.N < tuple.ChunkSize {
		d, t := &b.D[i], &w.Tuple[w.N]
		w.At[w.N] = int32(i)
		w.N++
		p := b.Arena.Bytes(d)
		more := d.Flags&packet.FlagMore != 0
		w.Sound[w.N-1] = deviceVerified(d)
		resetDesc(d)
		i++
		if !more && parseFast(t, d, p) {
			continue
		}
		total := len(p)
		for more && i < len(b.D) {
			rest := &b.D[i]
			total += int(rest.Len)
			more = rest.Flags&packet.FlagMore != 0
			resetDesc(rest)
			i++
		}
		t.Ports, t.End, t.Known = 0, 0, tuple.None
		if d.Flags&packet.FlagOffload != 0 && b.Arena.Headroom(d) >= packet.PlacedHeadroom {
			total += b.Arena.Placed(d) // payload that is in no frame; what is still to be summed is read by no later stage
		}
		parser{d, p, total, t, l2encap}.link()
		t.Proto = d.Proto
	}
	return i
}

// loadHeads loads the first byte of each descriptor's packet. The loads depend on nothing, so a core has as many
// cache misses under way as it can; the parser's own loads wait for branches on what they load, and it has three or four.
// The sum is of no use, but without it the compiler would leave the loads out.
func loadHeads(mem []byte, d []packet.Desc) (sum byte) {
	for i := range d {
		if off := int(d[i].Off); off < len(mem) { // an empty packet may begin at the end
			sum += mem[off]
		}
	}
	return sum
}

// deviceVerified reports whether d, which comes from a driver, has a transport checksum that the device has verified. A
// descriptor that has been through the pass before has an offset or a protocol as well: what it describes may have been rewritten
// since.
func deviceVerified(d *packet.Desc) bool {
	return d.Flags&packet.FlagL4ChecksumOK != 0 && d.L4 == 0 && d.Proto == 0
}

// resetDesc makes d what a driver hands over.
func resetDesc(d *packet.Desc) {
	d.L3, d.L4, d.Payload = 0, 0, 0
	d.Hash, d.Rule, d.NextHop = 0, 0, 0
	d.Flags &= packet.FlagMore | packet.FlagOffload
	d.Proto = 0
}

// family stores in l.who the packets of one family that have addresses.
func (l *lookup) family(w *tuple.Chunk, b *packet.Batch, v4 bool) []uint8 {
	n := 0
	for k := range w.N {
		l.who[n] = uint8(k)
		if w.Tuple[k].Known != tuple.None && (b.D[w.At[k]].Flags&packet.FlagIPv4 != 0) == v4 {
			n++
		}
	}
	return l.who[:n]
}

// acl is the stage that writes Rule: of the IPv4 packets first, then of those of IPv6.
func (l *lookup) acl(w *tuple.Chunk, b *packet.Batch, a *acl.List) {
	for _, v4 := range [2]bool{true, false} {
		who := l.family(w, b, v4)
		if len(who) == 0 {
			continue
		}
		a.Places(&l.match, v4, w.Tuple[:], who, &l.place)
		for _, k := range who {
			b.D[w.At[k]].Rule = l.place[k] + 1
		}
	}
}

// lpm is the stage that writes NextHop.
func (l *lookup) lpm(w *tuple.Chunk, b *packet.Batch, r *lpm.Table) {
	for _, v4 := range [2]bool{true, false} {
		who := l.family(w, b, v4)
		if len(who) == 0 {
			continue
		}
		for i, k := range who {
			l.match.Walk.X[i], l.match.Walk.Lo[i] = w.Tuple[k].DstHi, w.Tuple[k].DstLo
		}
		hops := r.LookupChunk(&l.match.Walk, v4, len(who))
		for i, k := range who {
			b.D[w.At[k]].NextHop = hops[i]
		}
	}
}
