package virtio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio/vhostuser"
)

// Backend is the device that a virtual machine connects to. It serves one front end at a time, and the next one when that has
// gone; without one its queues return pmd.ErrDown.
type Backend struct {
	Queues []*BackendQueue // in the order of Config.Pools; each belongs to one loop

	cfg     Config
	offload atomic.Bool // pass large packets whole
	link    link
}

// OpenBackend opens the socket, and serves front ends from then on. It borrows the pools until Close.
func OpenBackend(cfg Config) (*Backend, error) {
	if err := cfg.check(); err != nil {
		return nil, cfg.fail("open", 0, err, "")
	}
	b := &Backend{cfg: cfg}
	for i, pool := range cfg.Pools {
		q, err := newBackendQueue(b, i, pool)
		if err != nil {
			return nil, errors.Join(cfg.fail("open", i, err, ""), b.closeQueues())
		}
		b.Queues = append(b.Queues, q)
	}
	if err := b.link.open(&b.cfg, b.serve); err != nil {
		return nil, errors.Join(err, b.closeQueues())
	}
	return b, nil
}

// serve speaks with one front end until it goes.
func (b *Backend) serve(conn *vhostuser.Conn) error {
	s := newSession(b, conn)
	err := s.run()
	s.end(err)
	return err
}

// SetOffload makes the device pass large packets whole, and packets with incomplete checksums as they are (packet.FlagOffload), or
// segment and complete them, as it does at first. Any goroutine may call it.
func (b *Backend) SetOffload(on bool) error {
	b.offload.Store(on)
	return nil
}

// Close ends the connection and closes the queues, so their loops must not run.
func (b *Backend) Close() error {
	err := b.link.close(false)
	return errors.Join(err, b.closeQueues())
}

func (b *Backend) closeQueues() error {
	var errs []error
	for _, q := range b.Queues {
		errs = append(errs, q.Close())
	}
	return errors.Join(errs...)
}

// link connects a device with the other end, again and again, and knows why there is none.
type link struct {
	cfg      *Config
	serve    func(*vhostuser.Conn) error
	listener *net.UnixListener
	cancel   context.CancelFunc
	done     chan struct{}

	mu   sync.Mutex
	conn *vhostuser.Conn // nil between two
	why  atomic.Pointer[error]
}

// Intervals between attempts to connect.
const (
	connectFirst = 20 * time.Millisecond
	connectMost  = time.Second
)

// open listens, and starts the goroutine that serves.
func (l *link) open(cfg *Config, serve func(*vhostuser.Conn) error) error {
	l.cfg, l.serve, l.done = cfg, serve, make(chan struct{})
	l.lost(errors.New("no other end has connected yet"))
	if cfg.Server {
		if err := l.listen(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go l.run(ctx)
	return nil
}

// listen makes the socket. A stale socket of a process that was killed is removed.
func (l *link) listen() (err error) {
	addr := &net.UnixAddr{Name: l.cfg.Path, Net: "unix"}
	l.listener, err = net.ListenUnix("unix", addr)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l.explain(err)
	}
	probe, busy := net.DialUnix("unix", nil, addr)
	if busy == nil {
		_ = probe.Close()
		return l.cfg.fail("listen", 0, fmt.Errorf("%w: another process listens there", pmd.ErrBusy), "stop it, or take another path")
	}
	if st, err := os.Lstat(l.cfg.Path); err != nil || st.Mode()&os.ModeSocket == 0 {
		return l.cfg.fail("listen", 0, fmt.Errorf("%s is there and is no socket", l.cfg.Path), "take another path")
	}
	if err := os.Remove(l.cfg.Path); err != nil {
		return l.explain(err)
	}
	l.listener, err = net.ListenUnix("unix", addr)
	return l.explain(err)
}

func (l *link) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission):
		return l.cfg.fail("listen", 0, fmt.Errorf("%w: %w", pmd.ErrPermission, err), "")
	}
	return l.cfg.fail("listen", 0, err, "the folder of the socket has to exist")
}

// run connects and serves until the context ends.
func (l *link) run(ctx context.Context) {
	defer close(l.done)
	for wait := connectFirst; ctx.Err() == nil; {
		sock, err := l.connect()
		if err == nil {
			wait = connectFirst
			err = l.with(ctx, vhostuser.NewConn(sock))
		}
		if ctx.Err() != nil {
			return
		}
		l.lost(err)
		if l.cfg.Server && !errors.Is(err, net.ErrClosed) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(2*wait, connectMost)
		}
	}
}

func (l *link) connect() (*net.UnixConn, error) {
	if l.cfg.Server {
		return l.listener.AcceptUnix()
	}
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: l.cfg.Path, Net: "unix"})
}

// with serves one connection, which close and hangUp end.
func (l *link) with(ctx context.Context, conn *vhostuser.Conn) error {
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
	var err error
	if ctx.Err() == nil { // else close may have missed it
		err = l.serve(conn)
	}
	l.mu.Lock()
	l.conn = nil
	l.mu.Unlock()
	_ = conn.Close()
	if err == nil || errors.Is(err, io.EOF) {
		err = errors.New("the other end has disconnected")
	}
	return err
}

// hangUp ends the connection because of err, which stays the reason. A loop may call it.
func (l *link) hangUp(err error) {
	l.lost(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// lost notes why there is no connection. What a loop found out is more than that the socket is closed.
func (l *link) lost(err error) {
	if errors.Is(err, net.ErrClosed) {
		return
	}
	l.why.Store(&err)
}

// down returns the error of a queue without the other end.
func (l *link) down() error {
	return fmt.Errorf("%w: %w", pmd.ErrDown, *l.why.Load())
}

// close ends the goroutine and removes the socket. With goodbye the connection is only interrupted, and serve ends it in bounded time.
func (l *link) close(goodbye bool) error {
	if l.cancel == nil {
		return nil
	}
	l.cancel()
	l.mu.Lock()
	switch {
	case l.conn == nil:
	case goodbye:
		_ = l.conn.SetDeadline(time.Unix(1, 0))
	default:
		_ = l.conn.Close()
	}
	l.mu.Unlock()
	var err error
	if l.listener != nil {
		if err = l.listener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
	}
	<-l.done
	return err
}
