package cm

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Input takes a datagram that came to queue pair 1 with the right queue key, from its sender. It borrows the datagram.
func (m *Manager) Input(now clock.Time, from *Peer, mad []byte) Reason {
	m.at = now
	var r Message
	why := r.Parse(mad)
	if why == Taken {
		why = m.input(from, &r)
	}
	m.count.Received[why]++
	return why
}

func (m *Manager) input(from *Peer, r *Message) Reason {
	switch r.Kind {
	case REQ:
		return m.request(from, r)
	case SIDRREQ:
		return m.resolution(from, r)
	case SIDRREP:
		return m.resolved(from, r)
	}
	c := m.find(from, r)
	if c == nil {
		return m.unknown(from, r)
	}
	switch r.Kind {
	case REP:
		return c.reply(from, r)
	case MRA:
		return c.receipt(r)
	case RTU:
		return c.readyReceived(r)
	case REJ:
		return c.rejected(r)
	case DREQ:
		return c.disconnectRequested(from, r)
	}
	return c.disconnectAnswered(r)
}

// find returns the connection that a message belongs to. All that the message names must fit: the address, both IDs as far as they
// are known, and the transaction of the messages before RTU. A third party has to guess 96 bits.
func (m *Manager) find(from *Peer, r *Message) *Conn {
	c := m.conns[r.RemoteID]
	if c == nil && r.Kind == REJ && r.RemoteID == 0 && r.Reason == RejTimeout {
		c = m.byRemote[remoteKey{from.Addr, r.LocalID}] // the peer has got no answer and knows no ID (12.6.7.2)
	}
	if c == nil || c.datagram || c.peer.Addr != from.Addr || c.remoteID != 0 && c.remoteID != r.LocalID {
		return nil
	}
	if r.TID != c.tid && r.Kind != DREQ && r.Kind != DREP && r.Kind != REJ {
		return nil
	}
	return c
}

// unknown answers messages of no connection. Of those, the peer repeats REP and DREQ until it gets one: a connection that has ended here, or
// a process that was started again.
func (m *Manager) unknown(from *Peer, r *Message) Reason {
	switch r.Kind {
	case REP:
		m.answerPeer(from, &Message{Kind: REJ, TID: r.TID, LocalID: r.RemoteID, RemoteID: r.LocalID, Of: ofREP, Reason: RejInvalidID})
	case DREQ:
		m.answerPeer(from, &Message{Kind: DREP, TID: r.TID, LocalID: r.RemoteID, RemoteID: r.LocalID})
	}
	return UnknownID
}

// Bounds of times that a peer asks for.
const (
	leastRepeat = 10 * time.Millisecond
	mostRepeat  = 4400 * time.Millisecond // Linux's RDMA-CM has 4.3 s
	mostMRA     = 69 * time.Second        // and announces 68.7 s
)

// request takes a REQ.
func (m *Manager) request(from *Peer, r *Message) Reason {
	if c := m.byRemote[remoteKey{from.Addr, r.LocalID}]; c != nil {
		return c.requestedAgain(from, r)
	}
	refuse := func(why RejectReason, reason Reason) Reason {
		m.answerPeer(from, &Message{Kind: REJ, TID: r.TID, RemoteID: r.LocalID, Of: ofREQ, Reason: why})
		return reason
	}
	l := m.listeners[r.Service]
	if _, ok := ServicePort(SpaceUDP, r.Service); ok { // those of datagrams take no connections
		l = nil
	}
	switch {
	case l == nil:
		return refuse(RejInvalidServiceID, NoListener)
	case r.Transport > 1: // neither RC nor UC
		return refuse(RejInvalidTransport, BadField)
	case r.LocalID == 0:
		return BadField
	}
	if old := m.byQPN[remoteKey{from.Addr, r.QPN}]; old != nil {
		old.staleBy()
		return refuse(RejStale, StaleQP) // the peer's next attempt succeeds (12.9.8.3.1)
	}
	if why := m.admit(from, l); why != Taken {
		return why
	}
	c := m.newConn(*from)
	c.remoteID, c.tid, c.service, c.remoteQPN, c.listener = r.LocalID, r.TID, r.Service, r.QPN, l
	c.repeatEvery = min(max(Timeout(r.LocalTimeout), leastRepeat), mostRepeat)
	c.maxTries = max(r.MaxCMRetries, 1)
	l.waiting++
	m.byRemote[remoteKey{from.Addr, r.LocalID}] = c
	m.byQPN[remoteKey{from.Addr, r.QPN}] = c
	c.change(gotREQ)
	c.wait(m.cfg.AcceptTimeout)
	m.notify(Requested, c, r)
	return Taken
}

// admit reports Taken where a listener may have one more request of a peer.
func (m *Manager) admit(from *Peer, l *Listener) Reason {
	switch {
	case m.halfOpen >= m.cfg.MaxHalfOpen || len(m.conns) >= m.cfg.MaxConns:
		return HalfOpenFull
	case m.bySource[from.Addr] >= m.cfg.MaxBySource:
		return SourceFull
	case l.waiting >= l.backlog:
		return BacklogFull
	}
	return Taken
}

