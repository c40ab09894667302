package transport

import (
	"encoding/binary"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
)

// inputResponse handles acknowledgements, NAKs and responses (9.7.5).
func (q *QP) inputResponse(now clock.Time, p *roce.Packet) Reason {
	r := &q.req
	if !q.state.sends() {
		return WrongState
	}
	if distance(r.sent, p.PSN) >= 0 {
		return GhostAck
	}
	if distance(r.una, p.PSN) < 0 {
		if p.Opcode.Kind() == roce.KindAck && p.Syndrome.IsAck() && distance(p.PSN, r.una) == 1 {
			q.takeCredits(p) // sent on its own account: a receive was posted
		}
		return Duplicate
	}
	switch p.Opcode.Kind() {
	case roce.KindReadResponse:
		return q.inputRead(now, p)
	case roce.KindAtomicAck:
		return q.inputAtomic(now, p)
	}
	switch {
	case p.Syndrome.IsAck():
		return q.inputAck(now, p)
	case p.Syndrome.IsRNR():
		return q.inputRNR(now, p)
	case p.Syndrome.IsNak():
		return q.inputNak(now, p)
	}
	return WrongResponse
}

// inputAck takes an acknowledgement of p.PSN and all before.
func (q *QP) inputAck(now clock.Time, p *roce.Packet) Reason {
	if !q.advance(now, add(p.PSN, 1)) {
		return Taken // the gap is repeated
	}
	q.takeCredits(p)
	return Taken
}

// advance completes the requests whose packets are all before psn. It stops at a READ or atomic whose response is missing,
// which has been lost then: it is requested again, and advance returns false (9.7.5.1.2, implied NAK).
func (q *QP) advance(now clock.Time, psn uint32) bool {
	r := &q.req
	for r.head != r.tail {
		w := r.at(r.head)
		if w.begun && w.Op.isLocal() && w.answered && distance(w.first, psn) >= 0 { // it has waited for those before it alone
			q.complete(Success)
			continue
		}
		if !w.begun || distance(w.first, psn) <= 0 {
			break
		}
		if w.Op.isRead() && !w.answered {
			expected := later(r.una, w.first)
			if distance(expected, psn) == 0 {
				break
			}
			q.moveUna(now, expected)
			q.impliedNak(now)
			return false
		}
		if distance(w.last, psn) <= 0 { // ends behind
			break
		}
		q.moveUna(now, add(w.last, 1))
		q.complete(Success)
	}
	q.moveUna(now, later(r.una, psn))
	return true
}

// later returns the later of two numbers.
func later(a, b uint32) uint32 {
	if distance(a, b) > 0 {
		return b
	}
	return a
}

// moveUna notes progress: the timer and the retries begin anew.
func (q *QP) moveUna(now clock.Time, psn uint32) {
	r := &q.req
	if r.una == psn {
		return
	}
	if q.attr.SelectiveRepeat {
		r.forget(psn)
	}
	r.una = psn
	r.retries, r.rnr, r.implied = q.attr.Retries, q.attr.RNRRetries, false
	if distance(r.next, psn) > 0 { // what was to be repeated has arrived
		r.next = psn
		for r.cur != r.tail && r.at(r.cur).begun && distance(r.at(r.cur).last, psn) > 0 {
			r.cur++
		}
	}
	q.armTimer(now)
}

// impliedNak repeats from the oldest packet on, once: responses behind the gap that are on their way show the same one.
func (q *QP) impliedNak(now clock.Time) {
	if q.req.implied {
		return
	}
	q.req.implied = true
	q.count.ImpliedNaks++
	q.rewind()
	q.armTimer(now)
}

// takeCredits reads how many messages the peer has receives for, of the latest acknowledgement.
func (q *QP) takeCredits(p *roce.Packet) {
	r := &q.req
	if distance(r.msn, p.MSN) < 0 {
		return
	}
	n, limited := p.Syndrome.Credits()
	r.msn, r.limited, r.limit = p.MSN, limited, add(p.MSN, n)
}

