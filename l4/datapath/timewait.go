package datapath

import (
	"time"

	"github.com/millrace/millrace/wire"
)

// A source port may lead to a backend that still holds its last connection in TIME-WAIT: the side that closes
// first does, for twice the maximum segment lifetime (RFC 9293 3.6). Such a backend answers a SYN with an ACK,
// the client resets that, and its SYN is served when it is sent again, a second later. So
//
//   - a port rests after its connection while there are others (resting)
//   - when ports are short it goes to a SYN that ends TIME-WAIT (accepts)
//
// The gateway resets no connection in TIME-WAIT, which would leave the next one on that port to old duplicates
// (RFC 1337). The exception is one whose backend has answered a SYN by an ACK while the client says nothing: the
// reset that ends it is the client's duty, and without it the port stays unusable (heldByBackend).

// timeWaitTime is the time that a backend may stay in TIME-WAIT: as long as Linux does (TCP_TIMEWAIT_LEN), and
// longer than other systems do by default.
const timeWaitTime = 60 * time.Second

// timeWait holds the values that a backend in TIME-WAIT compares a SYN with.
type timeWait struct {
	next  uint32 // RCV.NXT: what follows the client's FIN
	stamp uint32 // TS.Recent (RFC 7323 4.3); 0 is a connection without timestamps
}

// opening holds the compared fields of a SYN.
type opening struct {
	seq   uint32
	stamp uint32 // TSval; 0 is none
}

// acceptance is which backends open a connection by a SYN while they hold one in TIME-WAIT.
type acceptance uint8

const (
	acceptedByNone  acceptance = iota
	acceptedByStamp            // those that compare timestamps: RFC 6191 2
	acceptedByAll              // also those that know only RFC 1122 4.2.2.13
)

// accepts says which backends take a SYN. One with an older timestamp fails PAWS (RFC 7323 5.3) whatever its
// sequence number is. Linux asks for more than RCV.NXT, RFC 1122 for at least that: the stricter rule counts.
func (t *timeWait) accepts(s *opening) acceptance {
	larger := int32(s.seq-t.next) > 0
	if t.stamp == 0 || s.stamp == 0 {
		if larger {
			return acceptedByAll
		}
		return acceptedByNone
	}
	newer := int32(s.stamp - t.stamp)
	switch {
	case newer < 0:
		return acceptedByNone
	case larger:
		return acceptedByAll
	case newer > 0:
		return acceptedByStamp
	}
	return acceptedByNone
}

// update moves the record on by a segment of the end of the connection; the first one starts it.
func (t *timeWait) update(first bool, next, stamp uint32) {
	if first {
		*t = timeWait{next: next, stamp: stamp}
		return
	}
	if int32(next-t.next) > 0 {
		t.next = next
	}
	if stamp != 0 && (t.stamp == 0 || int32(stamp-t.stamp) > 0) {
		t.stamp = stamp
	}
}

// stampOf returns a timestamp; 1 for 0, which stands for none.
func stampOf(has bool, stamp uint32) uint32 {
	if !has {
		return 0
	}
	return max(stamp, 1)
}

// opening reads the SYN; the zero value for a datagram.
func (v *view) opening() opening {
	if v.d.Proto != wire.ProtoTCP {
		return opening{}
	}
	tcp := wire.TCP(v.p[v.d.L4:])
	var o wire.TCPOptions
	tcp.ParseOptions(&o)
	return opening{seq: tcp.Seq(), stamp: stampOf(o.HasTimestamps, o.TSVal)}
}

// segmentEnd returns the sequence number that follows a segment. Of a fragment only the header counts.
func (v *view) segmentEnd(tcp wire.TCP) uint32 {
	end := tcp.Seq()
	if v.part == whole {
		end += uint32(max(v.size()-int(v.d.L4-uint16(v.d.L3))-tcp.DataOffset(), 0))
	}
	if v.flags.Has(wire.FlagFIN) {
		end++
	}
	return end
}

