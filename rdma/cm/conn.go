package cm

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/clock"
)

// Conn is one connection.
type Conn struct {
	Data any // the caller's

	m         *Manager
	peer      Peer
	state     State
	active    bool
	datagram  bool // an exchange for datagrams
	localID   uint32
	remoteID  uint32
	tid       uint64 // of REQ to RTU
	service   uint64
	localQPN  uint32
	remoteQPN uint32
	listener  *Listener // while in ReqReceived

	last     []byte        // what is sent, and repeated while the state waits for an answer; nil is nothing
	queued   bool          // in Manager.ready
	tries    uint8         // repetitions left
	interval time.Duration // between them
	slot     uint32

	repeatEvery time.Duration // of REP, by the peer's REQ
	maxTries    uint8
}

// Defaults of the active side.
const (
	DefaultTimeout = 17 // 0.54 s, as a code of Timeout
	DefaultRetries = 15
	// mraTimeout is the wait that an own MRA announces: 8.6 s, repeated with each duplicate.
	mraTimeout = 21
)

// Request holds the attributes of a connection that the own side begins.
type Request struct {
	Service   uint64
	QPN, PSN  uint32 // the own queue pair, and the number of the first packet that it receives
	Transport uint8  // 0 RC, 1 UC
	MTU       uint32 // bytes
	PKey      uint16 // 0 is 0xffff

	ResponderResources, InitiatorDepth uint8
	Retries, RNRRetries, AckTimeout    uint8
	FlowControl, SRQ                   bool
	TrafficClass                       uint8

	Timeout      uint8 // code of the wait for each answer; 0 is DefaultTimeout
	MaxCMRetries uint8 // 0 is DefaultRetries

	Private []byte // at most REQ.PrivateLen()
}

// Reply holds the attributes with which the own side accepts a connection; they are those of Request.
type Reply struct {
	QPN, PSN                           uint32
	ResponderResources, InitiatorDepth uint8
	RNRRetries, AckDelay               uint8
	FlowControl, SRQ                   bool
	Private                            []byte // at most REP.PrivateLen()
}

// checkNumbers checks numbers of a queue pair and private data.
func checkNumbers(k Kind, qpn, psn uint32, private []byte) error {
	switch {
	case qpn <= QPN || qpn > mask24:
		return fmt.Errorf("%w: queue pair number %d", ErrMessage, qpn)
	case psn > mask24:
		return fmt.Errorf("%w: packet sequence number %d", ErrMessage, psn)
	}
	return checkPrivate(k, private)
}

func checkPrivate(k Kind, private []byte) error {
	if most := k.PrivateLen(); len(private) > most {
		return fmt.Errorf("%w: %d bytes of private data, and %v has room for %d", ErrMessage, len(private), k, most)
	}
	return nil
}

// Connect begins a connection. Its end or its reply comes as an event.
func (m *Manager) Connect(now clock.Time, peer Peer, r *Request) (*Conn, error) {
	if err := checkNumbers(REQ, r.QPN, r.PSN, r.Private); err != nil {
		return nil, err
	}
	if r.Transport > 1 || r.MTU < 256 || r.MTU > 4096 || r.Timeout > 31 || r.MaxCMRetries > 15 {
		return nil, fmt.Errorf("%w: transport %d, MTU %d, time-out %d, retries %d", ErrMessage, r.Transport, r.MTU, r.Timeout, r.MaxCMRetries)
	}
	if len(m.conns) >= m.cfg.MaxConns {
		return nil, ErrFull
	}
	timeout, retries, pkey := r.Timeout, r.MaxCMRetries, r.PKey
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	if retries == 0 {
		retries = DefaultRetries
	}
	if pkey == 0 {
		pkey = 0xffff
	}
	m.at = now
	c := m.newConn(peer)
	c.active, c.tid, c.service, c.localQPN = true, m.cfg.Draw(), r.Service, r.QPN
	c.change(callConnect)
	c.send(&Message{
		Kind: REQ, TID: c.tid, LocalID: c.localID, Service: r.Service, CAGUID: m.cfg.CAGUID, QPN: r.QPN, PSN: r.PSN, PKey: pkey,
		ResponderResources: r.ResponderResources, InitiatorDepth: r.InitiatorDepth, FlowControl: r.FlowControl, RNRRetries: r.RNRRetries, SRQ: r.SRQ,
		RemoteTimeout: timeout, LocalTimeout: timeout, MaxCMRetries: retries, Transport: r.Transport, Retries: r.Retries, MTU: MTUCode(r.MTU),
		Path: Path{
			LocalLID: 0xffff, RemoteLID: 0xffff, Local: m.cfg.Addr, Remote: peer.Addr, TrafficClass: r.TrafficClass, HopLimit: 64,
			Rate: 3, AckTimeout: r.AckTimeout,
		},
		Private: r.Private,
	}, Timeout(timeout), retries)
	return c, nil
}