// inputRNR waits as long as the peer wants, and repeats (9.7.5.2.8).
func (q *QP) inputRNR(now clock.Time, p *roce.Packet) Reason {
	r := &q.req
	if !q.advance(now, p.PSN) {
		return Taken
	}
	q.count.RNRNaks++
	if r.rnr == 0 {
		q.fail(RNRExceeded)
		return Taken
	}
	if r.rnr != 7 {
		r.rnr--
	}
	q.rewind()
	r.waitUntil, r.deadline = now.Add(roce.RNRTimer(uint8(p.Syndrome))), clock.Never
	return Taken
}

// inputNak repeats from p.PSN on, or fails the request that p.PSN belongs to.
func (q *QP) inputNak(now clock.Time, p *roce.Packet) Reason {
	if !q.advance(now, p.PSN) {
		return Taken
	}
	status, fatal := statusOf(p.Syndrome)
	switch {
	case fatal:
		q.fail(status)
	case q.attr.SelectiveRepeat:
		return q.inputSelectiveNak(now, p)
	case q.req.waitUntil != 0: // the packets behind the one that found no receive
	default:
		q.count.SequenceNaks++
		q.retry(now)
	}
	return Taken
}

// inputRead takes a packet of the response to a READ: the oldest that is not complete once those before it are.
func (q *QP) inputRead(now clock.Time, p *roce.Packet) Reason {
	r := &q.req
	if !q.advance(now, p.PSN) {
		return OutOfSequence
	}
	w := r.at(r.head)
	if w.Op != OpRead || !w.begun || distance(w.first, p.PSN) < 0 {
		return q.badResponse()
	}
	at := uint32(distance(w.first, p.PSN)) * q.attr.MTU
	size := min(w.length-at, q.attr.MTU)
	if uint32(len(p.Payload)) != size || p.Opcode.Part().Has(roce.Ends) != (p.PSN == w.last) {
		return q.badResponse()
	}
	pieces, ok := q.gather(r.pieces[:0], w.list[:w.n], at, size, memory.LocalWrite)
	if !ok && size > 0 {
		q.fail(LocalProtection)
		return NoAccess
	}
	scatter(pieces, p.Payload)
	if !q.cfg.Memory.Commit() {
		q.fail(LocalProtection)
		return NoAccess
	}
	w.answered = p.PSN == w.last
	if w.answered {
		q.advance(now, add(p.PSN, 1))
	} else {
		q.moveUna(now, add(p.PSN, 1))
	}
	if p.Opcode.Part().Has(roce.HasAETH) {
		q.takeCredits(p)
	}
	return Taken
}

// inputAtomic takes the result of an atomic.
func (q *QP) inputAtomic(now clock.Time, p *roce.Packet) Reason {
	r := &q.req
	if !q.advance(now, p.PSN) {
		return OutOfSequence
	}
	w := r.at(r.head)
	if !w.Op.isAtomic() || !w.begun || w.first != p.PSN {
		return q.badResponse()
	}
	pieces, ok := q.gather(r.pieces[:0], w.list[:w.n], 0, 8, memory.LocalWrite)
	if !ok {
		q.fail(LocalProtection)
		return NoAccess
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], p.Original)
	scatter(pieces, b[:])
	if !q.cfg.Memory.Commit() {
		q.fail(LocalProtection)
		return NoAccess
	}
	w.answered = true
	q.advance(now, add(p.PSN, 1))
	q.takeCredits(p)
	return Taken
}

// badResponse fails the oldest request: the peer has answered something else.
func (q *QP) badResponse() Reason {
	q.fail(BadResponse)
	return WrongResponse
}

// scatter copies b to pieces, which are as long together.
func scatter(pieces [][]byte, b []byte) {
	for _, p := range pieces {
		b = b[copy(p, b):]
	}
}
