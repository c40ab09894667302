package node

import (
	"errors"
	"fmt"
	"os"

	"github.com/millrace/millrace/internal/controlsocket"
)

// A process that replaces another one has its listening sockets, so that scrapes and commands find one of the two at any time.

// SocketKind is the use of a Socket.
type SocketKind string

// Kinds of sockets. The names are part of the format between processes.
const (
	ControlSocket SocketKind = "control"
	MetricsSocket SocketKind = "metrics"
	PagesSocket   SocketKind = "pages"
)

// Socket is a listening socket of a node.
type Socket struct {
	Kind SocketKind
	At   string // as Config has it
	File *os.File
}

// Sockets returns duplicates of the listening sockets, for Config.Inherited of a node of another process.
func (n *Node) Sockets() (all []Socket, err error) {
	add := func(kind SocketKind, at string, l *controlsocket.Listener) {
		if l == nil || err != nil {
			return
		}
		f, e := l.File()
		if e != nil {
			err = fmt.Errorf("%s socket: %w", kind, e)
			return
		}
		all = append(all, Socket{kind, at, f})
	}
	add(ControlSocket, n.cfg.Control, n.control)
	for _, s := range []*scrapes{&n.scrapes, &n.pages} {
		s.mu.Lock()
		add(s.kind, s.at, s.listener)
		s.mu.Unlock()
	}
	return all, err
}

// OwnSockets makes the sockets of Config.Inherited the process's own: it removes the path of the control socket when it closes.
// Before, the process that has passed them may go on with them.
func (n *Node) OwnSockets() (err error) {
	n.eachListener(func(l *controlsocket.Listener) { err = errors.Join(err, l.Own()) })
	return err
}

// HoldAccept stops accepting at the listening sockets, or goes on.
func (n *Node) HoldAccept(hold bool) {
	n.eachListener(func(l *controlsocket.Listener) { l.Hold(hold) })
}

// LeaveSockets leaves the listening sockets to the process that has got them. Requests under way are answered.
func (n *Node) LeaveSockets() { n.eachListener((*controlsocket.Listener).Leave) }

func (n *Node) eachListener(f func(*controlsocket.Listener)) {
	if n.control != nil {
		f(n.control)
	}
	for _, s := range []*scrapes{&n.scrapes, &n.pages} {
		s.mu.Lock()
		if s.listener != nil {
			f(s.listener)
		}
		s.mu.Unlock()
	}
}

// inherit takes a socket that another process has passed, nil if it has not.
func (n *Node) inherit(kind SocketKind, at string) *os.File {
	for i := range n.cfg.Inherited {
		if s := &n.cfg.Inherited[i]; s.Kind == kind && s.At == at && s.File != nil {
			f := s.File
			s.File = nil
			return f
		}
	}
	return nil
}
