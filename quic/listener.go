package quic

import (
	"context"
	"net"

	quicgo "github.com/quic-go/quic-go"
)

// acceptor is quic-go's listener of complete handshakes or of early ones.
type acceptor interface {
	Accept(ctx context.Context) (*quicgo.Conn, error)
	Addr() net.Addr
	Close() error
}

// Listener accepts the connections of a Transport.
type Listener struct {
	t      *Transport
	q      acceptor
	config *Config         // of its connections
	replay *StrikeRegister // with Config.ZeroRTT
}

// Accept returns the next connection. It must be called in a loop: with 32 connections waiting,
// further ones are refused. With Config.ZeroRTT it returns connections before their handshake is
// complete: what their streams bring then may be early data, which an attacker can replay once the
// register has forgotten it, until Conn.HandshakeComplete is closed.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	q, err := l.q.Accept(ctx)
	if err != nil {
		return nil, convert(err)
	}
	c, err := l.t.add(q, l.config)
	if err != nil {
		return nil, ErrListenerClosed
	}
	l.t.events.accepted.Add(1)
	l.t.admission.accepted(c)
	return c, nil
}

// Addr returns the local address.
func (l *Listener) Addr() net.Addr { return l.q.Addr() }

// Replay returns the register of early data, nil without Config.ZeroRTT.
func (l *Listener) Replay() *StrikeRegister { return l.replay }

// Close stops accepting: handshakes under way are refused. Connections work on. The transport may
// listen again.
func (l *Listener) Close() error {
	l.t.mu.Lock()
	if l.t.listener == l {
		l.t.listener = nil
	}
	l.t.mu.Unlock()
	return convert(l.q.Close())
}
