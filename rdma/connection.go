package rdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/millrace/millrace/rdma/cm"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/wire"
)

// Errors of connections.
var (
	ErrUnreachable = errors.New("rdma: the peer does not answer: check that a program listens there and that UDP port 4791 passes")
	ErrAddrInUse   = errors.New("rdma: the port has a listener: choose another")
	ErrNotAnswered = errors.New("rdma: the connection request has ended already")
)

// RejectedError is the error of a connection that the peer refused.
type RejectedError struct {
	Reason  cm.RejectReason
	Private []byte // of the program that refused; all bytes that the message has room for
}

// Error implements error.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("rdma: the peer refused the connection: %v (reason %d)", e.Reason, uint16(e.Reason))
}

// ConnParam holds what both sides of a connection set. The zero value is good.
type ConnParam struct {
	MTU      uint32 // of the side that connects; 0 is the largest that the devices carry
	Access   Access // what the peer may do; 0 is all that regions permit
	MaxReads uint8  // READs and atomics outstanding, each way; the smaller number of both sides counts. 0 is 16
	Private  []byte // reaches the other program: at most 56 bytes of ConnectCM, and 196 of Accept

	// replied reads the private data of the reply before the queue pair is connected, and completes the peer's values. An error ends the
	// attempt.
	replied func(private []byte, p *peerParam) error
}

func (p *ConnParam) reads() uint8 {
	if p.MaxReads == 0 {
		return 16
	}
	return min(p.MaxReads, 128)
}

// CMID is a connection that RDMA-CM made for a queue pair (rdma_cm_id of librdmacm). When either side ends it, the queue pair changes to
// Error and all that is posted is flushed.
type CMID struct {
	ctx     *Context
	qp      *QP
	conn    *cm.Conn // guarded by the loop's lock
	path    *path    // that an own request goes; nil for others
	remote  netip.AddrPort
	private []byte

	peer   peerParam
	result chan error    // of capacity 1: the end of the exchange
	done   chan struct{} // closed when the connection is over
	once   sync.Once
}

// peerParam holds the values of the peer's REQ or REP.
type peerParam struct {
	qpn, psn, mtu               uint32
	resources, depth            uint8
	ackTimeout, retries, rnrTry uint8
	unreliable                  bool   // REQ for UC
	window                      uint16 // of selective repeat, agreed on by a Conn; 0 is none
}

// Remote returns the address of the peer, and its port: the listener's where this side connected, and what RDMA-CM calls the source port where
// the peer did.
func (id *CMID) Remote() netip.AddrPort { return id.remote }

// Private returns the private data of the peer's request or reply, with zeros to the end of the message's room.
func (id *CMID) Private() []byte { return id.private }

// QP returns the queue pair.
func (id *CMID) QP() *QP { return id.qp }

// Done returns a channel that is closed when the connection is over.
func (id *CMID) Done() <-chan struct{} { return id.done }

// Disconnect ends the connection. The queue pair is in Error when it returns. It does not wait for the peer's answer.
func (id *CMID) Disconnect() error {
	c := id.ctx
	now := c.lock.Enter()
	err := id.conn.Disconnect(now, nil)
	id.end()
	c.lock.Exit()
	if errors.Is(err, cm.ErrState) {
		err = nil // the peer was first
	}
	return err
}

// end leads the queue pair to Error, by the holder of the loop's lock.
func (id *CMID) end() {
	id.once.Do(func() {
		close(id.done)
		if q := id.qp; !q.closed {
			_ = q.qp.Modify(transport.Error, Attr{}, wire.Addr{}) // is permitted in every state
			q.reported = true                                     // Done reports it
			id.ctx.makeReady(q)
		}
		if id.path != nil {
			go id.ctx.closePath(id.path) // takes the lock that is held
		}
	})
}

// finish ends the exchange. Later results of it are lost.
func (id *CMID) finish(err error) {
	select {
	case id.result <- err:
	default:
	}
}

// connectionEvent is the Notify of the manager, by the holder of the loop's lock.
func (c *Context) connectionEvent(e cm.Event) {
	switch owner := e.Conn.Data.(type) {
	case nil:
		if e.Kind == cm.Requested {
			c.requested(e)
		}
	case ConnectionHandler:
		owner.ConnectionEvent(e)
	case *ConnRequest: // the program has not accepted it yet
		owner.gone = true
	case *CMID:
		owner.event(e)
	}
}

// requested passes on a request to its listener.
func (c *Context) requested(e cm.Event) {
	switch l := e.Conn.Listener().Data.(type) {
	case *CMListener:
		l.add(e)
	case ConnectionHandler:
		l.ConnectionEvent(e)
	}
}

func (id *CMID) event(e cm.Event) {
	switch e.Kind {
	case cm.Replied:
		id.private = append([]byte(nil), e.Message.Private...)
		id.peer = paramOf(e.Message)
		id.finish(nil)
	case cm.Opened:
		id.finish(nil)
	case cm.Rejected:
		id.finish(&RejectedError{Reason: e.Message.Reason, Private: append([]byte(nil), e.Message.Private...)})
		id.end()
	case cm.Unreachable:
		id.finish(fmt.Errorf("%w (%v)", ErrUnreachable, id.remote))
		id.end()
	case cm.Disconnected:
		id.finish(fmt.Errorf("%w: it ended the connection", ErrUnreachable))
		id.end()
	}
}

// paramOf returns the values of a REQ or REP.
func paramOf(m *cm.Message) peerParam {
	return peerParam{
		qpn: m.QPN, psn: m.PSN, mtu: cm.MTUBytes(m.MTU), resources: m.ResponderResources, depth: m.InitiatorDepth,
		ackTimeout: m.Path.AckTimeout, retries: m.Retries, rnrTry: m.RNRRetries, unreliable: m.Transport == 1,
	}
}

