package transport

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
)

// responder is the receive side of a queue pair.
type responder struct {
	psn      uint32 // of the next packet
	msn      uint32 // messages that have completed
	guesses  int    // of keys, with UC
	refused  bool   // the packet psn has had a NAK: those behind it are dropped without another (9.7.5.1.1)
	msg      message
	records  records // of READs and atomics, for repetitions
	answers  answers
	held     []held     // with selective repeat: by number modulo the length
	cnpAfter clock.Time // when a congestion notification may be sent again
	cnpDue   bool       // one is to be sent, before all answers
	zero     bool       // the last acknowledgement promised no receive: one is sent when a receive is posted
	pieces   [][]byte
}

// message is the part that has arrived of a message that is not complete.
type message struct {
	kind    roce.Kind // KindNone: none
	hasRecv bool
	recv    recv
	bytes   uint32 // that have arrived
	va      uint64 // WRITE: of the next byte
	rkey    uint32
	left    uint32 // WRITE: bytes to come
}

func (r *responder) begin(a *Attr) {
	*r = responder{psn: a.RecvPSN, pieces: make([][]byte, 0, MaxSGE)}
	r.records.init(int(a.MaxDestReads))
	r.answers.init(int(a.MaxDestReads))
}

// refusal is a request that is not executed: why, and with which NAK.
type refusal struct {
	why Reason
	nak roce.Syndrome
	// recv is the status of the receive in use, Success is that it is left alone.
	recv Status
}

// The refusals. All but that without a receive end the queue pair (class C of 9.9.3.1).
var (
	accepted       = refusal{}
	invalid        = refusal{InvalidRequest, roce.NakInvalidRequest, Flushed}
	tooLong        = refusal{InvalidRequest, roce.NakInvalidRequest, LocalLength}
	noAccess       = refusal{NoAccess, roce.NakRemoteAccess, RemoteAccess}
	protected      = refusal{LocalFailure, roce.NakRemoteOperation, LocalProtection}
	withoutReceive = refusal{NoReceive, roce.RNRNak, Success}
)

// inputRequest handles a request of RC (9.7.4).
func (q *QP) inputRequest(p *roce.Packet) Reason {
	r := &q.resp
	switch d := distance(r.psn, p.PSN); {
	case d < 0:
		return q.inputDuplicate(p)
	case d > 0 && len(r.held) > 0:
		return q.keep(p, d)
	case d > 0:
		if !r.refused {
			r.refused = true
			r.answers.add(answer{kind: answerNak, syndrome: roce.NakSequence, psn: r.psn, msn: r.msn})
		}
		return OutOfSequence
	}
	why := q.inputExpected(p)
	if why == Taken {
		q.executeHeld()
	}
	return why
}

// inputExpected handles the packet that is next.
func (q *QP) inputExpected(p *roce.Packet) Reason {
	r := &q.resp
	if no := q.execute(p); no != accepted {
		return q.refuse(p, no)
	}
	r.refused = false
	if p.Opcode.Kind() != roce.KindRead {
		r.psn = add(r.psn, 1)
	}
	if p.Opcode.Part().Has(roce.Ends) {
		r.msn = add(r.msn, 1)
	}
	if k := p.Opcode.Kind(); p.Flags&roce.AckReq != 0 && k != roce.KindRead && k != roce.KindAtomic {
		q.acknowledge(p.PSN)
	}
	return Taken
}

// acknowledge queues an acknowledgement of psn, in place of one that has not left.
func (q *QP) acknowledge(psn uint32) {
	q.resp.answers.add(answer{kind: answerAck, psn: psn, msn: q.resp.msn})
}

// refuse answers a request that is not executed. All but a missing receive end the queue pair, after the NAK has left.
func (q *QP) refuse(p *roce.Packet, no refusal) Reason {
	r := &q.resp
	if no.why == NoReceive { // each attempt gets a NAK; what follows it does not
		r.refused = true
		r.answers.add(answer{kind: answerNak, syndrome: roce.RNR(q.attr.RNRTimer), psn: p.PSN, msn: r.msn})
		return no.why
	}
	if no.nak == 0 { // no answer: the peer repeats it
		return no.why
	}
	if r.msg.hasRecv && no.recv != Flushed {
		q.received(Completion{ID: r.msg.recv.id, Status: no.recv})
		r.msg.hasRecv = false
	}
	r.answers.add(answer{kind: answerFatal, syndrome: no.nak, psn: p.PSN, msn: r.msn})
	r.refused = true
	return no.why
}

// execute executes the expected request.
func (q *QP) execute(p *roce.Packet) refusal {
	if q.resp.answers.ending {
		return refusal{why: WrongState}
	}
	switch p.Opcode.Kind() {
	case roce.KindSend:
		return q.executeSend(p)
	case roce.KindWrite:
		return q.executeWrite(p)
	case roce.KindRead:
		return q.executeRead(p)
	case roce.KindAtomic:
		return q.executeAtomic(p)
	}
	return invalid
}