// newConn returns a connection in Idle, which has an ID.
func (m *Manager) newConn(peer Peer) *Conn {
	c := &Conn{m: m, peer: peer, localID: m.newID()}
	m.conns[c.localID] = c
	if n := len(m.free); n > 0 {
		c.slot = m.free[n-1]
		m.free = m.free[:n-1]
		m.slots[c.slot] = c
	} else {
		c.slot = uint32(len(m.slots))
		m.slots = append(m.slots, c)
		m.wheel.Grow(len(m.slots))
	}
	return c
}

// State returns the state.
func (c *Conn) State() State { return c.state }

// Peer returns the other side, Service the service, and RemoteQPN the peer's queue pair; 0 is not known yet.
func (c *Conn) Peer() Peer        { return c.peer }
func (c *Conn) Service() uint64   { return c.service }
func (c *Conn) RemoteQPN() uint32 { return c.remoteQPN }

// Active reports whether this side began the connection.
func (c *Conn) Active() bool { return c.active }

// Datagram reports whether it is an exchange for datagrams, and no connection.
func (c *Conn) Datagram() bool { return c.datagram }

// Now returns the time of the call of the manager that runs, for the calls that Config.Notify makes.
func (c *Conn) Now() clock.Time { return c.m.at }

// Listener returns the listener of a connection that the peer began, while the program has not answered; nil otherwise.
func (c *Conn) Listener() *Listener { return c.listener }

// change takes an event, and is the only writer of the state. It reports false where the state does not take the event.
func (c *Conn) change(e event) bool {
	to := transitions[c.state][e]
	if to == not {
		return false
	}
	from := c.state
	c.state = to
	m := c.m
	if from.halfOpen() != to.halfOpen() && !c.active {
		if to.halfOpen() {
			m.halfOpen++
			m.bySource[c.peer.Addr]++
		} else {
			m.halfOpen--
			if m.bySource[c.peer.Addr]--; m.bySource[c.peer.Addr] == 0 {
				delete(m.bySource, c.peer.Addr)
			}
		}
	}
	if (from == ReqReceived || from == SidrReceived) && c.listener != nil {
		c.listener.waiting--
		c.listener = nil
	}
	switch to {
	case Idle:
		c.release()
	case TimeWait: // the peer may use its queue pair again before this side does
		c.forgetQPN()
		c.wait(timeWait)
	}
	return true
}

// release ends what the manager holds of a connection that is Idle.
func (c *Conn) release() {
	m := c.m
	delete(m.conns, c.localID)
	c.forgetRemote()
	m.wheel.Stop(c.slot)
	m.slots[c.slot] = nil
	m.free = append(m.free, c.slot)
	c.last = nil
}

func (c *Conn) forgetRemote() {
	m := c.m
	if k := (remoteKey{c.peer.Addr, c.remoteID}); m.byRemote[k] == c {
		delete(m.byRemote, k)
	}
	c.forgetQPN()
}

func (c *Conn) forgetQPN() {
	m := c.m
	if k := (remoteKey{c.peer.Addr, c.remoteQPN}); m.byQPN[k] == c {
		delete(m.byQPN, k)
	}
}

// wait is the time-out of states that send nothing.
func (c *Conn) wait(d time.Duration) {
	c.interval, c.tries = d, 0
	c.last = nil
	c.m.wheel.Arm(c.slot, c.m.at.Add(d))
}

// send queues a message that is repeated up to tries times, until the state changes.
func (c *Conn) send(r *Message, interval time.Duration, tries uint8) {
	c.last, c.interval, c.tries = r.Append(nil), interval, tries
	c.enqueue()
	c.m.wheel.Arm(c.slot, c.m.at.Add(interval))
}

func (c *Conn) enqueue() {
	if !c.queued {
		c.queued = true
		c.m.ready = append(c.m.ready, c)
	}
}

// stop ends repetition: the state waits for nothing.
func (c *Conn) stop() {
	c.last = nil
	c.m.wheel.Stop(c.slot)
}

// expire is called when the time-out of the state is over.
func (c *Conn) expire(now clock.Time) {
	m := c.m
	m.at = now
	if c.tries > 0 && c.last != nil {
		c.tries--
		m.count.Repeated++
		c.enqueue()
		m.wheel.Arm(c.slot, now.Add(c.interval))
		return
	}
	from := c.state
	if !c.change(expired) {
		return
	}
	switch from {
	case TimeWait:
		m.notify(Released, c, nil)
	case DreqSent:
		m.count.Expired++
		m.notify(Disconnected, c, nil)
	case SidrReplied:
	case SidrSent:
		m.count.Expired++
		m.notify(Unreachable, c, nil)
	case SidrReceived:
		m.count.Expired++
		m.answer(&c.peer, c.answerOf(SIDRRejected, 0, 0, nil))
		m.notify(Unreachable, c, nil)
	default:
		m.count.Expired++
		m.answer(&c.peer, c.rejection(from, RejTimeout, nil, nil))
		m.notify(Unreachable, c, nil)
	}
}

