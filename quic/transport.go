package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// TransportConfig configures a Transport. The zero value is valid.
type TransportConfig struct {
	// Messages is the capability of the packet conn to send and receive with offloads and ECN; nil is
	// a conn that has none. A *net.UDPConn needs no mention.
	Messages MessageConn

	// IDs chooses connection IDs.
	IDs ConnectionIDs

	// Secret is the input from which the keys of stateless resets, Retry and address validation tokens are derived
	// from: at least 16 bytes. Instances that serve one address share it, so that each accepts the
	// tokens of the others, and one can reset connections of another that has gone. nil is random
	// token keys and no stateless resets.
	Secret []byte
	// TokenAge is the time that a client may use a token of NEW_TOKEN; 0 is 24 h.
	TokenAge time.Duration

	// RetryAbove is the number of handshakes under way from which on clients must prove their address
	// first, by a Retry (RFC 9000 8.1.2); 0 is 128, negative is always.
	RetryAbove int
	// MaxHandshakes bounds the handshakes under way; further ones are refused. 0 is 4096.
	MaxHandshakes int
	// MaxConns bounds the connections that clients have open, handshakes included; further ones are
	// refused. 0 is no bound.
	MaxConns int
	// Refuse decides on handshakes before any of their state exists. validated reports whether the
	// address was proven. nil refuses none.
	Refuse func(remote net.Addr, validated bool) bool

	// HandshakeFailed is called for each handshake of a client that ends before it is complete; those that were refused are not
	// reported. Addresses may be forged: RetryAbove bounds how many. It is called by goroutines of the transport and must not
	// wait. nil is no one.
	HandshakeFailed func(remote net.Addr, cause error)

	// Strip is called for each datagram that arrives, on the goroutine that reads, and returns how many bytes at its begin are not of
	// QUIC, such as a header of the PROXY protocol. Below 0, or with nothing behind them, the datagram is dropped. It keeps nothing of
	// its arguments.
	Strip func(from *net.UDPAddr, datagram []byte) int

	// NoVersionNegotiation drops packets of unknown versions without an answer.
	NoVersionNegotiation bool

	// Qlog receives the events of the transport that belong to no connection; nil is none. It is
	// closed with the transport.
	Qlog io.WriteCloser
}

// Defaults of TransportConfig.
const (
	DefaultRetryAbove    = 128
	DefaultMaxHandshakes = 4096
)

// Transport sends and receives the packets of any number of connections on one packet conn, as client
// and server. All methods may be called by several goroutines at once.
type Transport struct {
	conn      net.PacketConn
	e         *quicgo.Transport
	admission admission
	events    *eventCounter

	mu       sync.Mutex
	conns    map[*Conn]struct{}
	listener *Listener
	empty    chan struct{} // closed when conns becomes empty, where Shutdown waits for it
	closed   bool
}

