package transport

import (
	"encoding/binary"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
)

// answerKind is the kind of an answer that waits to be sent.
type answerKind uint8

const (
	answerAck answerKind = iota
	answerNak
	answerRead
	answerAtomic
	answerFatal // a NAK with which the queue pair ends
)

// answer is something that the responder sends. Answers leave in the order of the requests.
type answer struct {
	kind     answerKind
	syndrome roce.Syndrome // of NAKs
	psn      uint32        // READ: of the next packet
	from     uint32        // READ: of the first
	msn      uint32
	record   record // READ, atomic
}

// answers is a queue. An acknowledgement replaces one that waits at its end, so between two responses lies one at most.
type answers struct {
	ring       []answer
	head, size int
	ending     bool // a fatal NAK waits: nothing is executed any more
}

// init makes room for the responses of reads requests, each once more for repetitions, and what lies between.
func (a *answers) init(reads int) { *a = answers{ring: make([]answer, 4*reads+4)} }

func (a *answers) clear() { a.head, a.size, a.ending = 0, 0, false }

func (a *answers) at(i int) *answer { return &a.ring[(a.head+i)%len(a.ring)] }

// full reports whether there is no room for a response, an acknowledgement behind it and a NAK.
func (a *answers) full() bool { return a.size+3 > len(a.ring) }

// add appends an answer. NAKs have room kept by full; a second one replaces none since requests behind it are dropped.
func (a *answers) add(v answer) {
	if v.kind == answerAck && a.size > 0 {
		if last := a.at(a.size - 1); last.kind == answerAck {
			*last = v
			return
		}
	}
	if a.size == len(a.ring) { // of repetitions alone: the peer asks again
		return
	}
	*a.at(a.size) = v
	a.size++
	a.ending = a.ending || v.kind == answerFatal
}

func (a *answers) pop() {
	a.head = (a.head + 1) % len(a.ring)
	a.size--
}

// record is a READ or atomic that was executed. An atomic that is repeated gets its first result; a READ is executed again
// (9.7.5.1.5).
type record struct {
	kind        roce.Kind
	first, last uint32 // packets of the response
	msn         uint32
	va          uint64
	rkey        uint32
	length      uint32
	original    uint64 // of an atomic
}

// records are the latest READs and atomics: as many as the peer may have outstanding.
type records struct {
	ring []record
	next int
}

func (r *records) init(n int) { *r = records{ring: make([]record, n)} }

func (r *records) add(v record) {
	r.ring[r.next] = v
	r.next = (r.next + 1) % len(r.ring)
}

// find returns the record that a repeated request belongs to.
func (r *records) find(kind roce.Kind, psn uint32) *record {
	for i := range r.ring {
		if e := &r.ring[i]; e.kind == kind && distance(e.first, psn) >= 0 && distance(psn, e.last) >= 0 {
			return e
		}
	}
	return nil
}

// executeRead queues the response to a READ.
func (q *QP) executeRead(p *roce.Packet) refusal {
	r := &q.resp
	switch {
	case r.msg.kind != roce.KindNone || len(r.records.ring) == 0 || p.Length > maxMessage:
		return invalid
	case !q.mayReach(p.RKey, p.VA, p.Length, memory.RemoteRead):
		return noAccess
	case r.answers.full():
		return refusal{why: AnswersFull}
	}
	v := record{kind: roce.KindRead, first: p.PSN, va: p.VA, rkey: p.RKey, length: p.Length, msn: add(r.msn, 1)}
	v.last = add(p.PSN, packets(p.Length, q.attr.MTU)-1)
	r.records.add(v)
	r.answers.add(answer{kind: answerRead, psn: v.first, from: v.first, msn: v.msn, record: v})
	r.psn = add(v.last, 1)
	return accepted
}

// executeAtomic executes an atomic. It is atomic towards all that the loop of the queue pair does (ATOMIC_HCA), as one
// goroutine executes all.
func (q *QP) executeAtomic(p *roce.Packet) refusal {
	r := &q.resp
	if r.msg.kind != roce.KindNone || len(r.records.ring) == 0 || p.VA&7 != 0 {
		return invalid
	}
	if q.attr.Access&memory.RemoteAtomic == 0 {
		return noAccess
	}
	if r.answers.full() {
		return refusal{why: AnswersFull}
	}
	q.cfg.Memory.Begin()
	b := q.cfg.Memory.Slice(q.self, p.RKey, p.VA, 8, memory.RemoteAtomic)
	if b == nil {
		return noAccess
	}
	old := binary.NativeEndian.Uint64(b)
	switch {
	case p.Opcode == roce.FetchAdd:
		binary.NativeEndian.PutUint64(b, old+p.Swap)
	case old == p.Compare:
		binary.NativeEndian.PutUint64(b, p.Swap)
	default: // nothing is written, not even the same value
		q.cfg.Memory.Begin()
	}
	if !q.cfg.Memory.Commit() {
		return noAccess
	}
	v := record{kind: roce.KindAtomic, first: p.PSN, last: p.PSN, original: old, msn: add(r.msn, 1)}
	r.records.add(v)
	r.answers.add(answer{kind: answerAtomic, psn: p.PSN, msn: v.msn, record: v})
	return accepted
}

