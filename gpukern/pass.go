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
	field [chunkSize][5]uint32 // of the ACL
	walk  walk                 // of the routes
	who   [chunkSize]uint8     // whose address is looked up there
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

// acl is the stage that writes Rule. The vectors of all packets are found before any are combined:
// the reads of many packets are then under way at once.
func (w *chunk) acl(b *packet.Batch, a *ACL) {
	for k := range w.n {
		if c := a.of(b.D[w.at[k]].Flags); len(c.rules) > 0 && w.tuple[k].known != knowsNothing {
			c.fields(&w.tuple[k], &w.field[k])
		}
	}
	for k := range w.n {
		d, t := &b.D[w.at[k]], &w.tuple[k]
		if c := a.of(d.Flags); len(c.rules) > 0 && t.known != knowsNothing {
			d.Rule = c.first(t, &w.field[k])
		}
	}
}

// of returns the classifier for packets with flags f.
func (a *ACL) of(f packet.Flags) *classifier {
	if f&packet.FlagIPv4 != 0 {
		return &a.v4
	}
	return &a.v6
}

// lpm is the stage that writes NextHop: of the IPv4 packets first, then of those of IPv6.
func (w *chunk) lpm(b *packet.Batch, r *LPM) {
	for _, v4 := range [2]bool{true, false} {
		n := 0
		for k := range w.n {
			d, t := &b.D[w.at[k]], &w.tuple[k]
			if t.known == knowsNothing || (d.Flags&packet.FlagIPv4 != 0) != v4 {
				continue
			}
			w.walk.x[n], w.walk.lo[n], w.who[n] = t.dstHi, t.dstLo, uint8(k)
			n++
		}
		if n == 0 {
			continue
		}
		hops := r.lookup(&w.walk, v4, n)
		for i := range n {
			b.D[w.at[w.who[i]]].NextHop = hops[i]
		}
	}
}
