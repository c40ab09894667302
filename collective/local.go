package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// Local connects n ranks within this process. Config's Rank, Size, Address, Key, Rails and Transport are not used.
func Local(ctx context.Context, n int, cfg Config) ([]*Comm, error) {
	network := &memoryNetwork{listeners: map[string]*memoryListener{}}
	comms, errs := make([]*Comm, n), make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			c := cfg
			c.Rank, c.Size, c.Address, c.Transport, c.Rails = r, n, "local:1", network, nil
			comms[r], errs[r] = Connect(ctx, c)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, c := range comms {
			if c != nil {
				c.w.shut()
			}
		}
		return nil, err
	}
	return comms, nil
}

// memoryNetwork is a Transport within a process. Addresses are "local:N".
type memoryNetwork struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
	last      int
}

type memoryListener struct {
	network *memoryNetwork
	address memoryAddr
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

type memoryAddr string

func (memoryAddr) Network() string  { return "local" }
func (a memoryAddr) String() string { return string(a) }

// Listen implements Transport.
func (n *memoryNetwork) Listen(_ context.Context, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if address == "local:0" {
		n.last++
		address = fmt.Sprintf("local:%d", 1000+n.last)
	}
	if n.listeners[address] != nil {
		return nil, fmt.Errorf("%s is in use", address)
	}
	l := &memoryListener{network: n, address: memoryAddr(address), conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// Dial implements Transport.
func (n *memoryNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("nothing listens on %s", address)
	}
	mine, theirs := net.Pipe()
	select {
	case l.conns <- memoryConn{theirs}:
		return memoryConn{mine}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// memoryConn is a net.Pipe with addresses.
type memoryConn struct{ net.Conn }

func (memoryConn) LocalAddr() net.Addr { return memoryAddr("local:0") }

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		delete(l.network.listeners, string(l.address))
		l.network.mu.Unlock()
	})
	return nil
}

func (l *memoryListener) Addr() net.Addr { return l.address }