// closedConn is kept of a connection for the next one on its port, and its place among the
// closed connections of its pair. They stand beside the connections: only the last segments of each use them.
type closedConn struct {
	timeWait
	link // neighbours in the order of closing, by number + 1
}

// trackEnd notes what a segment says that belongs to the end of connection n, whose state was before; see
// updateFromClient and updateFromBackend. The backend's own segments say what it will compare a SYN with: its
// ACK is RCV.NXT, its TSecr is TS.Recent.
func (h evictor) trackEnd(n int, v *view, before state, fromClient bool) {
	c, end := &h.table.conns[n], &h.table.closed[n]
	tcp := wire.TCP(v.p[v.d.L4:])
	var o wire.TCPOptions
	if !v.flags.Has(wire.FlagRST) {
		tcp.ParseOptions(&o)
		next, stamp := tcp.Ack(), o.TSEcr
		if fromClient {
			next, stamp = v.segmentEnd(tcp), o.TSVal
		} else if v.flags.Has(wire.FlagFIN) && (c.flags&connClientFIN == 0 || int32(tcp.Ack()-end.next) < 0) {
			c.flags |= connTimeWait // it closes first, or before it has seen the client's FIN
		}
		end.update(!before.ending(), next, stampOf(o.HasTimestamps, stamp))
	}
	if c.closed() && !before.closed() {
		if c.state == stateReset {
			c.flags &^= connTimeWait // a reset connection is gone at once (RFC 9293 3.10.7.4)
		}
		m := h.ports.list[c.pair]
		h.table.joinClosed(&m.closed, n)
		m.ended++
	}
}

// joinClosed enters connection n as the one that closed last.
func (t *table) joinClosed(q *queue, n int) {
	t.closed[n].link = link{older: q.newest}
	if q.newest != 0 {
		t.closed[q.newest-1].newer = uint32(n + 1)
	} else {
		q.oldest = uint32(n + 1)
	}
	q.newest = uint32(n + 1)
}

// leaveClosed takes connection n out of the queue that joinClosed entered it in.
func (t *table) leaveClosed(q *queue, n int) {
	l := t.closed[n].link
	if l.older != 0 {
		t.closed[l.older-1].newer = l.newer
	} else {
		q.oldest = l.newer
	}
	if l.newer != 0 {
		t.closed[l.newer-1].older = l.older
	} else {
		q.newest = l.older
	}
}

// How many ports are looked at for one that suits a SYN. With clients in random order each suits with a
// probability of a half, since timestamps and sequence numbers of different clients are unrelated: all are in vain
// once in 2^tries. After few of them one that only backends with timestamps take is good enough.
const (
	tries    = 32
	fewTries = 8
)

// oldestClosed returns the oldest closed connection of a queue whose port suits the SYN, -1 when none of those
// looked at does.
func (t *table) oldestClosed(q *queue, syn *opening) int {
	found := -1
	for i, at := 0, q.oldest; at != 0 && i < tries && (found < 0 || i < fewTries); i++ {
		n := int(at - 1)
		if t.conns[n].flags&connTimeWait == 0 {
			return n
		}
		switch t.closed[n].accepts(syn) {
		case acceptedByAll:
			return n
		case acceptedByStamp:
			if found < 0 {
				found = n
			}
		}
		at = t.closed[n].newer
	}
	return found
}

// restingPort is a port whose connection is over, while the backend may be in TIME-WAIT.
type restingPort struct {
	timeWait
	until ticks
	port  uint16
}

// resting is the ports that rest, in the order in which they began: a ring that grows by doubling, up to the
// number of ports.
type resting struct {
	ring []restingPort
	head int
	n    int
}

func (r *resting) at(i int) *restingPort { return &r.ring[(r.head+i)&(len(r.ring)-1)] }

func (r *resting) push(p restingPort) {
	if r.n == len(r.ring) {
		ring := make([]restingPort, max(2*r.n, 16))
		for i := range r.n {
			ring[i] = *r.at(i)
		}
		r.ring, r.head = ring, 0
	}
	r.n++
	*r.at(r.n - 1) = p
}

