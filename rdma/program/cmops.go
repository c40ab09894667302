package program

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/rdma/cm"
	"github.com/millrace/millrace/wire"
)

// Values of connections.
const (
	mostReads        = 16 // READs and atomics of a queue pair
	cmAckTimeout     = 14 // 67 ms
	cmMostAckTimeout = 20 // 4.3 s
	cmRNRTimer       = 12 // 0.64 ms
	cmMostTimeout    = time.Minute
)

// manage does a request of the connection manager. The holder of the loop calls the handlers but for those that hold it
// themselves.
func (p *program) manage(q *cmRequest, r *cmReply) (fds []int, err error) {
	switch op(q.op) {
	case cmCreateChannel:
		return p.cmCreateChannel(r)
	case cmResolve:
		return nil, p.cmResolve(q)
	case cmDestroyID:
		return nil, p.cmDestroyID(q, r)
	}
	return nil, p.s.cfg.Context.CM(func(now clock.Time, m *cm.Manager) error {
		switch op(q.op) {
		case cmDestroyChannel:
			return p.cmDestroyChannel(q)
		case cmGetEvent:
			return p.cmGetEvent(q, r)
		case cmCreateID:
			return p.cmCreateID(q, r)
		}
		o, ok := p.ids.get(q.object)
		if !ok {
			return syscall.EINVAL
		}
		return cmHandlers[op(q.op)](o, now, m, q, r)
	})
}

// cmHandlers do the operations on an identifier.
var cmHandlers = map[op]func(o *cmID, now clock.Time, m *cm.Manager, q *cmRequest, r *cmReply) error{
	cmMigrate: (*cmID).migrate, cmBind: (*cmID).bind, cmResolveRoute: (*cmID).resolveRoute, cmListen: (*cmID).listen, cmConnect: (*cmID).connect,
	cmAccept: (*cmID).accept, cmEstablish: (*cmID).establish, cmReject: (*cmID).reject, cmDisconnect: (*cmID).disconnect,
	cmNotify: (*cmID).notify, cmSetOption: (*cmID).setOption, cmAttr: (*cmID).attr,
}

func (p *program) cmCreateChannel(r *cmReply) ([]int, error) {
	read, write, err := pipe()
	if err != nil {
		return nil, err
	}
	err = p.s.cfg.Context.CM(func(clock.Time, *cm.Manager) error {
		if p.eventChannels.full() {
			return syscall.ENOMEM
		}
		r.object, _ = p.eventChannels.add(&eventChannel{fd: write})
		return nil
	})
	if err != nil {
		closeAll([]int{read, write})
		return nil, err
	}
	return []int{read}, nil
}

func (p *program) cmDestroyChannel(q *cmRequest) error {
	c, ok := p.eventChannels.get(q.channel)
	switch {
	case !ok:
		return syscall.EINVAL
	case c.uses > 0:
		return syscall.EBUSY
	}
	unix.Close(c.fd)
	p.eventChannels.remove(q.channel)
	return nil
}

func (p *program) cmGetEvent(q *cmRequest, r *cmReply) error {
	c, ok := p.eventChannels.get(q.channel)
	if !ok {
		return syscall.EINVAL
	}
	r.object, r.listener = none, none
	e := c.take()
	if e == nil {
		return nil
	}
	r.object, r.kind, r.status, r.connection = e.id.number, e.kind, e.status, e.peer
	if e.listener != nil {
		r.listener = e.listener.number
	}
	e.id.describe(r)
	return nil
}

func (p *program) cmCreateID(q *cmRequest, r *cmReply) error {
	c, ok := p.eventChannels.get(q.channel)
	space, known := spaces[q.space]
	switch {
	case !ok || space == cm.SpaceTCP && q.service != 2 && q.service != 3:
		return syscall.EINVAL
	case !known:
		return syscall.EPROTONOSUPPORT
	}
	o, err := p.newID(c, space)
	if err != nil {
		return err
	}
	r.object = o.number
	if q.service == 3 {
		o.transport = 1
	}
	return nil
}

