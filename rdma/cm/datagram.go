package cm

import (
	"fmt"

	"github.com/millrace/millrace/clock"
)

// A program that sends datagrams learns the queue pair of a service by one exchange: SIDR_REQ and SIDR_REP (12.11). A Conn stands for it:
// the active side gets Replied, or Unreachable, and the passive side Requested, upon which it calls Answer. No connection follows.

// SIDRStatus is the result in a SIDR_REP (table 117).
type SIDRStatus uint8

// The results that are sent.
const (
	SIDRValid     SIDRStatus = 0
	SIDRNoService SIDRStatus = 1
	SIDRRejected  SIDRStatus = 2 // by the program
)

// Resolve asks a peer for the queue pair of a service of datagrams.
func (m *Manager) Resolve(now clock.Time, peer Peer, service uint64, private []byte) (*Conn, error) {
	if err := checkPrivate(SIDRREQ, private); err != nil {
		return nil, err
	}
	if len(m.conns) >= m.cfg.MaxConns {
		return nil, ErrFull
	}
	m.at = now
	c := m.newConn(peer)
	c.active, c.datagram, c.tid, c.service = true, true, m.cfg.Draw(), service
	c.change(callResolve)
	c.send(&Message{Kind: SIDRREQ, TID: c.tid, LocalID: c.localID, PKey: 0xffff, Service: service, Private: private}, Timeout(DefaultTimeout), DefaultRetries)
	return c, nil
}

// Answer answers a request of datagrams. With SIDRValid qpn and qkey are those that the peer sends to.
func (c *Conn) Answer(now clock.Time, status SIDRStatus, qpn, qkey uint32, private []byte) error {
	if err := checkPrivate(SIDRREP, private); err != nil {
		return err
	}
	if status == SIDRValid && (qpn <= QPN || qpn > mask24) {
		return fmt.Errorf("%w: queue pair number %d", ErrMessage, qpn)
	}
	c.m.at = now
	if !c.change(callAnswer) {
		return fmt.Errorf("%w: Answer in %v", ErrState, c.state)
	}
	c.send(c.answerOf(status, qpn, qkey, private), timeWait, 0)
	return nil
}

func (c *Conn) answerOf(status SIDRStatus, qpn, qkey uint32, private []byte) *Message {
	return &Message{Kind: SIDRREP, TID: c.tid, LocalID: c.remoteID, Status: uint8(status), QPN: qpn, Service: c.service, QKey: qkey, Private: private}
}

// rejectDatagram is Reject for datagrams.
func (c *Conn) rejectDatagram(now clock.Time, private []byte) error {
	if c.active {
		c.m.at = now
		if !c.change(callReject) {
			return fmt.Errorf("%w: Reject in %v", ErrState, c.state)
		}
		return nil
	}
	return c.Answer(now, SIDRRejected, 0, 0, private)
}

// resolution takes a SIDR_REQ.
func (m *Manager) resolution(from *Peer, r *Message) Reason {
	key := remoteKey{from.Addr, r.LocalID}
	if c := m.byRemote[key]; c != nil {
		switch {
		case !c.datagram || r.TID != c.tid || r.Service != c.service:
			return DuplicateID
		case c.state == SidrReplied:
			c.enqueue()
		}
		return Duplicate
	}
	l := m.listeners[r.Service]
	if _, ok := ServicePort(SpaceUDP, r.Service); !ok {
		l = nil
	}
	switch {
	case r.LocalID == 0:
		return BadField
	case l == nil:
		m.answerPeer(from, &Message{Kind: SIDRREP, TID: r.TID, LocalID: r.LocalID, Status: uint8(SIDRNoService), Service: r.Service})
		return NoListener
	}
	if why := m.admit(from, l); why != Taken {
		return why
	}
	c := m.newConn(*from)
	c.datagram, c.remoteID, c.tid, c.service, c.listener = true, r.LocalID, r.TID, r.Service, l
	l.waiting++
	m.byRemote[key] = c
	c.change(gotSIDRREQ)
	c.wait(m.cfg.AcceptTimeout)
	m.notify(Requested, c, r)
	return Taken
}

// resolved takes a SIDR_REP. The transaction and the request's ID are what a third party has to guess.
func (m *Manager) resolved(from *Peer, r *Message) Reason {
	c := m.conns[r.LocalID]
	if c == nil || !c.datagram || !c.active || c.peer.Addr != from.Addr || c.tid != r.TID || c.service != r.Service {
		return UnknownID
	}
	if !c.change(gotSIDRREP) {
		return WrongState
	}
	m.notify(Replied, c, r)
	return Taken
}