// remove takes out port i; older ones move up.
func (r *resting) remove(i int) {
	for ; i > 0; i-- {
		*r.at(i) = *r.at(i - 1)
	}
	r.head = (r.head + 1) & (len(r.ring) - 1)
	r.n--
}

// take removes and returns the oldest port that suits the SYN; false when none of those looked at does.
func (r *resting) take(syn *opening) (port uint16, ok bool) {
	found := -1
	for i, how := 0, acceptedByNone; i < min(r.n, tries) && how != acceptedByAll && (found < 0 || i < fewTries); i++ {
		how = r.at(i).accepts(syn)
		if how == acceptedByAll || how == acceptedByStamp && found < 0 {
			found = i
		}
	}
	if found < 0 {
		return 0, false
	}
	port = r.at(found).port
	r.remove(found)
	return port, true
}

// expire frees the ports that have rested, at most n of them.
func (m *portMap) expire(now ticks, first uint16, n int) {
	for ; n > 0 && m.rest.n > 0 && m.rest.at(0).until.expired(now); n-- {
		m.free++
		bit := int(m.rest.at(0).port - first)
		m.used[bit>>6] &^= 1 << (bit & 63)
		m.rest.remove(0)
	}
}

// releasePort gives back the port of connection n, which ends. It rests as long as its backend may be in
// TIME-WAIT, which began with the last packet.
func (h evictor) releasePort(n int) {
	c, m := &h.table.conns[n], h.ports.list[h.table.conns[n].pair]
	if c.closed() {
		h.table.leaveClosed(&m.closed, n)
		m.ended--
	}
	until := h.now - ticks(h.idle(c)) + ticksIn(timeWaitTime)
	if c.flags&connTimeWait == 0 || until.expired(h.now) {
		h.ports.put(c.pair, c.sourcePort)
		return
	}
	m.rest.push(restingPort{timeWait: h.table.closed[n].timeWait, until: until, port: c.sourcePort})
}

// reclaimPort takes a port to c's endpoint that has no open connection: the one that rests longest, then that of
// the connection that closed longest ago, then that of the oldest half-open one. It is false when connections that
// both sides have confirmed hold all ports, or when the SYN suits none of those that the backend may hold in
// TIME-WAIT: the client sends it again, and other ports are the oldest then.
func (h evictor) reclaimPort(c *Conn, v *view, list []uint16, start int) bool {
	var syn opening
	read := false
	for i := range list {
		snat := list[(start+i)%len(list)]
		m := h.ports.pair(c.portPair(snat))
		if m.rest.n == 0 && m.closed.oldest == 0 {
			continue
		}
		if !read {
			syn, read = v.opening(), true
		}
		if port, ok := m.rest.take(&syn); ok {
			h.translator().holdPort(c, m, snat, port)
			h.translator().countReclaimed(snat, reclaimedResting)
			return true
		}
		if n := h.table.oldestClosed(&m.closed, &syn); n >= 0 {
			port := h.table.conns[n].sourcePort
			h.table.conns[n].flags &^= connTimeWait // its port does not rest
			h.forget(n)
			h.ports.claim(m, port)
			h.translator().holdPort(c, m, snat, port)
			h.translator().countReclaimed(snat, reclaimedClosed)
			return true
		}
	}
	for i := range list {
		snat := list[(start+i)%len(list)]
		m := h.ports.pair(c.portPair(snat))
		if m.half.oldest == 0 {
			continue
		}
		n := int(h.table.halfOpen.slots[m.half.oldest].conn)
		port := h.table.conns[n].sourcePort
		h.evict(n, evictedHalfOpen)
		h.ports.short = m.number
		h.ports.claim(m, port)
		h.translator().holdPort(c, m, snat, port)
		h.translator().countReclaimed(snat, reclaimedHalfOpen)
		return true
	}
	return false
}
