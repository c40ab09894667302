package program

import (
	"math/rand/v2"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/rdma/cm"
	"github.com/millrace/millrace/rdma/roce"
)

// Limits of one program. With these no pipe of events is ever full: it has space for 65536 bytes, of which each event is one.
const (
	mostIDs           = 4096
	mostEventChannels = 1024
	mostPending       = 8 // events of one identifier
	mostBacklog       = 1024
)

// eventChannel is a channel of events. They wait here; its pipe has a byte for each.
type eventChannel struct {
	fd    int // that is written to
	queue []*cmEvent
	uses  int
}

// cmEvent is an event that waits.
type cmEvent struct {
	id       *cmID
	listener *cmID // of cmEventRequest
	kind     uint32
	status   int32
	peer     connection
}

// idState is the state of an identifier up to its connection; from then on the state is the connection's.
type idState uint8

const (
	idIdle       idState = iota
	idBound              // it has a port
	idResolving          // the link address of the peer is looked for
	idResolved           // the peer's address is known,
	idRouted             // and the route
	idListening          //
	idConnection         // it has, or had, a connection
	idStates
)

// idEvent is an input of the state machine.
type idEvent uint8

const (
	idBind idEvent = iota
	idResolve
	idFound
	idNotFound
	idRoute
	idListen
	idConnect // or a request of a peer
	idEvents
)

// idTransitions holds the next state by state and event; idStates is an event that the state does not take.
var idTransitions = [idStates][idEvents]idState{
	idIdle:       {idBound, idResolving, idStates, idStates, idStates, idListening, idConnection},
	idBound:      {idStates, idResolving, idStates, idStates, idStates, idListening, idStates},
	idResolving:  {idStates, idStates, idResolved, idBound, idStates, idStates, idStates},
	idResolved:   {idStates, idStates, idStates, idStates, idRouted, idStates, idStates},
	idRouted:     {idStates, idStates, idStates, idStates, idStates, idStates, idConnection},
	idListening:  {idStates, idStates, idStates, idStates, idStates, idStates, idStates},
	idConnection: {idStates, idStates, idStates, idStates, idStates, idStates, idStates},
}

// cmID is a communication identifier (rdma_cm_id). The holder of the loop owns it.
type cmID struct {
	p         *program
	number    uint32
	space     uint8
	transport uint8 // of a REQ: 0 RC, 1 UC
	state     idState
	channel   *eventChannel

	pending  int // events that wait
	reported int // events that the program has got
	waiting  int // of a listener: requests that the program has not got

	reuse         bool
	tos           uint8
	ackTimeout    uint8
	local, remote netip.AddrPort
	bound         bool // it holds the port of local
	route         *rdma.Route
	listener      *cm.Listener
	conn          *cm.Conn

	psn       uint32 // of the first packet that comes
	mtu       uint32
	peer      connection
	peerPSN   uint32
	known     bool  // peer and peerPSN are
	resources uint8 // as agreed on
	depth     uint8
	retries   uint8
	rnr       uint8
}

// change takes an event, and is the only writer of the state.
func (o *cmID) change(e idEvent) error {
	to := idTransitions[o.state][e]
	if to == idStates {
		return syscall.EINVAL
	}
	o.state = to
	return nil
}

// newID adds an identifier.
func (p *program) newID(ch *eventChannel, space uint8) (*cmID, error) {
	if p.ids.full() {
		return nil, syscall.ENOMEM
	}
	o := &cmID{p: p, channel: ch, space: space, ackTimeout: cmAckTimeout, psn: rand.Uint32() & roce.Mask24}
	o.number, _ = p.ids.add(o)
	ch.uses++
	return o, nil
}

// post adds an event of an identifier to its channel.
func (o *cmID) post(e cmEvent) {
	e.id = o
	ch := o.channel
	o.pending++
	ch.queue = append(ch.queue, &e)
	ch.wake(1)
}

// wake makes the channel's descriptor readable for n more events.
func (c *eventChannel) wake(n int) {
	_, _ = unix.Write(c.fd, make([]byte, n))
}

// take removes the oldest event, nil where there is none.
func (c *eventChannel) take() *cmEvent {
	if len(c.queue) == 0 {
		return nil
	}
	e := c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	e.id.pending--
	if e.listener != nil {
		e.listener.waiting--
		e.listener.reported++
	} else {
		e.id.reported++
	}
	return e
}

// withdraw removes the events for which of is true, and returns them.
func (c *eventChannel) withdraw(of func(e *cmEvent) bool) (list []*cmEvent) {
	rest := c.queue[:0]
	for _, e := range c.queue {
		if of(e) {
			list = append(list, e)
		} else {
			rest = append(rest, e)
		}
	}
	clear(c.queue[len(rest):])
	c.queue = rest
	return list
}

