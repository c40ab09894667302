package transport

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/roce"
)

// Selective repeat lets a lost packet cost itself alone (Mittal and others, Revisiting Network Support for RDMA, SIGCOMM 2018: IRN). Both
// sides must have it, as the responder keeps packets that come ahead of a gap, and its NAKs mean more:
//
//	NAK for a sequence error: PSN is the first packet that is missing, as ever;
//	                          the MSN field has the number of the packet that has arrived
//
// Responses to READs are requested again from the first that is missing, as without it: no peer but the requester keeps state
// for them.

// held is a packet that came ahead of a gap.
type held struct {
	used bool
	p    roce.Packet
	copy []byte // its payload; reused
}

// beginSelective makes room for a window of packets, and for an answer to each.
func (q *QP) beginSelective() {
	size := 1
	for size < int(q.attr.Window) {
		size *= 2
	}
	q.resp.held = make([]held, size)
	q.resp.answers = answers{ring: make([]answer, len(q.resp.answers.ring)+size)}
	q.req.recovery = recovery{arrived: make([]bool, size)}
}

// keep stores a packet that lies d behind the expected one, and reports it.
func (q *QP) keep(p *roce.Packet, d int32) Reason {
	r := &q.resp
	if d >= int32(len(r.held)) {
		return OutOfSequence
	}
	h := &r.held[p.PSN%uint32(len(r.held))]
	if h.used && h.p.PSN == p.PSN {
		return Duplicate
	}
	h.copy = append(h.copy[:0], p.Payload...)
	h.used, h.p = true, *p
	h.p.Payload = h.copy
	r.answers.add(answer{kind: answerNak, syndrome: roce.NakSequence, psn: r.psn, msn: p.PSN})
	return Taken
}

// executeHeld executes the packets that were kept, up to the next gap or refusal.
func (q *QP) executeHeld() {
	r := &q.resp
	for len(r.held) > 0 && q.state.answers() {
		h := &r.held[r.psn%uint32(len(r.held))]
		if !h.used || h.p.PSN != r.psn {
			return
		}
		if q.inputExpected(&h.p) != Taken { // no receive, or no room for the answer: its repetition tries again
			return
		}
		h.used = false
	}
}

// recovery holds the packets in flight that have arrived, and those that are repeated.
type recovery struct {
	arrived []bool // by number modulo the length: packets behind una that the peer holds
	active  bool   // a packet was lost
	until   uint32 // it is over when una reaches this number
	cursor  uint32 // the next packet that is repeated if it has not arrived
	highest uint32 // behind the last that has arrived: packets before it are lost
	mark    uint32 // what had been sent when una was repeated: if a later one arrives before una, una is lost again
}

// inputSelectiveNak notes that p.MSN has arrived and p.PSN has not. The caller has advanced to p.PSN.
func (q *QP) inputSelectiveNak(now clock.Time, p *roce.Packet) Reason {
	r, s := &q.req, &q.req.recovery
	q.count.SequenceNaks++
	if distance(r.una, p.MSN) <= 0 || distance(p.MSN, r.sent) <= 0 || distance(r.una, p.MSN) >= int32(len(s.arrived)) {
		return GhostAck
	}
	s.arrived[p.MSN%uint32(len(s.arrived))] = true
	if !s.active || distance(s.highest, p.MSN) >= 0 {
		s.highest = add(p.MSN, 1)
	}
	if !s.active || distance(s.mark, p.MSN) >= 0 {
		q.recover(now)
	}
	return Taken
}

// recover begins to repeat what is lost, with the oldest packet.
func (q *QP) recover(now clock.Time) {
	r, s := &q.req, &q.req.recovery
	s.active, s.until, s.cursor, s.mark = true, r.sent, r.una, r.sent
	q.armTimer(now)
}

// forget clears what is known about packets before psn, which is the next una.
func (r *requester) forget(psn uint32) {
	s := &r.recovery
	for n := r.una; n != psn; n = add(n, 1) {
		s.arrived[n%uint32(len(s.arrived))] = false
	}
	s.active = s.active && distance(psn, s.until) > 0
	if s.active && distance(s.cursor, psn) > 0 {
		s.cursor = psn
	}
}

// repeatLost sends the lost packets again. The oldest is one even if it has arrived: the peer holds it and could not execute it. It reports false where out has no room, or the rate permits no more now.
func (q *QP) repeatLost(now clock.Time, out Output) bool {
	r, s := &q.req, &q.req.recovery
	for s.active && distance(s.cursor, s.highest) > 0 && q.state.sends() {
		w := r.containing(s.cursor)
		if w == nil {
			return true
		}
		if s.cursor != r.una && (s.arrived[s.cursor%uint32(len(s.arrived))] || w.Op.isRead() && s.cursor != w.first) {
			s.cursor = add(s.cursor, 1)
			continue
		}
		if !q.pace.mayLeave(now) {
			return false
		}
		last, size, pieces, ok := q.build(w, s.cursor)
		if !ok {
			q.failLocally(w)
			return true
		}
		q.out.Flags |= roce.AckReq
		if !q.send(out, w.Path, pieces) {
			return false
		}
		if s.cursor == r.una {
			s.mark = r.sent
		}
		q.pace.left(now, int(size)+overhead)
		q.count.Repeated++
		s.cursor = add(last, 1)
	}
	return true
}

// containing returns the request that a packet in flight belongs to.
func (r *requester) containing(psn uint32) *request {
	for i := r.head; i != r.tail; i++ {
		if w := r.at(i); !w.begun {
			return nil
		} else if distance(psn, w.last) >= 0 {
			return w
		}
	}
	return nil
}