func (p *program) cmDestroyID(q *cmRequest, r *cmReply) error {
	var route *rdma.Route
	err := p.s.cfg.Context.CM(func(now clock.Time, _ *cm.Manager) error {
		o, ok := p.ids.get(q.object)
		if !ok {
			return syscall.EINVAL
		}
		var removed int
		removed, route = o.drop(now)
		r.removed, r.reported = uint32(removed), uint32(o.reported)
		return nil
	})
	if route != nil {
		route.Close()
	}
	return err
}

// migrate moves an identifier and its events to another channel.
func (o *cmID) migrate(_ clock.Time, _ *cm.Manager, q *cmRequest, r *cmReply) error {
	to, ok := o.p.eventChannels.get(q.channel)
	if !ok {
		return syscall.EINVAL
	}
	if to == o.channel {
		return nil
	}
	list := o.channel.withdraw(func(e *cmEvent) bool { return e.id == o && e.listener == nil || e.listener == o })
	for _, e := range list {
		if e.listener == o { // and the request's own identifier
			e.id.channel.uses--
			e.id.channel = to
			to.uses++
		}
	}
	o.channel.uses--
	o.channel = to
	to.uses++
	to.queue = append(to.queue, list...)
	to.wake(len(list))
	r.removed = uint32(len(list))
	return nil
}

// isOwn reports whether an address means the context's: itself, and those that mean this host.
func (p *program) isOwn(e *endpoint) bool {
	a := wire.Addr(e.addr).Netip()
	return e.any != 0 || a == p.s.cfg.Context.Addr() || a.IsLoopback() || a.IsUnspecified()
}

// take binds an identifier to a port of the context's address.
func (o *cmID) take(e *endpoint) error {
	p := o.p
	switch {
	case !p.isOwn(e):
		return syscall.EADDRNOTAVAIL
	case e.port != 0 && e.port < 1024 && p.cred.Uid != 0:
		return syscall.EACCES
	}
	port, err := p.s.ports.bind(o.space, e.port, o.reuse)
	if err != nil {
		return err
	}
	o.local, o.bound = netip.AddrPortFrom(p.s.cfg.Context.Addr(), port), true
	return nil
}

// bind binds an identifier.
func (o *cmID) bind(_ clock.Time, _ *cm.Manager, q *cmRequest, r *cmReply) error {
	if idTransitions[o.state][idBind] == idStates {
		return syscall.EINVAL
	}
	if err := o.take(&q.local); err != nil {
		return err
	}
	o.describe(r)
	return o.change(idBind)
}

// cmResolve begins to look for the link address of the peer.
func (p *program) cmResolve(q *cmRequest) error {
	peer := wire.Addr(q.remote.addr).Netip()
	if p.isOwn(&q.remote) {
		peer = p.s.cfg.Context.Addr()
	}
	var o *cmID
	err := p.s.cfg.Context.CM(func(clock.Time, *cm.Manager) error {
		var ok bool
		if o, ok = p.ids.get(q.object); !ok || idTransitions[o.state][idResolve] == idStates || o.pending >= mostPending {
			return syscall.EINVAL
		}
		if !o.bound {
			if err := o.take(&q.local); err != nil {
				return err
			}
		}
		o.remote = netip.AddrPortFrom(peer, q.remote.port)
		return o.change(idResolve)
	})
	if err != nil {
		return err
	}
	timeout := min(time.Duration(q.timeout)*time.Millisecond, cmMostTimeout)
	p.work.Go(func() { o.resolve(peer, timeout) })
	return nil
}

// resolve looks for the link address of the peer, and reports the result.
func (o *cmID) resolve(peer netip.Addr, timeout time.Duration) {
	p := o.p
	ctx, cancel := context.WithTimeout(p.ends, timeout)
	defer cancel()
	route, err := p.s.cfg.Context.OpenRoute(ctx, peer)
	_ = p.s.cfg.Context.CM(func(clock.Time, *cm.Manager) error {
		switch {
		case o.state != idResolving: // it has been destroyed
		case err != nil:
			_ = o.change(idNotFound)
			o.post(cmEvent{kind: cmEventAddrError, status: addressError(err)})
		default:
			_ = o.change(idFound)
			o.route, route = route, nil
			o.mtu = p.mtu
			o.post(cmEvent{kind: cmEventAddrResolved})
		}
		return nil
	})
	if route != nil {
		route.Close()
	}
}

