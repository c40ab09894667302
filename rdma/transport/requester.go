package transport

import (
	"fmt"
	"math/bits"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
)

// requester is the send side of a queue pair. Its numbers, in the order of the circle:
//
//	una           next             sent             free
//	 |  in flight  |  to be repeated |  never sent    |
//	                                 (next == sent outside of a repetition)
//
// una is the oldest packet that is not acknowledged, next is sent next, sent is behind the highest that was ever sent, and
// free is what the next request gets.
type requester struct {
	ring            []request // a power of two
	head, cur, tail uint32    // the oldest request, the one that next lies in or begins, behind the newest
	depth           uint32
	una, next       uint32
	sent, free      uint32
	ssn             uint32 // of the next request: requests that have begun
	limit           uint32 // highest ssn that the peer's credits permit
	limited         bool   // the peer counts credits
	msn             uint32 // of the acknowledgement that limit is of
	reads           uint8  // READs and atomics that have begun and not completed
	retries, rnr    uint8  // left
	implied         bool   // una has been repeated because of a gap in responses: once for each progress
	deadline        clock.Time
	waitUntil       clock.Time // after an RNR NAK; 0 is none
	recovery        recovery   // with selective repeat
	pieces          [][]byte   // of the packet that is built
	sinceAckRequest uint32
	ackEvery        uint32
}

// request is a posted send.
type request struct {
	SendWR
	list   [MaxSGE]SGE
	n      uint8
	copied []byte // of Inline; reused
	length uint32

	begun       bool
	first, last uint32 // packets
	ssn         uint32
	answered    bool // an atomic has its result, a READ all of its responses; a request without packets is done
}

func (r *requester) init(depth int) {
	*r = requester{ring: make([]request, ringSize(depth, 0)), depth: uint32(depth), deadline: clock.Never}
}

// leastRing is the size of a queue at first: one that is never full stays small, as there are many queue pairs.
const leastRing = 8

// ringSize returns the size of a ring that holds more than now, but not more than depth needs: a power of two.
func ringSize(depth, now int) int {
	return min(max(leastRing, 2*now), 1<<bits.Len32(uint32(depth-1)))
}

// grow makes room in a ring that is full and smaller than its depth.
func (r *requester) grow() {
	old := r.ring
	r.ring = make([]request, ringSize(int(r.depth), len(old)))
	for i := r.head; i != r.tail; i++ {
		*r.at(i) = old[i&uint32(len(old)-1)]
	}
}

func (r *requester) begin(a *Attr) {
	r.una, r.next, r.sent, r.free = a.SendPSN, a.SendPSN, a.SendPSN, a.SendPSN
	r.retries, r.rnr, r.ssn = a.Retries, a.RNRRetries, 1
	r.pieces = make([][]byte, 0, MaxSGE)
}

// at returns the request with an index.
func (r *requester) at(i uint32) *request { return &r.ring[i&uint32(len(r.ring)-1)] }

// PostSend appends a request. In Error and SendError it completes at once, as flushed.
func (q *QP) PostSend(w *SendWR) error {
	r := &q.req
	switch {
	case !q.state.acceptsSends():
		return fmt.Errorf("%w: %v", ErrState, q.state)
	case r.tail-r.head == r.depth:
		return ErrQueueFull
	}
	if err := q.checkRequest(w); err != nil {
		return err
	}
	if r.tail-r.head == uint32(len(r.ring)) {
		r.grow()
	}
	e := r.at(r.tail) // its list is longer than most requests: it is not cleared
	e.SendWR, e.length, e.begun, e.answered = *w, total(w), false, false
	e.n, e.copied = uint8(copy(e.list[:], w.List)), e.copied[:0]
	if w.Flags&Inline != 0 {
		e.copied = append(e.copied, w.Inlined...)
		e.n = 0
	}
	e.List, e.Inlined = nil, nil
	r.tail++
	if !q.state.sends() {
		q.flushSends()
	}
	return nil
}

// total returns the bytes of a request.
func total(w *SendWR) (n uint32) {
	if w.Flags&Inline != 0 {
		return uint32(len(w.Inlined))
	}
	for _, s := range w.List {
		n += s.Length
	}
	return n
}