// rejection returns a REJ that ends the connection in a state.
func (c *Conn) rejection(from State, why RejectReason, info, private []byte) *Message {
	of := uint8(ofOther)
	switch from {
	case ReqReceived:
		of = ofREQ
	case RepReceived:
		of = ofREP
	}
	return &Message{Kind: REJ, TID: c.tid, LocalID: c.localID, RemoteID: c.remoteID, Of: of, Reason: why, Info: info, Private: private}
}

// Accept answers a request: the own queue pair is ready to receive.
func (c *Conn) Accept(now clock.Time, r *Reply) error {
	if err := checkNumbers(REP, r.QPN, r.PSN, r.Private); err != nil {
		return err
	}
	if r.RNRRetries > 7 || r.AckDelay > 31 {
		return fmt.Errorf("%w: RNR retries %d, acknowledgement delay %d", ErrMessage, r.RNRRetries, r.AckDelay)
	}
	c.m.at = now
	if !c.change(callAccept) {
		return fmt.Errorf("%w: Accept in %v", ErrState, c.state)
	}
	c.localQPN = r.QPN
	c.send(&Message{
		Kind: REP, TID: c.tid, LocalID: c.localID, RemoteID: c.remoteID, CAGUID: c.m.cfg.CAGUID, QPN: r.QPN, PSN: r.PSN,
		ResponderResources: r.ResponderResources, InitiatorDepth: r.InitiatorDepth, FlowControl: r.FlowControl, RNRRetries: r.RNRRetries,
		SRQ: r.SRQ, AckDelay: r.AckDelay, Private: r.Private,
	}, c.repeatEvery, c.maxTries)
	return nil
}

// Ready completes a connection that this side began: its queue pair is ready to send.
func (c *Conn) Ready(now clock.Time, private []byte) error {
	if err := checkPrivate(RTU, private); err != nil {
		return err
	}
	c.m.at = now
	if !c.change(callReady) {
		return fmt.Errorf("%w: Ready in %v", ErrState, c.state)
	}
	c.stop()
	c.m.answer(&c.peer, c.readyToUse(private))
	return nil
}

// Communicated reports that a packet of the peer has come to the queue pair of a connection that the own side has accepted. The peer is
// ready then, and its RTU is late or lost. Opened follows.
func (c *Conn) Communicated(now clock.Time) error {
	c.m.at = now
	if !c.change(callCommunicated) {
		return fmt.Errorf("%w: Communicated in %v", ErrState, c.state)
	}
	c.stop()
	c.m.notify(Opened, c, &Message{Kind: RTU, TID: c.tid, LocalID: c.remoteID, RemoteID: c.localID})
	return nil
}

func (c *Conn) readyToUse(private []byte) *Message {
	return &Message{Kind: RTU, TID: c.tid, LocalID: c.localID, RemoteID: c.remoteID, Private: private}
}

// Reject ends a connection that is not established. No event follows.
func (c *Conn) Reject(now clock.Time, why RejectReason, info, private []byte) error {
	if c.datagram {
		return c.rejectDatagram(now, private)
	}
	if err := checkPrivate(REJ, private); err != nil {
		return err
	}
	if len(info) > maxInfo {
		return fmt.Errorf("%w: %d bytes of information in a rejection, at most %d", ErrMessage, len(info), maxInfo)
	}
	c.m.at = now
	from := c.state
	if !c.change(callReject) {
		return fmt.Errorf("%w: Reject in %v", ErrState, c.state)
	}
	c.m.answer(&c.peer, c.rejection(from, why, info, private))
	return nil
}

// Disconnect ends an established connection. Disconnected follows with the peer's answer, or without one.
func (c *Conn) Disconnect(now clock.Time, private []byte) error {
	if err := checkPrivate(DREQ, private); err != nil {
		return err
	}
	c.m.at = now
	if !c.change(callDisconnect) {
		return fmt.Errorf("%w: Disconnect in %v", ErrState, c.state)
	}
	c.sendDisconnect(private)
	return nil
}

// sendDisconnect sends a DREQ, in a transaction of its own. A peer that is gone is waited for 4 s.
func (c *Conn) sendDisconnect(private []byte) {
	c.send(&Message{
		Kind: DREQ, TID: c.m.cfg.Draw(), LocalID: c.localID, RemoteID: c.remoteID, QPN: c.remoteQPN, Private: private,
	}, Timeout(DefaultTimeout), 7)
}
