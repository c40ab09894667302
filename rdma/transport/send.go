package transport

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
)

// ackEvery is the number of packets of a long message after which an acknowledgement is requested, at most: a quarter of a window, so
// that it never closes, and fewer with selective repeat, where a timeout repeats only what is not acknowledged.
const (
	ackEvery          = 64
	ackEverySelective = 8
)

// setAckEvery sets how often acknowledgements are requested.
func (q *QP) setAckEvery() {
	every := uint32(ackEvery)
	if q.attr.SelectiveRepeat {
		every = ackEverySelective
	}
	q.req.ackEvery = min(every, max(1, q.attr.Window/4))
}

// overhead is about what a packet has beside its payload, in bytes: the rate is that of the link.
const overhead = 78

// pollSends sends requests until the queue is empty, the window or the peer's credits are used up, or out has no room.
func (q *QP) pollSends(now clock.Time, out Output) clock.Time {
	r := &q.req
	if r.waitUntil != 0 {
		if now < r.waitUntil {
			return r.waitUntil
		}
		r.waitUntil = 0
	}
	if q.attr.SelectiveRepeat && !q.repeatLost(now, out) {
		return q.whenPaced(now)
	}
	for r.cur != r.tail && q.state.sends() {
		w := r.at(r.cur)
		if !q.pace.mayLeave(now) {
			return q.whenPaced(now)
		}
		if !w.begun && !q.mayBegin(w) {
			break
		}
		if w.Op.isLocal() {
			if !q.doLocally(w) {
				break
			}
			continue
		}
		if !q.withinLimits(w) {
			break
		}
		sent, ok := q.sendNext(now, w, out)
		if !ok {
			break // the request has failed, or waits until earlier ones have completed
		}
		if !sent {
			return now
		}
	}
	return r.deadline
}

// whenPaced returns when Poll is called again after a packet that could not leave: now where out had no room.
func (q *QP) whenPaced(now clock.Time) clock.Time {
	if q.pace.mayLeave(now) {
		return now
	}
	return min(q.req.deadline, q.pace.next)
}

// mayBegin begins a request, unless it has to wait for earlier ones.
func (q *QP) mayBegin(w *request) bool {
	r := &q.req
	switch {
	case q.state == Drained:
		return false
	case w.Flags&Fence != 0 && r.reads > 0: // 10.8.3.3
		return false
	case w.Op.isRead() && r.reads >= q.attr.MaxReads:
		return false
	}
	w.begun, w.first = true, r.free
	if w.Op.isLocal() { // no packets: it ends before it begins
		w.last = add(w.first, roce.Mask24)
		return true
	}
	n := packets(w.length, q.attr.MTU)
	w.last = add(w.first, n-1)
	r.free = add(w.last, 1)
	w.ssn = r.ssn
	r.ssn = add(r.ssn, 1)
	if w.Op.isRead() {
		r.reads++
	}
	return true
}

// doLocally executes a request without packets in its turn, once. It completes with the requests before it. false is that it has failed, or that
// its failure waits for these.
func (q *QP) doLocally(w *request) bool {
	r := &q.req
	if !w.answered {
		ok, failure := false, BindError
		if w.Op == OpBind {
			ok = w.Swap>>8 == 0 && q.cfg.Memory.Bind(q.self, &memory.Binding{
				Window: w.RKey, Region: w.InvKey, VA: w.RemoteAddr, Length: w.Compare, Access: Access(w.Swap),
			})
			q.bound = q.bound || ok
		} else {
			ok, failure = q.cfg.Memory.Invalidate(q.self, w.InvKey), LocalQPOperation
		}
		if !ok {
			if r.at(r.head) == w {
				q.fail(failure)
			}
			return false
		}
		w.answered = true
	}
	if r.cur++; r.cur-r.head == 1 {
		q.complete(Success)
	}
	return true
}

// withinLimits reports whether the next packet of w may leave: the window has room and the peer has a receive for the message. Without
// one, a packet leaves when nothing else is in flight, to ask for credits (9.7.7.2.5).
func (q *QP) withinLimits(w *request) bool {
	r := &q.req
	if q.cfg.Service != roce.RC {
		return true
	}
	if distance(r.una, r.next) >= int32(q.attr.Window) {
		return false
	}
	if !r.limited || !w.Op.takesReceive() || distance(w.ssn, r.limit) >= 0 {
		return true
	}
	return r.una == r.next
}

// sendNext sends the packet with number r.next, which lies in w. ok is false where w has no packet to send now.
func (q *QP) sendNext(now clock.Time, w *request, out Output) (sent, ok bool) {
	last, size, pieces, ok := q.build(w, q.req.next)
	if !ok {
		return false, q.failLocally(w)
	}
	if !q.send(out, w.Path, pieces) {
		return false, true
	}
	q.pace.left(now, int(size)+overhead)
	q.sentUpTo(now, w, last)
	return true, true
}

// build makes q.out the packet of w with a number. It returns the last number that the packet takes, which is more than one for
// a READ, and its payload. ok is false where the memory of w is not permitted.
func (q *QP) build(w *request, psn uint32) (last, size uint32, pieces [][]byte, ok bool) {
	at := uint32(distance(w.first, psn)) * q.attr.MTU
	p := &q.out
	*p = roce.Packet{DestQP: q.attr.DestQP, PSN: psn}
	if w.Op.isRead() {
		q.setReadRequest(p, w, at)
		return w.last, 0, nil, q.permits(w)
	}
	size = min(w.length-at, q.attr.MTU)
	q.setSendHeaders(p, w, at, size)
	pieces, ok = q.payload(w, at, size)
	return psn, size, pieces, ok
}

