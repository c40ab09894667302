package rdma

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/millrace/millrace/rdma/cm"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
)

// CMListener takes connection requests for a port of RDMA-CM (rdma_listen). Ports of RDMA-CM are apart from those of TCP.
type CMListener struct {
	ctx    *Context
	port   uint16
	cm     *cm.Listener
	closed chan struct{}

	// Guarded by the loop's lock.
	queue []*ConnRequest
	wake  chan struct{} // of capacity 1: queue has grown
	ended bool
}

// ConnRequest is a request of a peer. The program answers it by Accept or Reject.
type ConnRequest struct {
	ctx     *Context
	conn    *cm.Conn
	gone    bool // the peer gave up, or the request is answered; guarded by the loop's lock
	remote  netip.AddrPort
	private []byte
	peer    peerParam
}

// ListenCM listens on a port. At most backlog requests wait for GetRequest; 0 is 128. Later ones are dropped and the peers repeat them.
func (c *Context) ListenCM(port uint16, backlog int) (*CMListener, error) {
	if port == 0 {
		return nil, fmt.Errorf("%w: port 0", transport.ErrAttribute)
	}
	if backlog == 0 {
		backlog = 128
	}
	l := &CMListener{ctx: c, port: port, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	c.lock.Enter()
	defer c.lock.ExitUnchanged()
	var err error
	if l.cm, err = c.gsi.manager.Listen(cm.ServiceID(cm.SpaceTCP, port), backlog, l); err != nil {
		return nil, fmt.Errorf("%w: port %d: %w", ErrAddrInUse, port, err)
	}
	return l, nil
}

// Addr returns the address and port.
func (l *CMListener) Addr() netip.AddrPort { return netip.AddrPortFrom(l.ctx.cfg.Addr, l.port) }

// add queues a request, by the holder of the loop's lock.
func (l *CMListener) add(e cm.Event) {
	m := e.Message
	r := &ConnRequest{ctx: l.ctx, conn: e.Conn, peer: paramOf(m)}
	header, private, ok := cm.ParseIPHeader(m.Private)
	// The header names what the program connected to; answers go where the datagram came from. RoCE has no routing of its own that
	// makes them differ.
	if !ok || header.Src != e.Conn.Peer().Addr {
		_ = e.Conn.Reject(l.ctx.gsi.at, cm.RejUnsupported, nil, nil)
		return
	}
	r.remote = netip.AddrPortFrom(header.Src.Netip(), header.SrcPort)
	r.private = append([]byte(nil), private...)
	e.Conn.Data = r
	l.queue = append(l.queue, r)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// GetRequest waits for the next request (rdma_get_request).
func (l *CMListener) GetRequest(ctx context.Context) (*ConnRequest, error) {
	for {
		if r, err := l.take(); r != nil || err != nil {
			return r, err
		}
		select {
		case <-l.wake:
		case <-l.closed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take returns the oldest request whose peer still waits; nil is none.
func (l *CMListener) take() (*ConnRequest, error) {
	l.ctx.lock.Enter()
	defer l.ctx.lock.ExitUnchanged()
	for len(l.queue) > 0 {
		r := l.queue[0]
		l.queue = l.queue[1:]
		if !r.gone {
			return r, nil
		}
	}
	if l.ended {
		return nil, ErrClosed
	}
	return nil, nil
}

// Close ends the listener. Requests that wait are refused.
func (l *CMListener) Close() error {
	c := l.ctx
	now := c.lock.Enter()
	defer c.lock.Exit()
	if l.ended {
		return ErrClosed
	}
	l.ended = true
	close(l.closed)
	l.cm.Close()
	for _, r := range l.queue {
		r.gone = true
		_ = r.conn.Reject(now, cm.RejInvalidServiceID, nil, nil) // fails where the peer gave up
	}
	l.queue = nil
	return nil
}

// Remote returns the address of the peer, and the port that RDMA-CM calls its source port.
func (r *ConnRequest) Remote() netip.AddrPort { return r.remote }

// Private returns the private data of the request, with zeros to the end of the message's room.
func (r *ConnRequest) Private() []byte { return r.private }

// Reject refuses the request, with private data of at most 148 bytes (rdma_reject).
func (r *ConnRequest) Reject(private []byte) error { return r.reject(cm.RejConsumer, private) }

func (r *ConnRequest) reject(why cm.RejectReason, private []byte) error {
	now := r.ctx.lock.Enter()
	defer r.ctx.lock.Exit()
	if r.gone {
		return ErrNotAnswered
	}
	r.gone = true
	return r.conn.Reject(now, why, nil, private)
}

// Accept connects a queue pair in Reset or Init to the peer's (rdma_accept). It returns when the peer has confirmed. Receives that the
// peer's first messages need are posted before.
func (r *ConnRequest) Accept(ctx context.Context, qp *QP, p ConnParam) (*CMID, error) {
	c := r.ctx
	if err := c.checkQP(qp); err != nil {
		return nil, err
	}
	if r.peer.unreliable != (qp.cfg.Service == UC) {
		return nil, fmt.Errorf("%w: the peer's queue pair has another service", transport.ErrAttribute)
	}
	if r.peer.mtu > c.MaxMTU() {
		_ = r.reject(cm.RejInvalidMTU, nil)
		return nil, fmt.Errorf("%w: the peer's MTU is %d, and the devices carry %d", transport.ErrAttribute, r.peer.mtu, c.MaxMTU())
	}
	id := &CMID{ctx: c, qp: qp, conn: r.conn, remote: r.remote, private: r.private, peer: r.peer, result: make(chan error, 1), done: make(chan struct{})}
	c.lock.Enter()
	if r.gone {
		c.lock.ExitUnchanged()
		return nil, ErrNotAnswered
	}
	r.gone = true
	r.conn.Data = id
	c.lock.ExitUnchanged()
	if err := r.accept(ctx, id, &p); err != nil {
		id.giveUp(cm.RejNoResources)
		return nil, err
	}
	return id, nil
}

func (r *ConnRequest) accept(ctx context.Context, id *CMID, p *ConnParam) error {
	psn := random() & roce.Mask24
	// As RDMA-CM does: the peer's first message may come before its RTU.
	if err := id.establish(psn, r.peer.mtu, p); err != nil {
		return err
	}
	c := r.ctx
	now := c.lock.Enter()
	err := r.conn.Accept(now, &cm.Reply{
		QPN: id.qp.QPN(), PSN: psn, ResponderResources: min(r.peer.depth, p.reads()), InitiatorDepth: min(r.peer.resources, p.reads()), RNRRetries: 7,
		FlowControl: id.qp.cfg.SRQ == nil, SRQ: id.qp.cfg.SRQ != nil, Private: p.Private,
	})
	c.lock.Exit()
	if err != nil {
		return err
	}
	return id.wait(ctx)
}
