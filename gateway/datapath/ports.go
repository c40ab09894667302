package datapath

import (
	"math/bits"

	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/metrics"
)

// PortRange is a closed range of ports.
type PortRange struct{ First, Last uint16 }

// Size returns the number of ports.
func (r PortRange) Size() int { return int(r.Last) - int(r.First) + 1 }

// Part returns the part of the range that belongs to loop i of n: the parts are disjoint and equal, so
// that a reply's destination port names its loop.
func (r PortRange) Part(i, n int) PortRange {
	each := r.Size() / n
	first := int(r.First) + i*each
	return PortRange{First: uint16(first), Last: uint16(first + each - 1)}
}

// Contains reports whether port lies inside.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// loopOf returns the loop that a port of the range belongs to; see Part.
func (r PortRange) loopOf(port uint16, n int) int {
	return min(int(port-r.First)/(r.Size()/n), n-1)
}

// ports allocates the source ports of one loop. Loops share no port, so that the destination port of a reply
// names the loop that has the connection, and no allocation needs a lock. A port of an SNAT address may be in use once for
// each endpoint (backend address, port and protocol), since the five-tuples then differ: one map of
// bits for each pair in use, made at the pair's first connection.
type ports struct {
	span  PortRange // of this loop; other loops have other ports
	pairs map[portPair]*portMap
	list  []*portMap // the same by number, from 1 on, so that connections need not look them up
	spare []uint32   // numbers of pairs that are forgotten
	rand  random.Source
}

// portPair is an SNAT address and an endpoint, by their numbers.
type portPair struct {
	endpoint uint32
	snat     uint16
}

// portMap is the ports of one pair: a bit is set while a connection holds its port, or the port rests.
type portMap struct {
	number uint32 // of the pair
	snat   uint16
	to     uint32 // the endpoint
	used   []uint64
	free   int
	last   int     // the bit that was taken last
	half   queue   // the half-open connections among those that hold a port
	closed queue   // the closed ones, in the order of closing,
	ended  int     // and how many they are
	rest   resting // ports without a connection whose backend may be in TIME-WAIT
}

func newPorts(span PortRange, seed uint64) *ports {
	return &ports{span: span, pairs: map[portPair]*portMap{}, list: make([]*portMap, 1), rand: random.Source(seed)}
}

// pair returns the ports of a pair.
func (p *ports) pair(pair portPair) *portMap {
	if m := p.pairs[pair]; m != nil {
		return m
	}
	return p.enter(pair)
}

// take returns a port of m that is free; false when there is none. Ports are taken in rising order from a
// random start, by steps of 1 to 8 while there are many: hard to guess (RFC 6056 3.3.5) and late to be used
// again.
func (p *ports) take(m *portMap) (port uint16, ok bool) {
	bit, ok := m.take(int(p.rand.Uint64() & 7))
	return p.span.First + uint16(bit), ok
}

// claim takes a port of m that is known to be free.
func (p *ports) claim(m *portMap, port uint16) {
	bit := int(port - p.span.First)
	m.used[bit>>6] |= 1 << (bit & 63)
	m.free--
}

// enter gives a pair a number and its ports.
func (p *ports) enter(pair portPair) *portMap {
	m := newPortMap(p.span.Size(), int(p.rand.Uint64()%uint64(p.span.Size())))
	m.snat, m.to = pair.snat, pair.endpoint
	if n := len(p.spare); n > 0 {
		m.number, p.spare = p.spare[n-1], p.spare[:n-1]
		p.list[m.number] = m
	} else {
		m.number = uint32(len(p.list))
		p.list = append(p.list, m)
	}
	p.pairs[pair] = m
	return m
}

// put gives back a port that take or claim gave.
func (p *ports) put(number uint32, port uint16) {
	m, bit := p.list[number], int(port-p.span.First)
	m.used[bit>>6] &^= 1 << (bit & 63)
	m.free++
}

// trim forgets the pairs without a port in use of which keep is false.
func (p *ports) trim(keep func(portPair) bool) {
	for pair, m := range p.pairs {
		if m.free == p.span.Size() && !keep(pair) {
			delete(p.pairs, pair)
			p.list[m.number] = nil
			p.spare = append(p.spare, m.number)
		}
	}
}

// newPortMap returns a map of size free bits, the bits behind them marked as used.
func newPortMap(size, last int) *portMap {
	m := &portMap{used: make([]uint64, (size+63)/64), free: size, last: last}
	if rest := size & 63; rest != 0 {
		m.used[len(m.used)-1] = ^uint64(0) << rest
	}
	return m
}

