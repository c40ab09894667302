package gpukern

import "github.com/millrace/millrace/packet"

// chunkSize is how many packets go through one stage before the next begins: enough for memory
// reads of many packets to be under way at once, few enough for their tuples to stay in the
// first-level cache.
const chunkSize = packet.BatchSize

// chunk is the memory between the stages: the packets that are under way.
type chunk struct {
	n     int
	at    [chunkSize]int32 // index of the packet's first descriptor
	tuple [chunkSize]tuple
	match matcher           // of the rules; of the routes its walk
	who   [chunkSize]uint8  // the packets of the family that is looked up
	place [chunkSize]uint16 // of their rules
}

// pass does the header pass over b, chunk by chunk and stage by stage.
func (c *CPU) pass(b *packet.Batch, t *loaded) {
	for i := 0; i < len(b.D); {
		i = c.work.parse(b, i, c.ops&OpTunnel != 0)
		switch {
		case c.ops&OpFill != 0:
			c.work.fill(b)
		case c.ops&OpChecksum != 0:
			c.work.checksum(b)
		}
		if c.ops&OpHash != 0 {
			c.work.hash(b, &c.key)
		}
		if c.sketch != nil {
			c.sketch.sketch(c.work, b, c.counts)
		}
		if c.flow == nil {
			c.lookups(c.work, b, t)
			continue
		}
		c.flow.flow(c.work, b, c.flows)
		rest := c.flow.recall(c.work, b, c.flows, t.generation)
		c.lookups(rest, b, t)
		rest.keep(b, c.flows, t.generation)
	}
	if c.ops&OpLiterals != 0 {
		c.find.inspect(b, t.Literals)
	} else {
		b.Matches = b.Matches[:0]
	}
}

// lookups are the stages that ask the tables.
func (c *CPU) lookups(w *chunk, b *packet.Batch, t *loaded) {
	if c.ops&OpACL != 0 && t.ACL != nil {
		w.acl(b, t.ACL)
	}
	if c.ops&OpLPM != 0 && t.Routes != nil {
		w.lpm(b, t.Routes)
	}
}

// parse is the first stage: it reads the headers of packets from descriptor i on, fills the chunk
// with their tuples, and returns the first descriptor that it left.
func (w *chunk) parse(b *packet.Batch, i int, tunnels bool) int {
	w.n = 0
	for i < len(b.D) && w.n < chunkSize {
		d, t := &b.D[i], &w.tuple[w.n]
		w.at[w.n] = int32(i)
		w.n++
		p := b.Arena.Bytes(d)
		more := d.Flags&packet.FlagMore != 0
		clearFindings(d)
		i++
		if !more && t.usual(d, p) {
			if !tunnels || !t.toVXLAN(t.proto) {
				continue
			}
			clearFindings(d)
		}
		total := len(p)
		for more && i < len(b.D) {
			rest := &b.D[i]
			total += int(rest.Len)
			more = rest.Flags&packet.FlagMore != 0
			clearFindings(rest)
			i++
		}
		t.ports, t.end, t.known = 0, 0, knowsNothing
		parser{d, p, total, t, boundless, tunnels}.link(0)
		t.proto = d.Proto
	}
	return i
}

// clearFindings makes d what a driver hands over.
func clearFindings(d *packet.Desc) {
	d.L3, d.L4, d.Payload = 0, 0, 0
	d.Hash, d.Rule, d.NextHop = 0, 0, 0
	d.Flags &= packet.FlagMore | packet.FlagOffload
	d.Proto = 0
}

// family stores in w.who the packets of one family that have addresses.
func (w *chunk) family(b *packet.Batch, v4 bool) []uint8 {
	n := 0
	for k := range w.n {
		w.who[n] = uint8(k)
		if w.tuple[k].known != knowsNothing && (b.D[w.at[k]].Flags&packet.FlagIPv4 != 0) == v4 {
			n++
		}
	}
	return w.who[:n]
}

// acl is the stage that writes Rule: of the IPv4 packets first, then of those of IPv6.
func (w *chunk) acl(b *packet.Batch, a *ACL) {
	for _, v4 := range [2]bool{true, false} {
		who := w.family(b, v4)
		if len(who) == 0 {
			continue
		}
		a.of(v4).match(&w.match, w.tuple[:], who, &w.place)
		for _, k := range who {
			b.D[w.at[k]].Rule = w.place[k] + 1
		}
	}
}

// of returns the rules of a family.
func (a *ACL) of(v4 bool) *family {
	if v4 {
		return &a.v4
	}
	return &a.v6
}

// lpm is the stage that writes NextHop.
func (w *chunk) lpm(b *packet.Batch, r *LPM) {
	for _, v4 := range [2]bool{true, false} {
		who := w.family(b, v4)
		if len(who) == 0 {
			continue
		}
		for i, k := range who {
			w.match.walk.x[i], w.match.walk.lo[i] = w.tuple[k].dstHi, w.tuple[k].dstLo
		}
		hops := r.lookup(&w.match.walk, v4, len(who))
		for i, k := range who {
			b.D[w.at[k]].NextHop = hops[i]
		}
	}
}
