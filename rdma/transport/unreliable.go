package transport

import "github.com/millrace/millrace/rdma/roce"

// inputUnreliable handles a request of UC (9.8.2). Nothing is answered. A message with a gap is dropped, and its receive is
// kept for the next one.
func (q *QP) inputUnreliable(p *roce.Packet) Reason {
	r := &q.resp
	begins := p.Opcode.Part().Has(roce.Begins)
	if p.PSN != r.psn || begins {
		r.abandon()
	}
	r.psn = add(p.PSN, 1)
	if !begins && r.msg.kind == roce.KindNone {
		return OutOfSequence
	}
	no := accepted
	if p.Opcode.Kind() == roce.KindSend {
		no = q.executeSend(p)
	} else {
		no = q.executeWrite(p)
	}
	switch no.why {
	case Taken:
	case LocalFailure: // the program's own mistake
		q.received(Completion{ID: r.msg.recv.id, Status: no.recv})
		r.msg = message{}
		q.setState(Error)
	default: // the peer's: one must not end the queue pair, as no connection vouches for it
		r.abandon()
		if no.why == NoAccess {
			q.countGuess()
		}
	}
	return no.why
}

// mostGuesses bounds the requests with a key or address that is not permitted, for a queue pair of UC. One in 2^16 guesses of a
// key is right, where its place is known.
const mostGuesses = 64

// countGuess ends a queue pair whose peer guesses keys. One of RC ends with the first.
func (q *QP) countGuess() {
	if q.resp.guesses++; q.resp.guesses == mostGuesses {
		q.setState(Error)
	}
}

// abandon drops the message that has begun.
func (r *responder) abandon() { r.msg = message{hasRecv: r.msg.hasRecv, recv: r.msg.recv} }

// grhLen is the size of the headers in front of a received datagram.
const grhLen = 40

// inputDatagram handles a datagram (9.8.3). One that does not fit is dropped, and the receive stays: verbs would end the queue
// pair, which any sender could cause then.
func (q *QP) inputDatagram(f *roce.Frame) Reason {
	if f.QKey != q.attr.QKey {
		return WrongQKey
	}
	next := q.cfg.Recv.oldest()
	switch {
	case next == nil:
		return NoReceive
	case uint64(next.total) < uint64(len(f.Payload))+grhLen:
		return TooLong
	}
	m := &q.resp.msg
	m.hasRecv = q.cfg.Recv.take(&m.recv)
	var grh [grhLen]byte
	f.GRH(&grh)
	if !q.place(0, grh[:]) || !q.place(grhLen, f.Payload) {
		q.received(Completion{ID: m.recv.id, Status: LocalProtection})
		q.resp.msg = message{}
		q.setState(Error)
		return LocalFailure
	}
	c := Completion{ID: m.recv.id, Op: OpRecv, Flags: WithGRH, Bytes: grhLen + uint32(len(f.Payload)), SrcQP: f.SrcQP}
	if f.Opcode.Part().Has(roce.HasImm) {
		c.Flags, c.Imm = c.Flags|WithImm, f.Imm
	}
	if f.Flags&roce.Solicited != 0 {
		c.Flags |= SolicitsEvent
	}
	q.resp.msg = message{}
	q.received(c)
	return Taken
}
