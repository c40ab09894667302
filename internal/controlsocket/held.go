package controlsocket

import (
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Listener is a listening socket that may stop accepting for a time, and that another process may have as well.
type Listener struct {
	inner heldListener

	mu      sync.Mutex
	changed *sync.Cond // on mu: the state has changed
	state   listenerState
}

// heldListener are the parts of *net.TCPListener and *net.UnixListener that Listener uses.
type heldListener interface {
	net.Listener
	SetDeadline(time.Time) error
	File() (*os.File, error)
}

type listenerState uint8

const (
	listens listenerState = iota
	held                  // connections wait in the kernel
	left                  // the socket is another process's
	closed
)

// NewListener returns a Listener over a TCP or unix socket.
func NewListener(l net.Listener) (*Listener, error) {
	inner, ok := l.(heldListener)
	if !ok {
		return nil, fmt.Errorf("%T cannot be passed to another process", l)
	}
	h := &Listener{inner: inner}
	h.changed = sync.NewCond(&h.mu)
	return h, nil
}

// FileListener returns a Listener over the socket of a file, which it closes. Until Own, Close leaves a path to the process that the
// socket comes from.
func FileListener(f *os.File) (*Listener, error) {
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return NewListener(l)
}

// Own makes a socket of FileListener this process's own: Close removes its path, and its peer credentials, by which clients know the
// process that serves them, become those of this process.
func (l *Listener) Own() error {
	u, ok := l.inner.(*net.UnixListener)
	if !ok {
		return nil
	}
	u.SetUnlinkOnClose(true)
	return listenAgain(u)
}

// Accept implements net.Listener. It waits while accepting is held.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		if !l.ready() {
			return nil, net.ErrClosed
		}
		c, err := l.inner.Accept()
		if err == nil || l.is(listens) {
			return c, err
		}
	}
}

// ready waits until it may accept. False is that the listener was closed.
func (l *Listener) ready() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.state == held || l.state == left {
		l.changed.Wait()
	}
	return l.state == listens
}

func (l *Listener) is(s listenerState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == s
}

// Hold stops accepting, or goes on. Connections wait meanwhile.
func (l *Listener) Hold(hold bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case hold && l.state == listens:
		l.state = held
		_ = l.inner.SetDeadline(time.Unix(1, 0)) // ends an Accept under way
	case !hold && l.state == held:
		_ = l.inner.SetDeadline(time.Time{})
		l.state = listens
		l.changed.Broadcast()
	}
}

// File returns a duplicate of the socket, for another process.
func (l *Listener) File() (*os.File, error) { return l.inner.File() }

// Leave leaves the socket to another process: it closes this one's, and a path stays. Accept waits from then on, so that answers
// under way are sent, until Close.
func (l *Listener) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == closed || l.state == left {
		return
	}
	l.state = left
	if u, ok := l.inner.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	_ = l.inner.Close()
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.state
	l.state = closed
	l.changed.Broadcast()
	if was == left {
		return nil
	}
	return l.inner.Close()
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }
