package transport

import (
	"fmt"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/wire"
)

// Config describes a queue pair. All but Shared and Window are required.
type Config struct {
	Service   roce.Transport // RC, UC or UD
	QPN       uint32
	PD        memory.PD
	Memory    *memory.Table
	SendDepth int        // requests that the send queue holds
	Recv      *RecvQueue // its own, or a shared one

	SendDone, RecvDone func(Completion) // take completions in order; called from Input, Poll, Post* and Modify

	Window uint32 // packets in flight; 0 is DefaultWindow

	// LineRate is the rate of the link in bits per second for congestion control (DCQCN) of RC and UC, which wants
	// packets sent as ECN-capable; 0 is none.
	LineRate uint64
}

// DefaultWindow is the number of packets in flight: four times that of rdma_rxe, whose two sides run on one core in turn. Where two
// processes do, the sender would wait for the other one after each 128 packets.
const DefaultWindow = 512

// mostWindow keeps the numbers in flight far within the half circle.
const mostWindow = 1 << 16

// Output sends a packet with a payload in pieces, which it borrows. It reports false where there is no room now: the packet is
// offered again by the next Poll. path is SendWR.Path for datagrams, and 0 for connections.
type Output func(path uint32, p *roce.Packet, pieces [][]byte) bool

// Counters count the events of a queue pair.
type Counters struct {
	Sent, Received  uint64 // packets
	Repeated        uint64 // packets that were sent before
	Timeouts        uint64
	SequenceNaks    uint64 // received
	RNRNaks         uint64 // received
	ImpliedNaks     uint64 // gaps that responses have shown
	Dropped         [Reasons]uint64
	CompletedSends  uint64 // messages, whatever their status
	CompletedRecvs  uint64
	CongestionNotes uint64 // congestion notification packets received
}

// QP is a queue pair.
type QP struct {
	cfg   Config
	self  memory.Accessor
	attr  Attr
	state State
	peer  wire.Addr
	req   requester
	resp  responder
	pace  reactionPoint
	count Counters
	bound bool        // a window, since Reset
	out   roce.Packet // the packet that is sent; here because Output would move one of a function to the heap
}

// New returns a queue pair in state Reset.
func New(cfg Config) (*QP, error) {
	switch {
	case cfg.Service != roce.RC && cfg.Service != roce.UC && cfg.Service != roce.UD:
		return nil, fmt.Errorf("%w: service %d", ErrAttribute, cfg.Service)
	case cfg.SendDepth < 1 || cfg.SendDepth > 1<<15:
		return nil, fmt.Errorf("%w: SendDepth is %d, want 1 to 32768", ErrAttribute, cfg.SendDepth)
	case cfg.Window > mostWindow:
		return nil, fmt.Errorf("%w: Window is %d, want at most %d", ErrAttribute, cfg.Window, mostWindow)
	}
	if cfg.Window == 0 {
		cfg.Window = DefaultWindow
	}
	q := &QP{cfg: cfg, self: memory.Accessor{PD: cfg.PD, QP: cfg.QPN}}
	q.req.init(cfg.SendDepth)
	if !cfg.Recv.shared {
		cfg.Recv.onPosted = q.receivePosted
	}
	return q, nil
}

// QPN returns the number of the queue pair.
func (q *QP) QPN() uint32 { return q.cfg.QPN }

// Service returns the service of the queue pair.
func (q *QP) Service() roce.Transport { return q.cfg.Service }

// State returns the state, Attr the attributes, Counters the counters.
func (q *QP) State() State       { return q.state }
func (q *QP) Attr() Attr         { return q.attr }
func (q *QP) Counters() Counters { return q.count }

// Modify changes the state, and the attributes that the new one reads. The peer's address is read with ReadyToReceive.
func (q *QP) Modify(to State, a Attr, peer wire.Addr) error {
	if !mayChange(q.state, to) {
		return fmt.Errorf("%w: %v to %v", ErrTransition, q.state, to)
	}
	if err := a.check(to, q.cfg.Service); err != nil {
		return err
	}
	switch to {
	case Reset:
		q.reset()
		return nil
	case Init:
		if a.PKey == 0 {
			a.PKey = defaultPKey
		}
		q.attr.PKey, q.attr.QKey = a.PKey, a.QKey
	case ReadyToReceive:
		q.attr.MTU, q.attr.DestQP, q.attr.RecvPSN, q.attr.Access = a.MTU, a.DestQP, a.RecvPSN, a.Access
		q.attr.MaxDestReads, q.attr.RNRTimer = a.MaxDestReads, a.RNRTimer
		if q.attr.Window = q.cfg.Window; a.Window != 0 {
			q.attr.Window = min(a.Window, q.cfg.Window)
		}
		q.attr.SelectiveRepeat = a.SelectiveRepeat && q.cfg.Service == roce.RC
		q.peer = peer
		q.pace.init(q.cfg.LineRate)
		q.resp.begin(&q.attr)
		if q.attr.SelectiveRepeat {
			q.beginSelective()
		}
	case ReadyToSend:
		if q.state == ReadyToReceive {
			q.attr.SendPSN, q.attr.MaxReads, q.attr.Timeout = a.SendPSN, a.MaxReads, a.Timeout
			q.attr.Retries, q.attr.RNRRetries = a.Retries, a.RNRRetries
			q.req.begin(&q.attr)
			q.setAckEvery()
		}
	}
	q.setState(to)
	return nil
}

// setState is the only writer of the state.
func (q *QP) setState(s State) {
	q.state = s
	switch s {
	case SendError:
		q.flushSends()
	case Error:
		q.flushSends()
		q.flushReceives()
	}
}

// reset forgets all that is posted, without completions (10.3.1.1), and what windows the queue pair has bound.
func (q *QP) reset() {
	if q.bound {
		q.cfg.Memory.UnbindQueuePair(q.self)
		q.bound = false
	}
	q.req.init(q.cfg.SendDepth)
	q.resp = responder{}
	if !q.cfg.Recv.shared {
		q.cfg.Recv.head = q.cfg.Recv.tail
	}
	q.attr = Attr{}
	q.setState(Reset)
}

// fail ends the send queue with the status of its oldest request: an RC queue pair is in Error then, others in SendError.
func (q *QP) fail(s Status) {
	if q.req.head != q.req.tail {
		q.complete(s)
	}
	if q.cfg.Service == roce.RC {
		q.setState(Error)
	} else {
		q.setState(SendError)
	}
}

// flushReceives completes the receive in use and, of an own queue, all that are posted.
func (q *QP) flushReceives() {
	if q.resp.msg.hasRecv {
		q.received(Completion{ID: q.resp.msg.recv.id, Status: Flushed})
		q.resp.msg = message{}
	}
	q.resp.answers.clear()
	var e recv
	for !q.cfg.Recv.shared && q.cfg.Recv.take(&e) {
		q.received(Completion{ID: e.id, Status: Flushed})
	}
}

// received reports a completion of a receive.
func (q *QP) received(c Completion) {
	c.QPN = q.cfg.QPN
	q.count.CompletedRecvs++
	c.Done = uint32(q.count.CompletedRecvs)
	q.cfg.RecvDone(c)
}

// PostRecv appends a receive to the queue pair's own queue. In Error it completes at once, as flushed.
func (q *QP) PostRecv(w *RecvWR) error {
	switch {
	case q.cfg.Recv.shared:
		return fmt.Errorf("%w: the receive queue is shared: post there", ErrRequest)
	case q.state == Reset:
		return fmt.Errorf("%w: %v", ErrState, q.state)
	}
	if err := q.cfg.Recv.Post(w); err != nil {
		return err
	}
	if q.state == Error {
		q.flushReceives()
	}
	return nil
}

// Input handles a received packet whose ICRC is right. It borrows f. Answers leave by the next Poll.
func (q *QP) Input(now clock.Time, f *roce.Frame) Reason {
	why := q.input(now, f)
	if why == Taken {
		q.count.Received++
	} else {
		q.count.Dropped[why]++
	}
	return why
}

func (q *QP) input(now clock.Time, f *roce.Frame) Reason {
	p := &f.Packet
	switch {
	case p.Opcode == roce.CNP:
		return q.inputCNP(now, f)
	case p.Opcode.Transport() != q.cfg.Service:
		return WrongService
	case !q.state.answers():
		return WrongState
	case !samePartition(p.PKey, q.attr.PKey):
		return WrongPKey
	case q.cfg.Service != roce.UD && f.Src != q.peer:
		return WrongSource
	}
	if q.cfg.LineRate > 0 && f.ECN() == wire.CE && q.cfg.Service != roce.UD {
		q.notifyCongestion(now)
	}
	switch q.cfg.Service {
	case roce.UD:
		return q.inputDatagram(f)
	case roce.UC:
		return q.inputUnreliable(p)
	}
	switch p.Opcode.Kind() {
	case roce.KindAck, roce.KindReadResponse, roce.KindAtomicAck:
		return q.inputResponse(now, p)
	}
	return q.inputRequest(p)
}

// samePartition compares partition keys: the same number, of which one side at least is a full member (10.9.3).
func samePartition(a, b uint16) bool { return (a^b)&0x7fff == 0 && (a|b)&0x8000 != 0 }

// Poll sends what is due and returns when it wants to be called again if nothing happens before. It is called after Input,
// Post* and Modify, after out has had no room, and at that time.
func (q *QP) Poll(now clock.Time, out Output) clock.Time {
	paced := clock.Never
	if q.state.answers() && !q.pollAnswers(now, out) {
		if q.pace.mayLeave(now) {
			return now // no room: what follows has none either
		}
		paced = q.pace.next
	}
	if !q.state.sends() {
		return paced
	}
	q.checkTimer(now)
	return min(paced, q.pollSends(now, out))
}

// inputCNP handles a congestion notification of the peer (A17.9.3).
func (q *QP) inputCNP(now clock.Time, f *roce.Frame) Reason {
	switch {
	case q.cfg.LineRate == 0 || q.cfg.Service == roce.UD:
		return OtherOpcode
	case !q.state.answers():
		return WrongState
	case f.Src != q.peer:
		return WrongSource
	}
	q.count.CongestionNotes++
	q.pace.cut(now)
	return Taken
}

// notifyCongestion queues a congestion notification, unless one has just been sent.
func (q *QP) notifyCongestion(now clock.Time) {
	if now < q.resp.cnpAfter {
		return
	}
	q.resp.cnpAfter = now.Add(cnpInterval)
	q.resp.cnpDue = true
}

// send passes q.out to out.
func (q *QP) send(out Output, path uint32, pieces [][]byte) bool {
	p := &q.out
	p.PKey, p.Flags = q.attr.PKey, p.Flags|roce.MigReq
	if !out(path, p, pieces) {
		return false
	}
	q.count.Sent++
	return true
}