// requestedAgain takes a REQ with a communication ID that is known.
func (c *Conn) requestedAgain(from *Peer, r *Message) Reason {
	m := c.m
	if r.TID != c.tid || r.QPN != c.remoteQPN || r.Service != c.service {
		m.answerPeer(from, &Message{Kind: REJ, TID: r.TID, RemoteID: r.LocalID, Of: ofREQ, Reason: RejDuplicateID})
		return DuplicateID
	}
	switch c.state {
	case ReqReceived: // the program decides: MRA ends the repetition for a while
		m.answerPeer(from, &Message{Kind: MRA, TID: c.tid, LocalID: c.localID, RemoteID: c.remoteID, Of: ofREQ, Timeout: mraTimeout})
	case RepSent, MraOfRep: // REP was lost
		c.enqueue()
	}
	return Duplicate
}

// staleBy handles a REQ from the peer's queue pair that this connection has: the peer has forgotten it.
func (c *Conn) staleBy() {
	from := c.state
	if !c.change(stale) {
		return
	}
	if from == Established {
		c.sendDisconnect(nil)
		return
	}
	c.m.notify(Unreachable, c, nil)
}

// reply takes a REP.
func (c *Conn) reply(from *Peer, r *Message) Reason {
	m := c.m
	switch c.state {
	case RepReceived: // the program leads its queue pair to ReadyToSend
		m.answerPeer(&c.peer, &Message{Kind: MRA, TID: c.tid, LocalID: c.localID, RemoteID: c.remoteID, Of: ofREP, Timeout: mraTimeout})
		return Duplicate
	case Established: // RTU was lost
		if !c.active {
			return WrongState
		}
		m.answerPeer(&c.peer, c.readyToUse(nil))
		return Duplicate
	}
	if transitions[c.state][gotREP] == not {
		return WrongState
	}
	if old := m.byQPN[remoteKey{from.Addr, r.QPN}]; old != nil {
		old.staleBy()
		c.change(callReject)
		m.answerPeer(from, &Message{Kind: REJ, TID: c.tid, LocalID: c.localID, RemoteID: r.LocalID, Of: ofREP, Reason: RejStale})
		m.notify(Unreachable, c, nil)
		return StaleQP
	}
	c.remoteID, c.remoteQPN = r.LocalID, r.QPN
	m.byQPN[remoteKey{from.Addr, r.QPN}] = c
	c.peer = *from
	c.change(gotREP)
	c.wait(m.cfg.AcceptTimeout)
	m.notify(Replied, c, r)
	return Taken
}

// receipt takes an MRA: the peer needs the time that it contains.
func (c *Conn) receipt(r *Message) Reason {
	e := gotMRAofREQ
	if r.Of == ofREP {
		e = gotMRAofREP
	} else if r.Of != ofREQ {
		return BadField
	}
	if !c.change(e) {
		return WrongState
	}
	// The message is repeated after it, as often as is left: MRA may come once more.
	c.m.wheel.Arm(c.slot, c.m.at.Add(c.interval+min(Timeout(r.Timeout), mostMRA)))
	return Taken
}

// readyReceived takes an RTU.
func (c *Conn) readyReceived(r *Message) Reason {
	if !c.active && c.state == Established {
		return Duplicate
	}
	if !c.change(gotRTU) {
		return WrongState
	}
	c.stop()
	c.m.notify(Opened, c, r)
	return Taken
}

// rejected takes a REJ.
func (c *Conn) rejected(r *Message) Reason {
	from := c.state
	if c.active && from == ReqSent || from == MraReceived {
		if r.TID != c.tid { // nothing else in it vouches for the peer: remoteID is not known
			return UnknownID
		}
	}
	if !c.change(gotREJ) {
		return WrongState
	}
	switch from {
	case Established:
		c.m.notify(Disconnected, c, nil)
	case DreqSent:
		c.m.notify(Disconnected, c, nil)
	default:
		c.m.notify(Rejected, c, r)
	}
	return Taken
}

// disconnectRequested takes a DREQ, and answers it in any state that knows the peer.
func (c *Conn) disconnectRequested(from *Peer, r *Message) Reason {
	m := c.m
	if r.QPN != c.localQPN {
		return UnknownID
	}
	if c.state == TimeWait {
		m.answerPeer(from, c.disconnected(r.TID))
		return Duplicate
	}
	if !c.change(gotDREQ) {
		return WrongState
	}
	m.answerPeer(from, c.disconnected(r.TID))
	m.notify(Disconnected, c, r)
	return Taken
}

func (c *Conn) disconnected(tid uint64) *Message {
	return &Message{Kind: DREP, TID: tid, LocalID: c.localID, RemoteID: c.remoteID}
}

// disconnectAnswered takes a DREP.
func (c *Conn) disconnectAnswered(r *Message) Reason {
	if !c.change(gotDREP) {
		return WrongState
	}
	c.m.notify(Disconnected, c, r)
	return Taken
}