// failLocally fails w once it is the oldest request: completions come in order. It returns false.
func (q *QP) failLocally(w *request) bool {
	if q.req.at(q.req.head) == w {
		q.fail(LocalProtection)
	}
	return false
}

// permits reports whether the memory for the response of w may be written.
func (q *QP) permits(w *request) bool {
	for i := range w.list[:w.n] {
		s := &w.list[i]
		if s.Length > 0 && !q.cfg.Memory.Permits(q.self, s.LKey, s.Addr, s.Length, memory.LocalWrite) {
			return false
		}
	}
	return true
}

// setReadRequest makes p a READ from byte at on, or an atomic.
func (q *QP) setReadRequest(p *roce.Packet, w *request, at uint32) {
	p.RKey = w.RKey
	p.Flags = roce.AckReq
	switch w.Op {
	case OpRead:
		p.Opcode, p.VA, p.Length = roce.ReadRequest, w.RemoteAddr+uint64(at), w.length-at
	case OpCompareSwap:
		p.Opcode, p.VA, p.Compare, p.Swap = roce.CompareSwap, w.RemoteAddr, w.Compare, w.Swap
	case OpFetchAdd:
		p.Opcode, p.VA, p.Swap = roce.FetchAdd, w.RemoteAddr, w.Swap
	}
}

// setSendHeaders makes p the packet with bytes [at, at+size) of a SEND or WRITE.
func (q *QP) setSendHeaders(p *roce.Packet, w *request, at, size uint32) {
	first, last := at == 0, at+size == w.length
	p.Opcode = sendOpcode(w.Op, first, last).Of(q.cfg.Service)
	p.Imm, p.InvKey = w.Imm, w.InvKey
	p.VA, p.RKey, p.Length = w.RemoteAddr, w.RKey, w.length
	if last && w.Flags&Solicited != 0 {
		p.Flags |= roce.Solicited
	}
	if q.cfg.Service == roce.UD {
		p.DestQP, p.QKey, p.SrcQP = w.DestQP, w.QKey, q.cfg.QPN
		return
	}
	if q.cfg.Service == roce.RC && (last || q.req.sinceAckRequest+1 >= q.req.ackEvery || !q.creditsAllow(w)) {
		p.Flags |= roce.AckReq
	}
}

// creditsAllow is false of a packet that leaves to ask for credits.
func (q *QP) creditsAllow(w *request) bool {
	return !q.req.limited || !w.Op.takesReceive() || distance(w.ssn, q.req.limit) >= 0
}

// sendOpcode returns the opcode of RC for a packet of a message.
func sendOpcode(op Op, first, last bool) roce.Opcode {
	table := sendOpcodes[op]
	switch {
	case first && last:
		return table[3]
	case first:
		return table[0]
	case last:
		return table[2]
	}
	return table[1]
}

// sendOpcodes lists first, middle, last and only packets.
var sendOpcodes = [...][4]roce.Opcode{
	OpSend:     {roce.SendFirst, roce.SendMiddle, roce.SendLast, roce.SendOnly},
	OpSendImm:  {roce.SendFirst, roce.SendMiddle, roce.SendLastImm, roce.SendOnlyImm},
	OpSendInv:  {roce.SendFirst, roce.SendMiddle, roce.SendLastInv, roce.SendOnlyInv},
	OpWrite:    {roce.WriteFirst, roce.WriteMiddle, roce.WriteLast, roce.WriteOnly},
	OpWriteImm: {roce.WriteFirst, roce.WriteMiddle, roce.WriteLastImm, roce.WriteOnlyImm},
}

// sentUpTo notes that the packets up to last, of w, have left.
func (q *QP) sentUpTo(now clock.Time, w *request, last uint32) {
	r := &q.req
	if r.sinceAckRequest++; last == w.last || r.sinceAckRequest >= r.ackEvery {
		r.sinceAckRequest = 0
	}
	if distance(r.sent, r.next) < 0 {
		q.count.Repeated++
	}
	r.next = add(last, 1)
	if distance(r.sent, r.next) > 0 {
		r.sent = r.next
	}
	if last == w.last {
		r.cur++
	}
	if q.cfg.Service != roce.RC {
		r.una = r.next
		if last == w.last { // no answer comes: it is complete when it has left (9.8.3)
			q.complete(Success)
		}
		return
	}
	if r.deadline == clock.Never {
		q.armTimer(now)
	}
}

// armTimer starts the time in which an acknowledgement has to come.
func (q *QP) armTimer(now clock.Time) {
	q.req.deadline = clock.Never
	if d := roce.AckTimeout(q.attr.Timeout); d != 0 && q.req.una != q.req.sent {
		q.req.deadline = now.Add(d)
	}
}

// checkTimer repeats what is in flight when the time for its acknowledgement is over (9.7.6.1.3).
func (q *QP) checkTimer(now clock.Time) {
	r := &q.req
	if now < r.deadline || r.waitUntil != 0 {
		return
	}
	q.count.Timeouts++
	r.deadline = clock.Never
	q.retry(now)
}

// retry repeats from the oldest packet on, or fails the queue pair where it has done so too often.
func (q *QP) retry(now clock.Time) {
	r := &q.req
	if r.retries == 0 {
		q.fail(RetriesExceeded)
		return
	}
	r.retries--
	if q.attr.SelectiveRepeat { // all that is not known to have arrived
		r.recovery.highest = r.sent
		q.recover(now)
		return
	}
	q.rewind()
	q.armTimer(now)
}

// rewind makes the oldest packet in flight the next one.
func (q *QP) rewind() {
	r := &q.req
	r.next, r.cur, r.sinceAckRequest = r.una, r.head, 0
}