// inOrder reports whether a packet of a SEND or WRITE may come now, and has the length that its place demands: full ones up to the
// last (9.7.4.1.3, 9.7.4.1.4).
func (q *QP) inOrder(p *roce.Packet) bool {
	m, part := &q.resp.msg, p.Opcode.Part()
	n := uint32(len(p.Payload))
	switch {
	case part.Has(roce.Begins) != (m.kind == roce.KindNone):
		return false
	case !part.Has(roce.Begins) && m.kind != p.Opcode.Kind():
		return false
	case !part.Has(roce.Ends):
		return n == q.attr.MTU
	case !part.Has(roce.Begins) && n == 0:
		return false
	}
	return n <= q.attr.MTU
}

// takeReceive provides the message with a receive.
func (q *QP) takeReceive() bool {
	m := &q.resp.msg
	m.hasRecv = m.hasRecv || q.cfg.Recv.take(&m.recv)
	return m.hasRecv
}

// executeSend places a packet of a SEND into the posted buffer.
func (q *QP) executeSend(p *roce.Packet) refusal {
	if !q.inOrder(p) {
		return invalid
	}
	if !q.takeReceive() {
		return withoutReceive
	}
	m := &q.resp.msg
	m.kind = roce.KindSend
	n := uint32(len(p.Payload))
	if n > m.recv.total-m.bytes {
		return tooLong
	}
	if !q.place(m.bytes, p.Payload) {
		return protected
	}
	m.bytes += n
	if !p.Opcode.Part().Has(roce.Ends) {
		return accepted
	}
	if p.Opcode.Part().Has(roce.HasIETH) && !q.cfg.Memory.Invalidate(q.self, p.InvKey) {
		return noAccess
	}
	q.finishReceive(p, OpRecv)
	return accepted
}

// place writes b at byte at of the posted buffer.
func (q *QP) place(at uint32, b []byte) bool {
	r := &q.resp
	pieces, ok := q.gather(r.pieces[:0], r.msg.recv.list[:r.msg.recv.n], at, uint32(len(b)), memory.LocalWrite)
	if !ok {
		return false
	}
	scatter(pieces, b)
	return q.cfg.Memory.Commit()
}

// finishReceive completes the receive of a message whose last packet is p, and ends the message.
func (q *QP) finishReceive(p *roce.Packet, op Op) {
	m, part := &q.resp.msg, p.Opcode.Part()
	c := Completion{ID: m.recv.id, Op: op, Bytes: m.bytes}
	if part.Has(roce.HasImm) {
		c.Flags, c.Imm = c.Flags|WithImm, p.Imm
	}
	if part.Has(roce.HasIETH) {
		c.Flags, c.InvKey = c.Flags|WithInv, p.InvKey
	}
	if p.Flags&roce.Solicited != 0 {
		c.Flags |= SolicitsEvent
	}
	q.resp.msg = message{}
	q.received(c)
}

// executeWrite writes a packet of an RDMA WRITE. Each packet is checked against the region anew: it may have ended.
func (q *QP) executeWrite(p *roce.Packet) refusal {
	m, part := &q.resp.msg, p.Opcode.Part()
	if !q.inOrder(p) {
		return invalid
	}
	n := uint32(len(p.Payload))
	va, rkey, left := m.va, m.rkey, m.left
	if part.Has(roce.Begins) {
		va, rkey, left = p.VA, p.RKey, p.Length
		if left > maxMessage {
			return invalid
		}
		if !q.mayReach(rkey, va, left, memory.RemoteWrite) {
			return noAccess
		}
	}
	if part.Has(roce.Ends) != (n == left) || n > left {
		return invalid
	}
	if part.Has(roce.HasImm) && !q.takeReceive() {
		return withoutReceive
	}
	if n > 0 {
		q.cfg.Memory.Begin()
		b := q.cfg.Memory.Slice(q.self, rkey, va, n, memory.RemoteWrite)
		if b == nil {
			return noAccess
		}
		if copy(b, p.Payload); !q.cfg.Memory.Commit() {
			return noAccess
		}
	}
	m.kind, m.va, m.rkey, m.left = roce.KindWrite, va+uint64(n), rkey, left-n
	m.bytes += n
	switch {
	case part.Has(roce.HasImm):
		q.finishReceive(p, OpRecvImm)
	case part.Has(roce.Ends): // UC may have a receive left of a message whose end was lost
		q.resp.msg = message{hasRecv: m.hasRecv, recv: m.recv}
	}
	return accepted
}

// mayReach reports whether the peer may reach n bytes of a region; the key of no bytes is not looked at (9.7.4.1.6).
func (q *QP) mayReach(rkey uint32, va uint64, n uint32, rights Access) bool {
	if q.attr.Access&rights != rights {
		return false
	}
	return n == 0 || q.cfg.Memory.Permits(q.self, rkey, va, n, rights)
}
