package gpukern

// matcher finds the rules of many packets at once by a decision: first the lists of all, then the rules in
// them, so that the reads of many packets are under way together.
type matcher struct {
	walk  walk
	field [chunkSize][5]uint32 // of bit vectors
	q     [chunkSize]scanQuery
	refs  [chunkSize]uint32
	at    [chunkSize]uint32
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
func (d *decision) match(m *matcher, tuples []tuple, who []uint8, best *[chunkSize]uint16) {
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
func (d *decision) begin(m *matcher, part int, top uint32, tuples []tuple, who []uint8) {
	if part == 2 || d.deep {
		for j := range who {
			m.refs[j] = top
		}
	} else {
		for j, k := range who {
			m.walk.x[j] = tuples[k].dstHi
			if part == 0 {
				m.walk.x[j] = tuples[k].srcHi
			}
		}
		s := &d.forks[top&^forkBit]
		m.walk.find(&d.trie, s.row, uint8(s.wide), len(who))
		for j := range who {
			m.refs[j] = d.refs[m.walk.out[j]]
		}
	}
	for j, k := range who {
		for m.refs[j]&forkBit != 0 {
			m.refs[j] = d.choose(&d.forks[m.refs[j]&^forkBit], &tuples[k])
		}
	}
}

// search looks through the lists in m.refs.
func (d *decision) search(m *matcher, tuples []tuple, who []uint8, best *[chunkSize]uint16) {
	n := 0
	for j, k := range who {
		t := &tuples[k]
		asks := uint32(itemAsks)
		if t.known == knowsPorts {
			asks = 0
		}
		m.q[n&(chunkSize-1)] = scanQuery{
			dst: uint32(t.dstHi >> 32), sport: t.ports >> 16, dport: t.ports & 0xffff,
			proto: uint32(t.proto), at: m.refs[j], asks: asks, by: uint32(k),
		}
		m.at[n&(chunkSize-1)] = m.refs[j]
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
		k := q.by & (chunkSize - 1)
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
