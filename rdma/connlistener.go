package rdma

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/rdma/cm"
)

// Listener accepts Conns; it is a net.Listener.
type Listener struct {
	cfg      ConnConfig
	cm       *CMListener
	cancel   context.CancelFunc
	accepted chan *Conn
	done     chan struct{} // closed when no more comes
}

// mostHandshakes bounds connections that a Listener completes at a time, and acceptTimeout how long each may take.
const (
	mostHandshakes = 64
	acceptTimeout  = 10 * time.Second
)

// Listen listens on a port of RDMA-CM.
func Listen(c *Context, port uint16, cfg ConnConfig) (*Listener, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	l := &Listener{cfg: cfg, accepted: make(chan *Conn), done: make(chan struct{})}
	if l.cm, err = c.ListenCM(port, 0); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go l.run(ctx)
	return l, nil
}

// run answers requests. One that is slow does not hold others up.
func (l *Listener) run(ctx context.Context) {
	var all sync.WaitGroup
	slots := make(chan struct{}, mostHandshakes)
	for {
		r, err := l.cm.GetRequest(ctx)
		if err != nil {
			break
		}
		slots <- struct{}{}
		all.Add(1)
		go func() {
			defer all.Done()
			s := l.handshake(ctx, r)
			<-slots
			if s == nil {
				return
			}
			select {
			case l.accepted <- s:
			case <-ctx.Done():
				_ = s.Close()
			}
		}()
	}
	all.Wait()
	close(l.done)
}

// handshake answers one request; nil is a failure.
func (l *Listener) handshake(ctx context.Context, r *ConnRequest) *Conn {
	s, err := newConn(r.ctx, l.cfg)
	if err != nil {
		_ = r.reject(cm.RejNoResources, nil)
		return nil
	}
	if err := s.agree(r.private, &r.peer); err != nil {
		_ = r.Reject(nil)
		s.release()
		return nil
	}
	s.local, s.remote = Addr{l.cm.Addr()}, Addr{r.remote}
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	if s.id, err = r.Accept(ctx, s.qp, ConnParam{Private: l.cfg.hello()}); err != nil {
		s.release()
		return nil
	}
	s.keepAlive()
	return s
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	s, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// AcceptConn is Accept with the type of the connection.
func (l *Listener) AcceptConn() (*Conn, error) {
	select {
	case s := <-l.accepted:
		return s, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: "rdma", Source: l.Addr(), Err: net.ErrClosed}
	}
}

// Addr returns the address and port.
func (l *Listener) Addr() net.Addr { return Addr{l.cm.Addr()} }

// Close ends the listener. Connections that were accepted stay.
func (l *Listener) Close() error {
	err := l.cm.Close()
	l.cancel()
	<-l.done
	return err
}