// inputDuplicate answers a request that was executed before (9.7.5.1.4, 9.7.5.1.5). Nothing is written again.
func (q *QP) inputDuplicate(p *roce.Packet) Reason {
	r := &q.resp
	if r.answers.ending {
		return WrongState
	}
	k := p.Opcode.Kind()
	if k != roce.KindRead && k != roce.KindAtomic {
		q.acknowledge(add(r.psn, roce.Mask24)) // the latest: psn - 1
		return Duplicate
	}
	v := r.records.find(k, p.PSN)
	if v == nil {
		return Duplicate
	}
	if r.answers.full() {
		return AnswersFull
	}
	if k == roce.KindAtomic {
		r.answers.add(answer{kind: answerAtomic, psn: p.PSN, msn: v.msn, record: *v})
		return Duplicate
	}
	at := uint32(distance(v.first, p.PSN)) * q.attr.MTU // a READ may be repeated from a later packet on
	if p.RKey != v.rkey || p.VA != v.va+uint64(at) || p.Length > v.length-at {
		return InvalidRequest
	}
	if !q.mayReach(p.RKey, p.VA, p.Length, memory.RemoteRead) {
		return NoAccess
	}
	again := *v
	again.last = add(p.PSN, packets(p.Length, q.attr.MTU)-1)
	again.length = at + p.Length
	r.answers.add(answer{kind: answerRead, psn: p.PSN, from: p.PSN, msn: v.msn, record: again})
	return Duplicate
}

// pollAnswers sends what waits. It reports false where out has no room, or the rate does not permit more now.
func (q *QP) pollAnswers(now clock.Time, out Output) bool {
	a := &q.resp.answers
	if q.resp.cnpDue {
		q.out = roce.Packet{Opcode: roce.CNP, DestQP: q.attr.DestQP, Flags: roce.BECN}
		if q.resp.cnpDue = !q.send(out, 0, nil); q.resp.cnpDue {
			return false
		}
	}
	for a.size > 0 {
		v := a.at(0)
		switch v.kind {
		case answerRead:
			if done, ok := q.sendReadResponse(now, v, out); !ok {
				return false
			} else if !done {
				continue
			}
		default:
			if !q.sendAcknowledgement(v, out) {
				return false
			}
			if v.kind == answerFatal {
				q.setState(Error)
				return true
			}
		}
		a.pop()
	}
	return true
}

// sendAcknowledgement sends what is one packet.
func (q *QP) sendAcknowledgement(v *answer, out Output) bool {
	p := &q.out
	*p = roce.Packet{Opcode: roce.Acknowledge, PSN: v.psn, DestQP: q.attr.DestQP, Syndrome: v.syndrome, MSN: v.msn}
	switch v.kind {
	case answerAck:
		p.Syndrome = q.credits()
	case answerAtomic:
		p.Opcode, p.Syndrome, p.Original = roce.AtomicAcknowledge, q.credits(), v.record.original
	}
	return q.send(out, 0, nil)
}

// sendReadResponse sends packets of a response until it is complete or out has no room. Where the region has ended meanwhile, v
// becomes a NAK.
func (q *QP) sendReadResponse(now clock.Time, v *answer, out Output) (done, ok bool) {
	w := &v.record
	start := w.first
	for {
		if !q.pace.mayLeave(now) {
			return false, false
		}
		at := uint32(distance(start, v.psn)) * q.attr.MTU
		size := min(w.length-at, q.attr.MTU)
		p := &q.out
		*p = roce.Packet{PSN: v.psn, DestQP: q.attr.DestQP, MSN: v.msn, Syndrome: q.credits()}
		p.Opcode = readOpcodes[b2i(v.psn == v.from)|b2i(v.psn == w.last)<<1]
		var pieces [][]byte
		if size > 0 {
			q.cfg.Memory.Begin()
			b := q.cfg.Memory.Slice(q.self, w.rkey, w.va+uint64(at), size, memory.RemoteRead)
			if b == nil {
				q.resp.answers.ending = true
				*v = answer{kind: answerFatal, syndrome: roce.NakRemoteAccess, psn: v.psn, msn: v.msn}
				return false, true
			}
			pieces = append(q.resp.pieces[:0], b)
		}
		if !q.send(out, 0, pieces) {
			return false, false
		}
		q.pace.left(now, int(size)+overhead)
		if v.psn == w.last {
			return true, true
		}
		v.psn = add(v.psn, 1)
	}
}

// readOpcodes lists middle, first, last and only responses.
var readOpcodes = [4]roce.Opcode{roce.ReadMiddle, roce.ReadFirst, roce.ReadLast, roce.ReadOnly}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// credits returns the acknowledgement with the receives that the peer may use beyond the messages that have completed: one is
// in use by the message that has begun.
func (q *QP) credits() roce.Syndrome {
	if q.cfg.Recv.shared {
		return roce.UnlimitedCredits
	}
	s := roce.Ack(q.cfg.Recv.Len() + b2i(q.resp.msg.hasRecv))
	q.resp.zero = s == 0
	return s
}

// receivePosted acknowledges once more when the peer waits for credits.
func (q *QP) receivePosted() {
	if q.resp.zero && q.cfg.Service == roce.RC && q.state.answers() {
		q.resp.zero = false
		q.acknowledge(add(q.resp.psn, roce.Mask24))
	}
}