// drop ends an identifier. It returns the number of events that are not reported any more, and a route that the caller closes without
// the loop.
func (o *cmID) drop(now clock.Time) (removed int, route *rdma.Route) {
	if o.listener != nil {
		o.listener.Close()
	}
	if c := o.conn; c != nil {
		c.Data = nil
		if c.Reject(now, cm.RejConsumer, nil, nil) != nil {
			_ = c.Disconnect(now, nil) // or it is over
		}
	}
	for _, e := range o.channel.withdraw(func(e *cmEvent) bool { return e.id == o || e.listener == o }) {
		removed++
		if e.id != o { // a request that no one will see: its identifier ends, too
			more, _ := e.id.drop(now)
			removed += more
		}
	}
	if o.bound {
		o.p.s.ports.release(o.space, o.local.Port())
	}
	o.channel.uses--
	route, o.route = o.route, nil
	o.state = idStates // a resolution that runs finds that it came too late
	o.p.ids.remove(o.number)
	return removed, route
}

// releaseIDs ends all identifiers of a program.
func (p *program) releaseIDs() {
	p.cancel()
	var routes []*rdma.Route
	_ = p.s.cfg.Context.CM(func(now clock.Time, _ *cm.Manager) error {
		for _, e := range p.ids.all() {
			if _, ok := p.ids.get(e.number); !ok { // it was a request that waited for a listener
				continue
			}
			if _, route := e.v.drop(now); route != nil {
				routes = append(routes, route)
			}
		}
		for _, e := range p.eventChannels.all() {
			unix.Close(e.v.fd)
			p.eventChannels.remove(e.number)
		}
		return nil
	})
	for _, r := range routes {
		r.Close()
	}
	p.work.Wait()
}

// connectionOf returns what a message says, from the receiver's side: what the sender has outstanding the receiver answers.
func connectionOf(m *cm.Message, private []byte) (c connection) {
	c = connection{qpn: m.QPN, qkey: m.QKey, resources: m.InitiatorDepth, depth: m.ResponderResources, retries: m.Retries, rnrRetries: m.RNRRetries}
	if m.FlowControl {
		c.flowControl = 1
	}
	if m.SRQ {
		c.srq = 1
	}
	c.privateLen = uint16(copy(c.private[:], private))
	return c
}

// ConnectionEvent implements rdma.ConnectionHandler.
func (o *cmID) ConnectionEvent(e cm.Event) {
	switch e.Kind {
	case cm.Requested:
		o.requested(e)
	case cm.Replied:
		if e.Conn.Datagram() {
			o.resolved(e.Message)
			return
		}
		o.peer, o.peerPSN, o.known = connectionOf(e.Message, e.Message.Private), e.Message.PSN, true
		o.param(&o.peer)
		o.post(cmEvent{kind: cmEventResponse, peer: o.peer})
	case cm.Opened:
		o.post(cmEvent{kind: cmEventEstablished, peer: connectionOf(e.Message, e.Message.Private)})
	case cm.Rejected:
		o.post(cmEvent{kind: cmEventRejected, status: int32(e.Message.Reason), peer: connectionOf(e.Message, e.Message.Private)})
	case cm.Unreachable:
		kind := uint32(cmEventUnreachable)
		if o.known && o.conn.Active() || !o.conn.Active() {
			kind = cmEventConnectError
		}
		o.post(cmEvent{kind: kind, status: -int32(syscall.ETIMEDOUT)})
	case cm.Disconnected:
		o.post(cmEvent{kind: cmEventDisconnected})
	case cm.Released:
		o.post(cmEvent{kind: cmEventTimeWaitExit})
	}
}

// resolved takes the answer to a request for datagrams.
func (o *cmID) resolved(m *cm.Message) {
	if m.Status != uint8(cm.SIDRValid) {
		o.post(cmEvent{kind: cmEventUnreachable, status: int32(m.Status)})
		return
	}
	o.peer, o.known = connectionOf(m, m.Private), true
	o.post(cmEvent{kind: cmEventEstablished, peer: o.peer})
}

// requested takes a request of a peer: it gets an identifier of its own.
func (o *cmID) requested(e cm.Event) {
	p, m := o.p, e.Message
	now := e.Conn.Now()
	header, private, ok := cm.ParseIPHeader(m.Private)
	if !ok || header.Src != e.Conn.Peer().Addr {
		_ = e.Conn.Reject(now, cm.RejUnsupported, nil, nil)
		return
	}
	if !e.Conn.Datagram() && cm.MTUBytes(m.MTU) > p.mtu {
		_ = e.Conn.Reject(now, cm.RejInvalidMTU, nil, nil)
		return
	}
	n, err := p.newID(o.channel, o.space)
	if err != nil || o.waiting >= mostBacklog {
		if err == nil {
			_, _ = n.drop(now)
		}
		_ = e.Conn.Reject(now, cm.RejNoResources, nil, nil)
		return
	}
	_ = n.change(idConnect)
	n.conn, n.local = e.Conn, o.local
	n.remote = netip.AddrPortFrom(header.Src.Netip(), header.SrcPort)
	n.peer, n.peerPSN, n.known, n.mtu = connectionOf(m, private), m.PSN, true, p.mtu
	if !e.Conn.Datagram() {
		n.mtu = cm.MTUBytes(m.MTU)
	}
	n.param(&n.peer)
	n.ackTimeout = min(max(n.ackTimeout, m.Path.AckTimeout), cmMostAckTimeout)
	n.retries, n.rnr, n.tos, n.transport = m.Retries, m.RNRRetries, m.Path.TrafficClass, m.Transport
	e.Conn.Data = n
	o.waiting++
	n.post(cmEvent{kind: cmEventRequest, listener: o, peer: n.peer})
}
