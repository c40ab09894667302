package quic

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	quicgo "github.com/quic-go/quic-go"
)

// admission bounds the handshakes and connections of a transport. A client's first packet costs the
// server a connection and its keys, so that a flood of them from forged addresses must meet a bound
// (RFC 9000 21.2).
type admission struct {
	retryAbove, maxHandshakes, maxConns int64
	refuse                              func(remote net.Addr, validated bool) bool
	failed                              func(remote net.Addr, cause error)

	handshakes atomic.Int64 // under way
	conns      atomic.Int64 // of clients, handshakes included
	retries    atomic.Uint64
	refused    atomic.Uint64
}

// errRefused makes quic-go answer with CONNECTION_REFUSED.
var errRefused = errors.New("quic: refused")

func (a *admission) configure(c *TransportConfig) {
	a.retryAbove, a.maxHandshakes, a.maxConns = int64(c.RetryAbove), int64(c.MaxHandshakes), int64(c.MaxConns)
	if a.retryAbove == 0 {
		a.retryAbove = DefaultRetryAbove
	}
	if a.maxHandshakes <= 0 {
		a.maxHandshakes = DefaultMaxHandshakes
	}
	a.refuse, a.failed = c.Refuse, c.HandshakeFailed
}

// needsRetry reports whether a client without a valid token must first prove its address.
func (a *admission) needsRetry(net.Addr) bool {
	if a.handshakes.Load() < a.retryAbove {
		return false
	}
	a.retries.Add(1)
	return true
}

// handshake is one that is under way. Its context ends with the connection.
type handshake struct {
	a        *admission
	once     sync.Once
	attached atomic.Pointer[any] // by Attach
}

// handshakeKey finds the handshake in the context of its connection.
type handshakeKey struct{}

// end counts the handshake as over, and reports whether it was under way.
func (h *handshake) end() (now bool) {
	h.once.Do(func() {
		h.a.handshakes.Add(-1)
		now = true
	})
	return now
}

// ended is called at the end of the connection. An error of the application comes after the handshake only (RFC 9000 10.2.3): its
// connection was complete, and the program has not accepted it yet.
func (h *handshake) ended(remote net.Addr, cause error) {
	var app *ApplicationError
	if h.end() && h.a.failed != nil && !errors.As(cause, &app) {
		h.a.failed(remote, cause)
	}
}

// admit is called for the first packet of each connection. ctx ends with the connection.
func (a *admission) admit(ctx context.Context, info *quicgo.ClientInfo) (context.Context, error) {
	if a.refuse != nil && a.refuse(info.RemoteAddr, info.AddrVerified) {
		a.refused.Add(1)
		return nil, errRefused
	}
	if a.handshakes.Add(1) > a.maxHandshakes {
		a.handshakes.Add(-1)
		a.refused.Add(1)
		return nil, errRefused
	}
	if n := a.conns.Add(1); a.maxConns > 0 && n > a.maxConns {
		a.handshakes.Add(-1)
		a.conns.Add(-1)
		a.refused.Add(1)
		return nil, errRefused
	}
	h := &handshake{a: a}
	context.AfterFunc(ctx, func() {
		h.ended(info.RemoteAddr, convert(context.Cause(ctx)))
		a.conns.Add(-1)
	})
	return context.WithValue(ctx, handshakeKey{}, h), nil
}

// accepted ends the handshake of a connection that the program has, once it is complete.
func (a *admission) accepted(c *Conn) {
	h, ok := c.q.Context().Value(handshakeKey{}).(*handshake)
	if !ok {
		return
	}
	select {
	case <-c.q.HandshakeComplete():
		h.end()
		return
	default:
	}
	go func() {
		select {
		case <-c.q.HandshakeComplete():
			h.end()
		case <-c.q.Context().Done(): // admit has a function for that
		}
	}()
}