// Values of own requests, as of ConnectConfig.
const (
	ackTimeout = 14 // 67 ms
	retries    = 7
	rnrTimer   = 12 // 0.64 ms
)

// establish leads the queue pair to ReadyToSend towards the peer. Each side chooses the number of the first packet that it receives; psn is the
// own choice. It is called without the loop's lock.
func (id *CMID) establish(psn, mtu uint32, p *ConnParam) error {
	access := p.Access
	if access == 0 {
		access = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic
	}
	a := Attr{
		MTU: mtu, DestQP: id.peer.qpn, RecvPSN: psn, Access: access, MaxDestReads: min(id.peer.depth, p.reads()), RNRTimer: rnrTimer,
		SendPSN: id.peer.psn, MaxReads: min(id.peer.resources, p.reads()), Timeout: ackTimeout, Retries: retries, RNRRetries: 7,
	}
	if id.qp.cfg.SelectiveRepeat && id.peer.window > 0 {
		a.SelectiveRepeat, a.Window = true, uint32(id.peer.window)
	}
	for _, s := range []State{Init, ReadyToReceive, ReadyToSend} {
		if err := id.qp.Modify(s, a, id.remote.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for the end of the exchange. When ctx ends first, the connection is given up.
func (id *CMID) wait(ctx context.Context) error {
	select {
	case err := <-id.result:
		return err
	case <-ctx.Done():
		id.giveUp(cm.RejTimeout)
		return fmt.Errorf("%w: %w", ErrUnreachable, ctx.Err())
	}
}

// giveUp ends a connection that is not established.
func (id *CMID) giveUp(why cm.RejectReason) {
	c := id.ctx
	now := c.lock.Enter()
	defer c.lock.Exit()
	if id.conn != nil && id.conn.Reject(now, why, nil, nil) != nil {
		_ = id.conn.Disconnect(now, nil) // it is established, or over
	}
	id.end()
}

// checkQP returns an error where RDMA-CM cannot connect a queue pair.
func (c *Context) checkQP(qp *QP) error {
	if qp == nil || qp.ctx != c || qp.cfg.Service != RC && qp.cfg.Service != UC {
		return fmt.Errorf("%w: a queue pair of RC or UC of the context is required", transport.ErrAttribute)
	}
	return nil
}

// privateRoom is the room of a REQ for the program's private data, in bytes: RDMA-CM takes the rest.
var privateRoom = cm.REQ.PrivateLen() - cm.IPHeaderLen

// ConnectCM connects a queue pair in Reset or Init to a listener of RDMA-CM (rdma_connect). It returns when both sides are in
// ReadyToSend. Receives that the peer's first messages need are posted before.
func (c *Context) ConnectCM(ctx context.Context, to netip.AddrPort, qp *QP, p ConnParam) (*CMID, error) {
	if err := c.checkQP(qp); err != nil {
		return nil, err
	}
	if len(p.Private) > privateRoom {
		return nil, fmt.Errorf("%w: %d bytes of private data, a request has room for %d", transport.ErrAttribute, len(p.Private), privateRoom)
	}
	if p.MTU == 0 {
		p.MTU = c.MaxMTU()
	}
	way, err := c.openPath(to.Addr())
	if err != nil {
		return nil, err
	}
	id := &CMID{ctx: c, qp: qp, path: way, remote: to, result: make(chan error, 1), done: make(chan struct{})}
	if err = c.waitPath(ctx, way); err == nil {
		err = id.connect(ctx, p)
	}
	if err != nil {
		id.giveUp(cm.RejConsumer)
		return nil, err
	}
	return id, nil
}

func (id *CMID) connect(ctx context.Context, p ConnParam) error {
	psn := random() & roce.Mask24
	if err := id.begin(psn, &p); err != nil {
		return err
	}
	if err := id.wait(ctx); err != nil {
		return err
	}
	if p.replied != nil {
		if err := p.replied(id.private, &id.peer); err != nil {
			return err
		}
	}
	if err := id.establish(psn, p.MTU, &p); err != nil {
		return err
	}
	now := id.ctx.lock.Enter()
	defer id.ctx.lock.Exit()
	if err := id.conn.Ready(now, nil); err != nil {
		return fmt.Errorf("%w: the peer ended it: %w", ErrUnreachable, err)
	}
	return nil
}

// begin sends the request.
func (id *CMID) begin(psn uint32, p *ConnParam) (err error) {
	c, to := id.ctx, wire.AddrFrom(id.remote.Addr())
	now := c.lock.Enter()
	defer c.lock.Exit()
	if id.qp.closed {
		return ErrClosed
	}
	transportType := uint8(0)
	if id.qp.cfg.Service == UC {
		transportType = 1
	}
	// The source port distinguishes nothing here. Linux refuses none but 0.
	header := cm.IPHeader{Src: c.addr, Dst: to, SrcPort: uint16(random()) | 0x8000}
	id.conn, err = c.gsi.manager.Connect(now, cm.Peer{Addr: to}, &cm.Request{
		Service: cm.ServiceID(cm.SpaceTCP, id.remote.Port()), QPN: id.qp.QPN(), PSN: psn, Transport: transportType, MTU: p.MTU,
		ResponderResources: p.reads(), InitiatorDepth: p.reads(), Retries: retries, RNRRetries: 7, AckTimeout: ackTimeout, FlowControl: id.qp.cfg.SRQ == nil,
		SRQ: id.qp.cfg.SRQ != nil, TrafficClass: c.cfg.TOS, Private: append(header.Append(nil), p.Private...),
	})
	if err == nil {
		id.conn.Data = id
	}
	return err
}
