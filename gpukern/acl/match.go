package acl

import (
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/gpukern/tuple"
)

// Matcher finds the rules of many packets at once by a decision: first the lists of all, then the rules in
// them, so that the reads of many packets are under way together.
type Matcher struct {
	Walk  lpm.Walk
	field [tuple.ChunkSize][5]uint32 // of bit vectors
	q     [tuple.ChunkSize]scanQuery
	refs  [tuple.ChunkSize]uint32
	at    [tuple.ChunkSize]uint32
	key   [tuple.ChunkSize]treeKey // of trees
	found [tuple.ChunkSize]uint16
}

// scanQuery asks for the first item of a list that matches a packet. The order of the first four words is
// that of an item's.
type scanQuery struct {
	dst, sport, dport, proto uint32
	at                       uint32 // the first item
	asks                     uint32 // itemAsks where the packet has no ports
	by                       uint32 // whose
	hit                      uint32 // the answer: an item; 0 for none
}

// match stores in best the places of the first rules that match the packets of who in tuples.
func (d *decision) match(m *Matcher, tuples []tuple.Tuple, who []uint8, best *[tuple.ChunkSize]uint16) {
	for _, k := range who {
		best[k] = none
	}
	for i, top := range d.top {
		if top == 0 {
			continue
		}
		d.begin(m, i, top, tuples, who)
		d.search(m, tuples, who, best)
	}
}

// begin stores in m.refs the lists of the packets in one of the three parts.
func (d *decision) begin(m *Matcher, part int, top uint32, tuples []tuple.Tuple, who []uint8) {
	if part == 2 || d.deep {
		for j := range who {
			m.refs[j] = top
		}
	} else {
		for j, k := range who {
			m.Walk.X[j] = tuples[k].DstHi
			if part == 0 {
				m.Walk.X[j] = tuples[k].SrcHi
			}
		}
		s := &d.forks[top&^forkBit]
		m.Walk.Find(&d.trie, s.row, uint8(s.wide), len(who))
		for j := range who {
			m.refs[j] = d.refs[m.Walk.Out[j]]
		}
	}
	for j, k := range who {
		for m.refs[j]&forkBit != 0 {
			m.refs[j] = d.choose(&d.forks[m.refs[j]&^forkBit], &tuples[k])
		}
	}
}

// search looks through the lists in m.refs.
func (d *decision) search(m *Matcher, tuples []tuple.Tuple, who []uint8, best *[tuple.ChunkSize]uint16) {
	n := 0
	for j, k := range who {
		t := &tuples[k]
		asks := uint32(itemAsks)
		if t.Known == tuple.Ports {
			asks = 0
		}
		m.q[n&(tuple.ChunkSize-1)] = scanQuery{
			dst: uint32(t.DstHi >> 32), sport: t.Ports >> 16, dport: t.Ports & 0xffff,
			proto: uint32(t.Proto), at: m.refs[j], asks: asks, by: uint32(k),
		}
		m.at[n&(tuple.ChunkSize-1)] = m.refs[j]
		if m.refs[j] != 0 {
			n++
		}
	}
	d.prefetchItems(m.at[:n])
	d.scanAll(m.q[:n])
	for j := range n {
		q := &m.q[j]
		if q.hit == 0 {
			continue
		}
		hit := &d.items[q.hit]
		k := q.by & (tuple.ChunkSize - 1)
		if d.may(hit) {
			best[k] = d.scan(&tuples[k], q.hit, best[k])
			continue
		}
		best[k] = min(best[k], hit.place)
	}
}

// scanPlain is scanAll for every machine.
func (d *decision) scanPlain(q []scanQuery) {
	for i := range q {
		p := &q[i]
		for at := p.at; ; at++ {
			m := &d.items[at]
			miss := uint64(m.dst^p.dst)>>(m.marks&itemShift) | uint64(uint32(m.marks)&p.asks) | outside(m.sports, p.sport) | outside(m.dports, p.dport)
			if miss == 0 && (m.proto == 0 || uint32(m.proto) == p.proto) {
				p.hit = at
				break
			}
			if m.marks&itemLast != 0 {
				break
			}
		}
	}
}