// addressError is the status of an event for a route that cannot be opened.
func addressError(err error) int32 {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return -int32(syscall.ETIMEDOUT)
	case errors.Is(err, rdma.ErrPath):
		return -int32(syscall.ENETUNREACH)
	}
	return -int32(syscall.ENODEV)
}

// resolveRoute reports the route: in Ethernet it is that of the address.
func (o *cmID) resolveRoute(clock.Time, *cm.Manager, *cmRequest, *cmReply) error {
	if err := o.change(idRoute); err != nil {
		return err
	}
	o.post(cmEvent{kind: cmEventRouteResolved})
	return nil
}

func (o *cmID) listen(_ clock.Time, m *cm.Manager, q *cmRequest, r *cmReply) error {
	if idTransitions[o.state][idListen] == idStates {
		return syscall.EINVAL
	}
	if !o.bound {
		if err := o.take(&endpoint{any: 1}); err != nil {
			return err
		}
	}
	backlog := int(q.backlog)
	if backlog == 0 || backlog > mostBacklog {
		backlog = mostBacklog
	}
	l, err := m.Listen(cm.ServiceID(o.space, o.local.Port()), backlog, o)
	if err != nil {
		return syscall.EADDRINUSE
	}
	o.listener = l
	o.describe(r)
	return o.change(idListen)
}

// checkQP returns an error for a queue pair that no program of the user has.
func (p *program) checkQP(number uint32) error {
	if _, ok := p.byQPN[number]; ok || p.s.hasQP(p.cred.Uid, number) {
		return nil
	}
	return syscall.EINVAL
}

// param takes the parameters of the program for its side.
func (o *cmID) param(q *connection) {
	o.resources, o.depth = min(q.resources, mostReads), min(q.depth, mostReads)
}

func (o *cmID) connect(now clock.Time, m *cm.Manager, q *cmRequest, _ *cmReply) error {
	if o.state != idRouted {
		return syscall.EINVAL
	}
	c := &q.connection
	if o.space == cm.SpaceTCP {
		if err := o.p.checkQP(c.qpn); err != nil {
			return err
		}
	}
	header := cm.IPHeader{Src: wire.AddrFrom(o.local.Addr()), Dst: wire.AddrFrom(o.remote.Addr()), SrcPort: o.local.Port()}
	private := append(header.Append(nil), c.private[:c.privateLen]...)
	o.param(c)
	o.retries, o.rnr = c.retries&7, c.rnrRetries&7
	if o.space == cm.SpaceUDP {
		return o.begun(m.Resolve(now, cm.Peer{Addr: header.Dst}, cm.ServiceID(o.space, o.remote.Port()), private))
	}
	return o.begun(m.Connect(now, cm.Peer{Addr: header.Dst}, &cm.Request{
		Service: cm.ServiceID(o.space, o.remote.Port()), QPN: c.qpn, PSN: o.psn, Transport: o.transport, MTU: o.mtu, ResponderResources: o.resources,
		InitiatorDepth: o.depth, Retries: o.retries, RNRRetries: o.rnr, AckTimeout: o.ackTimeout, FlowControl: c.flowControl != 0, SRQ: c.srq != 0, TrafficClass: o.tos,
		Private: private,
	}))
}

// begun takes the connection that connect has begun.
func (o *cmID) begun(conn *cm.Conn, err error) error {
	if err != nil {
		return cmError(err)
	}
	o.conn = conn
	conn.Data = o
	return o.change(idConnect)
}

// cmError maps an error of the manager.
func cmError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cm.ErrFull):
		return syscall.ENOMEM
	}
	return syscall.EINVAL
}