// NewTransport takes conn: it reads all that arrives there, and Close closes it. After an error conn
// is the caller's.
func NewTransport(conn net.PacketConn, c TransportConfig) (*Transport, error) {
	if err := c.IDs.check(); err != nil {
		return nil, err
	}
	seen, err := wrapPacketConn(conn, c.Messages, c.Strip)
	if err != nil {
		return nil, err
	}
	t := &Transport{conn: conn, conns: map[*Conn]struct{}{}, events: newEventCounter(c.Qlog)}
	t.admission.configure(&c)
	t.e = &quicgo.Transport{
		Conn:                             seen,
		ConnectionIDGenerator:            c.IDs.generator(),
		MaxTokenAge:                      c.TokenAge,
		VerifySourceAddress:              t.admission.needsRetry,
		ConnContext:                      t.admission.admit,
		DisableVersionNegotiationPackets: c.NoVersionNegotiation,
		Tracer:                           t.events,
	}
	if c.Secret != nil {
		if err := setKeys(t.e, c.Secret); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// LocalAddr returns the address of the packet conn.
func (t *Transport) LocalAddr() net.Addr { return t.conn.LocalAddr() }

// Dial opens a connection to addr, a *net.UDPAddr, and returns when the handshake is complete. With
// Config.ZeroRTT and a session to resume it returns earlier, and what is written before the end of
// the handshake is early data. tc must name the application protocols (NextProtos).
func (t *Transport) Dial(ctx context.Context, addr net.Addr, tc *tls.Config, c *Config) (*Conn, error) {
	if err := checkTLS(tc); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if t.isClosed() {
		return nil, ErrTransportClosed
	}
	dial := t.e.Dial
	if c != nil && c.ZeroRTT {
		dial = t.e.DialEarly
	}
	tc, err := c.offering(tc)
	if err != nil {
		return nil, err
	}
	q, err := dial(ctx, addr, tc, c.engine())
	if err != nil {
		t.events.dialErrors.Add(1)
		return nil, convertDial(err)
	}
	t.events.dialed.Add(1)
	return t.add(q, c)
}

// Listen accepts connections. A transport has one listener at a time. tc must have a certificate and
// name the application protocols (NextProtos).
func (t *Transport) Listen(tc *tls.Config, c *Config) (*Listener, error) {
	if err := checkTLS(tc); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrTransportClosed
	}
	if t.listener != nil {
		return nil, ErrListening
	}
	l := &Listener{t: t, config: c}
	tc, err := c.offering(tc)
	if err != nil {
		return nil, err
	}
	if c != nil && c.ZeroRTT {
		l.replay = c.Replay
		if l.replay == nil {
			l.replay = NewStrikeRegister(StrikeConfig{})
		}
		l.q, err = t.e.ListenEarly(l.replay.protect(tc), c.engine())
	} else {
		l.q, err = t.e.Listen(tc, c.engine())
	}
	if err != nil {
		return nil, convert(err)
	}
	t.listener = l
	return l, nil
}

// checkTLS finds mistakes that would otherwise fail every handshake (RFC 9001 8.1).
func checkTLS(tc *tls.Config) error {
	switch {
	case tc == nil:
		return fmt.Errorf("%w: tls.Config is missing", ErrConfig)
	case len(tc.NextProtos) == 0 && tc.GetConfigForClient == nil:
		return fmt.Errorf("%w: tls.Config names no application protocol", ErrConfig)
	}
	return nil
}

// add wraps a connection of a configuration and keeps it until it ends.
func (t *Transport) add(q *quicgo.Conn, cfg *Config) (*Conn, error) {
	c := newConn(q)
	if err := c.repairing(cfg); err != nil {
		_ = q.CloseWithError(0, "")
		return nil, err
	}
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.conns[c] = struct{}{}
	}
	t.mu.Unlock()
	if closed {
		_ = q.CloseWithError(0, "")
		return nil, ErrTransportClosed
	}
	context.AfterFunc(c.ctx, func() { t.remove(c) })
	return c, nil
}

func (t *Transport) remove(c *Conn) {
	t.events.ended(context.Cause(c.ctx))
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
	if len(t.conns) == 0 && t.empty != nil {
		close(t.empty)
		t.empty = nil
	}
}

func (t *Transport) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// Shutdown stops accepting, waits until all connections have ended or ctx does, and closes. It returns
// the cause of ctx if connections were left; they are closed with application error 0 then.
func (t *Transport) Shutdown(ctx context.Context) error {
	if t.isClosed() {
		return ErrTransportClosed
	}
	t.closeListener()
	var err error
	select {
	case <-t.drained():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return errors.Join(err, t.Close())
}

// drained returns a channel that is closed when no connection is left.
func (t *Transport) drained() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.empty == nil {
		t.empty = make(chan struct{})
	}
	empty := t.empty
	if len(t.conns) == 0 {
		close(empty)
		t.empty = nil
	}
	return empty
}

// Close closes all connections with application error 0, and the packet conn. The peers learn it if
// the packets arrive.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrTransportClosed
	}
	t.closed = true
	t.mu.Unlock()
	t.closeListener()
	t.closeConns()
	return errors.Join(convert(t.e.Close()), t.conn.Close())
}

// closeConns sends CONNECTION_CLOSE on all connections, which quic-go does not do by itself.
func (t *Transport) closeConns() {
	t.mu.Lock()
	conns := make([]*Conn, 0, len(t.conns))
	for c := range t.conns {
		conns = append(conns, c)
	}
	t.mu.Unlock()
	var done sync.WaitGroup
	for _, c := range conns {
		done.Go(func() { _ = c.CloseWithError(0, "") })
	}
	done.Wait()
}

func (t *Transport) closeListener() {
	t.mu.Lock()
	l := t.listener
	t.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
}