// MaxInline is the most bytes that PostSend copies.
const MaxInline = 1024

// checkRequest returns what PostSend refuses: requests that no state of the peer could make right.
func (q *QP) checkRequest(w *SendWR) error {
	wrong := func(why string) error { return fmt.Errorf("%w: %s", ErrRequest, why) }
	sum := uint64(0)
	for _, s := range w.List {
		sum += uint64(s.Length)
	}
	switch {
	case w.Op >= opsOfSends:
		return wrong("unknown operation")
	case len(w.List) > MaxSGE:
		return wrong(fmt.Sprintf("%d elements, at most %d", len(w.List), MaxSGE))
	case sum > maxMessage:
		return wrong("longer than 2 GiB")
	case w.Flags&Inline != 0 && (w.Op.isRead() || len(w.Inlined) > MaxInline || len(w.List) > 0):
		return wrong(fmt.Sprintf("inline is for SEND and WRITE of at most %d bytes, without a list", MaxInline))
	case w.Op.isAtomic() && (sum != 8 || w.RemoteAddr&7 != 0):
		return wrong("atomics are for 8 bytes at an address that 8 divides")
	case w.Op.isLocal() && (len(w.List) > 0 || w.Flags&Inline != 0):
		return wrong("BIND_MW and LOCAL_INV have no list")
	case w.Op.isRead() && q.attr.MaxReads == 0 && q.cfg.Service == roce.RC:
		return wrong("MaxReads is 0")
	case q.cfg.Service == roce.UC && (w.Op.isRead() || w.Op == OpSendInv):
		return wrong("not an operation of UC")
	case q.cfg.Service == roce.UD && (w.Op > OpSendImm || uint64(total(w)) > uint64(q.attr.MTU) || w.DestQP > roce.Mask24):
		return wrong("UD has SEND and SEND_WITH_IMM of at most one packet")
	}
	return nil
}

// complete removes the oldest request.
func (q *QP) complete(s Status) {
	r := &q.req
	w := r.at(r.head)
	if w.begun && w.Op.isRead() {
		r.reads--
	}
	if r.cur == r.head {
		r.cur++
	}
	r.head++
	q.count.CompletedSends++
	if s != Success || w.Flags&Signaled != 0 {
		c := Completion{ID: w.ID, Status: s, Op: w.Op, QPN: q.cfg.QPN, Done: uint32(q.count.CompletedSends)}
		if w.Op.isRead() {
			c.Bytes = w.length
		}
		q.cfg.SendDone(c)
	}
}

// flushSends completes all that is posted.
func (q *QP) flushSends() {
	for q.req.head != q.req.tail {
		q.complete(Flushed)
	}
	q.req.deadline, q.req.waitUntil = clock.Never, 0
}

// gather appends to r.pieces the bytes [at, at+n) of a list, whose regions must permit rights. What gather returned before
// is not used any more; after writing the caller calls Commit.
func (q *QP) gather(pieces [][]byte, list []SGE, at, n uint32, rights Access) ([][]byte, bool) {
	q.cfg.Memory.Begin()
	for i := range list {
		s := &list[i]
		if at >= s.Length {
			at -= s.Length
			continue
		}
		if n == 0 {
			break
		}
		take := min(n, s.Length-at)
		b := q.cfg.Memory.Slice(q.self, s.LKey, s.Addr+uint64(at), take, rights)
		if b == nil {
			return pieces, false
		}
		pieces = append(pieces, b)
		at, n = 0, n-take
	}
	return pieces, n == 0
}

// payload returns the bytes [at, at+n) of a request that sends them.
func (q *QP) payload(w *request, at, n uint32) ([][]byte, bool) {
	q.req.pieces = q.req.pieces[:0]
	if n == 0 {
		return nil, true
	}
	if w.Flags&Inline != 0 {
		q.req.pieces = append(q.req.pieces, w.copied[at:at+n])
		return q.req.pieces, true
	}
	var ok bool
	q.req.pieces, ok = q.gather(q.req.pieces, w.list[:w.n], at, n, memory.LocalRead)
	return q.req.pieces, ok
}