// accept answers the request of a peer.
func (o *cmID) accept(now clock.Time, _ *cm.Manager, q *cmRequest, _ *cmReply) error {
	if o.conn == nil || o.conn.Active() {
		return syscall.EINVAL
	}
	c := &q.connection
	if err := o.p.checkQP(c.qpn); err != nil {
		return err
	}
	if o.conn.Datagram() {
		return cmError(o.conn.Answer(now, cm.SIDRValid, c.qpn, c.qkey, c.private[:c.privateLen]))
	}
	o.param(c)
	return cmError(o.conn.Accept(now, &cm.Reply{
		QPN: c.qpn, PSN: o.psn, ResponderResources: o.resources, InitiatorDepth: o.depth, RNRRetries: c.rnrRetries & 7,
		FlowControl: c.flowControl != 0, SRQ: c.srq != 0, Private: c.private[:c.privateLen],
	}))
}

// establish completes a connection that this side began: its queue pair is ready to send.
func (o *cmID) establish(now clock.Time, _ *cm.Manager, _ *cmRequest, _ *cmReply) error {
	if o.conn == nil {
		return syscall.EINVAL
	}
	return cmError(o.conn.Ready(now, nil))
}

func (o *cmID) reject(now clock.Time, _ *cm.Manager, q *cmRequest, _ *cmReply) error {
	if o.conn == nil {
		return syscall.EINVAL
	}
	why := cm.RejConsumer
	if q.reason != 0 {
		why = cm.RejectReason(q.reason)
	}
	return cmError(o.conn.Reject(now, why, nil, q.connection.private[:q.connection.privateLen]))
}

// disconnect ends a connection. It succeeds where the peer was first.
func (o *cmID) disconnect(now clock.Time, _ *cm.Manager, _ *cmRequest, _ *cmReply) error {
	if o.conn == nil {
		return syscall.EINVAL
	}
	if !o.conn.Datagram() {
		_ = o.conn.Disconnect(now, nil)
	}
	return nil
}

// notify takes that a packet of the peer has come: its confirmation is late, or lost.
func (o *cmID) notify(now clock.Time, _ *cm.Manager, _ *cmRequest, _ *cmReply) error {
	if o.conn == nil {
		return syscall.EINVAL
	}
	return cmError(o.conn.Communicated(now))
}

// Options of an identifier (RDMA_OPTION_ID_...).
const (
	optionTOS = iota
	optionReuse
	_ // an IPv6 address takes IPv6 alone: an address of the device has one version
	optionAckTimeout
)

func (o *cmID) setOption(_ clock.Time, _ *cm.Manager, q *cmRequest, _ *cmReply) error {
	switch q.option {
	case optionTOS:
		o.tos = uint8(q.value)
	case optionReuse:
		if o.state != idIdle {
			return syscall.EINVAL
		}
		o.reuse = q.value != 0
	case optionAckTimeout:
		if q.value > 31 {
			return syscall.EINVAL
		}
		o.ackTimeout = uint8(q.value)
	default:
		return syscall.ENOSYS
	}
	return nil
}

// attr returns the attributes of the queue pair.
func (o *cmID) attr(_ clock.Time, _ *cm.Manager, _ *cmRequest, r *cmReply) error {
	o.describe(r)
	r.connection = o.peer
	return nil
}

// remoteWrite and the others are verbs' access flags.
const remoteWrite, remoteRead, remoteAtomic = 2, 4, 8

// describe fills in what is known of an identifier.
func (o *cmID) describe(r *cmReply) {
	r.mtu, r.recvPSN, r.sendPSN, r.destQP = o.mtu, o.psn, o.peerPSN, o.peer.qpn
	r.maxDestRead, r.maxRead = o.resources, o.depth
	r.timeout, r.retries, r.rnrRetries, r.rnrTimer, r.tos = o.ackTimeout, o.retries, o.rnr, cmRNRTimer, o.tos
	if o.conn != nil || o.known {
		r.access = remoteWrite
		if o.resources > 0 {
			r.access |= remoteRead | remoteAtomic
		}
	}
	if o.known {
		r.known = 1
	}
	set := func(e *endpoint, a netip.AddrPort) {
		if e.any = 1; a.IsValid() {
			e.addr, e.port, e.any = wire.AddrFrom(a.Addr()), a.Port(), 0
		}
	}
	set(&r.local, o.local)
	set(&r.remote, o.remote)
}
