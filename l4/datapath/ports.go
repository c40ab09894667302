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

	recent portPair // the pair that was asked for last: a flood asks for few
	found  *portMap // its ports; nil is none
	short  uint32   // a hint: the number of the pair that gave up the port of a half-open connection last; 0 is none
}

// portPair is an SNAT address and an endpoint, by their numbers. The ports of a range are one endpoint here: with one
// for each port, a scan of the range would make as many maps.
type portPair struct {
	endpoint uint32
	snat     uint16
}

// portPair returns the pair of the connection with an SNAT address.
func (c *Conn) portPair(snat uint16) portPair { return portPair{wholeRange(c.endpoint), snat} }

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
	if p.found != nil && p.recent == pair {
		return p.found
	}
	m := p.pairs[pair]
	if m == nil {
		m = p.enter(pair)
	}
	p.recent, p.found = pair, m
	return m
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
			p.drop(pair, m)
		}
	}
}

// drop forgets a pair, of which no port is in use.
func (p *ports) drop(pair portPair, m *portMap) {
	delete(p.pairs, pair)
	p.list[m.number], p.found = nil, nil
	p.spare = append(p.spare, m.number)
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

// surveyStep is the number of pairs of SNAT address and endpoint that a tick looks at.
const surveyStep = 256

// portSurvey adds up the ports of the pairs, some with each tick, and publishes the sums when it has seen all. A
// count for each packet would cost what the numbers are not worth.
type portSurvey struct {
	next int // number of a pair
	sums [][portGauges]uint64
}

// surveyPorts goes on with the survey.
func (h translator) surveyPorts() {
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
		if h.snap.snatStats[n] != nil { // not free
			block := h.snap.snatStats[n][h.loop]
			for i, v := range s.sums[n] {
				block.Add(i, v-block.Load(i)) // a gauge: the difference wraps
			}
		}
		s.sums[n] = [portGauges]uint64{}
	}
	s.next = 0
}

// countReclaimed counts a port of an SNAT address that is used again.
func (h translator) countReclaimed(snat uint16, kind int) {
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

// source gives the connection the source that the backend sees; false when none is left. A transparent
// service shows the client, unless the client is a backend itself: a backend answers its neighbour on the
// link directly, and takes no packets from its own address. Those get an SNAT address all the same.
func (h translator) source(c *Conn, s *Service, v *view) bool {
	if s.Transparent && !h.snap.backendAddr(c.client) {
		return h.keepPort(c)
	}
	if c.state == stateMidFlow {
		return false // the port that the backend saw is not known
	}
	return h.takePort(c, v)
}

// keepPort gives the connection the client's own port. It may be taken: another service leads the same
// client port to the same backend, which could not tell the two connections apart. Then it gets a random
// port that is free and belongs to this loop, so that replies find it.
func (h translator) keepPort(c *Conn) bool {
	c.sourcePort = c.clientPort
	if h.sourceUnused(c) {
		return true
	}
	for range 64 * h.loops {
		c.sourcePort = h.span.First + uint16(h.table.rand.Uint64()%uint64(h.span.Size()))
		if ownerLoop(c.client, c.sourcePort, h.loops) == h.loop && c.state != stateMidFlow && h.sourceUnused(c) {
			return true
		}
	}
	return false
}

// sourceUnused reports whether no connection is seen by the backend as c would be.
func (h translator) sourceUnused(c *Conn) bool {
	key := c.backendKey()
	n := h.table.byBackend(&key)
	if n >= 0 && h.kernelSide().expired(&h.table.conns[n]) {
		h.evictor().forget(n)
		n = -1
	}
	return n < 0
}

// fewPorts is the part of a pair's ports, as 1/fewPorts, below which another SNAT address is preferred.
const fewPorts = 16

// takePort takes a port of one of the SNAT addresses, by the hash of the client's address and port: a SYN that is
// sent again gets the same. One with few free ports leaves the connection to another.
func (h translator) takePort(c *Conn, v *view) bool {
	list := h.snap.snatsFor(c.client)
	if len(list) == 0 {
		return false
	}
	start := int(selection.sum(c.client, uint64(c.clientPort)) >> 32 * uint64(len(list)) >> 32)
	var most *portMap
	var of uint16
	for i := range list {
		snat := list[(start+i)%len(list)]
		m := h.ports.pair(c.portPair(snat))
		m.expire(h.now, h.ports.span.First, 4)
		if most == nil || m.free > most.free {
			most, of = m, snat
		}
		if m.free > h.ports.span.Size()/fewPorts {
			break
		}
	}
	if port, ok := h.ports.take(most); ok {
		h.holdPort(c, most, of, port)
		return true
	}
	return h.evictor().reclaimPort(c, v, list, start)
}

// holdPort makes a port, which is marked as in use, that of c.
func (h translator) holdPort(c *Conn, m *portMap, snat, port uint16) {
	c.snat, c.pair, c.sourcePort = snat, m.number, port
	h.lookups().prefetchBackendSlot(c)
}

// backendAddr reports whether a backend has address a.
func (s *Snapshot) backendAddr(a addr) bool {
	_, ok := s.keys.find(a, tagOf(kindBackend, 0, 0))
	return ok
}

// snatsFor returns the SNAT addresses of a client's address family.
func (s *Snapshot) snatsFor(client addr) []uint16 {
	if client.is4() {
		return s.SNAT4
	}
	return s.SNAT6
}