// take sets the first clear bit behind the last one taken, after skipping some.
func (m *portMap) take(skip int) (bit int, ok bool) {
	if m.free == 0 {
		return 0, false
	}
	from := m.last + 1 + skip
	if from >= len(m.used)*64 {
		from = 0
	}
	word := from >> 6
	clear := ^m.used[word] >> (from & 63) << (from & 63)
	for clear == 0 {
		if word++; word == len(m.used) {
			word = 0
		}
		clear = ^m.used[word]
	}
	bit = word<<6 + bits.TrailingZeros64(clear)
	m.used[word] |= 1 << (bit & 63)
	m.free--
	m.last = bit
	return bit, true
}

// The counters of an SNAT address, of one loop. The first are gauges, which the survey sets.
const (
	portsOpen   = iota // ports of open connections, to all endpoints
	portsClosed        // those of closed connections, and those that rest: they are reclaimed when ports are short
	portsMost          // ports of open connections to the endpoint that has the most,
	portsMostTo        // which is this
	portGauges
)

const (
	reclaimedResting  = portGauges + iota // ports that rested
	reclaimedClosed                       // of closed connections that were remembered
	reclaimedHalfOpen                     // of half-open connections
	portCounters
)

// surveyStep is how many pairs of SNAT address and endpoint a tick looks at.
const surveyStep = 256

// portSurvey adds up the ports of the pairs, some with each tick, and publishes the sums when it has seen all. A
// count for each packet would cost what the numbers are not worth.
type portSurvey struct {
	next int // number of a pair
	sums [][portGauges]uint64
}

// surveyPorts goes on with the survey.
func (h *Handler) surveyPorts() {
	s, list := &h.survey, h.ports.list
	for len(s.sums) < len(h.snap.snats) {
		s.sums = append(s.sums, [portGauges]uint64{})
	}
	for end := min(s.next+surveyStep, len(list)); s.next < end; s.next++ {
		m := list[s.next]
		if m == nil {
			continue
		}
		m.expire(h.now, h.ports.span.First, surveyStep)
		idle := uint64(m.rest.n + m.ended)
		open := uint64(h.ports.span.Size()-m.free) - idle
		sum := &s.sums[m.snat]
		sum[portsOpen] += open
		sum[portsClosed] += idle
		if open > sum[portsMost] {
			sum[portsMost], sum[portsMostTo] = open, uint64(m.to)
		}
	}
	if s.next < len(list) {
		return
	}
	for n := 1; n < len(s.sums); n++ {
		block := h.snap.snatStats[n][h.loop]
		for i, v := range s.sums[n] {
			block.Add(i, v-block.Load(i)) // a gauge: the difference wraps
		}
		s.sums[n] = [portGauges]uint64{}
	}
	s.next = 0
}

// countReclaimed counts a port of an SNAT address that is used again.
func (h *Handler) countReclaimed(snat uint16, kind int) {
	h.snap.snatStats[snat][h.loop].Add(kind, 1)
}

// PortStats is the use of the ports of an SNAT address, of all loops together. A port may be in use once for each
// endpoint (backend address, port and protocol).
type PortStats struct {
	Open, Closed uint64 // ports of open connections; of closed ones that are reclaimed when ports are short
	Most, Of     uint64 // of the endpoint and loop with the fewest left: ports of open connections, of so many
	Endpoint     uint32 // that endpoint

	ReclaimedResting, ReclaimedClosed, ReclaimedHalfOpen uint64 // ports used again early: after and before the connection was forgotten; of half-open ones
}

// PortStats returns the use of the ports of SNAT address number n, of which each loop has perLoop. It is some
// hundred milliseconds old. Any goroutine may call it.
func (s *Snapshot) PortStats(n uint16, perLoop int) PortStats {
	st := PortStats{Of: uint64(perLoop)}
	for _, b := range s.snatStats[n] {
		st.add(b)
	}
	return st
}

func (st *PortStats) add(b *metrics.Block) {
	st.Open += b.Load(portsOpen)
	st.Closed += b.Load(portsClosed)
	if most := b.Load(portsMost); most > st.Most {
		st.Most, st.Endpoint = most, uint32(b.Load(portsMostTo))
	}
	st.ReclaimedResting += b.Load(reclaimedResting)
	st.ReclaimedClosed += b.Load(reclaimedClosed)
	st.ReclaimedHalfOpen += b.Load(reclaimedHalfOpen)
}
