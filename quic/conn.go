package quic

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/millrace/millrace/quic/fec"
)

// Conn is a connection. All methods may be called by several goroutines at once.
type Conn struct {
	q   *quicgo.Conn
	ctx context.Context

	repair   *fec.Conn  // of datagrams; nil without Config.DatagramRepair
	scheme   fec.Scheme // that both ends have
	protocol string     // agreed on, without the scheme; only with repair
}

func newConn(q *quicgo.Conn) *Conn {
	return &Conn{q: q, ctx: convertContext(q.Context())}
}

// Context returns a context that ends with the connection. Its cause is the reason.
func (c *Conn) Context() context.Context { return c.ctx }

// LocalAddr returns the local address, a *net.UDPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.q.LocalAddr() }

// RemoteAddr returns the peer's address, which changes when a client migrates.
func (c *Conn) RemoteAddr() net.Addr { return c.q.RemoteAddr() }

// HandshakeComplete returns a channel that is closed when the handshake is complete. Before that, with
// Config.ZeroRTT, a server may be reading replayed data and a client may be writing early data that
// the server rejects.
func (c *Conn) HandshakeComplete() <-chan struct{} { return c.q.HandshakeComplete() }

// Restart waits for the handshake after the server rejected early data (Err0RTTRejected), and makes
// the connection usable again. Streams from before are lost, with what was written to them; their
// errors stay Err0RTTRejected.
func (c *Conn) Restart(ctx context.Context) error {
	_, err := c.q.NextConnection(ctx)
	return convert(err)
}

// OpenStream opens a bidirectional stream, when the peer permits one more. The peer learns of it with
// the first bytes or the end.
func (c *Conn) OpenStream(ctx context.Context) (*Stream, error) {
	return wrapStream(c.q.OpenStreamSync(ctx))
}

// TryOpenStream is OpenStream that does not wait: it may return ErrStreamLimit.
func (c *Conn) TryOpenStream() (*Stream, error) { return wrapStream(c.q.OpenStream()) }

// OpenUniStream opens a unidirectional stream, when the peer permits one more.
func (c *Conn) OpenUniStream(ctx context.Context) (*SendStream, error) {
	return wrapSend(c.q.OpenUniStreamSync(ctx))
}

// TryOpenUniStream is OpenUniStream that does not wait: it may return ErrStreamLimit.
func (c *Conn) TryOpenUniStream() (*SendStream, error) { return wrapSend(c.q.OpenUniStream()) }

// AcceptStream returns the next bidirectional stream of the peer.
func (c *Conn) AcceptStream(ctx context.Context) (*Stream, error) {
	return wrapStream(c.q.AcceptStream(ctx))
}

// AcceptUniStream returns the next unidirectional stream of the peer.
func (c *Conn) AcceptUniStream(ctx context.Context) (*ReceiveStream, error) {
	return wrapReceive(c.q.AcceptUniStream(ctx))
}

// SendDatagram sends b unreliably, in one packet (RFC 9221). It copies b. It blocks while 32 datagrams
// wait for the congestion window. Errors are ErrNoDatagrams and *DatagramTooLargeError.
func (c *Conn) SendDatagram(b []byte) error {
	if !c.datagrams() {
		return ErrNoDatagrams
	}
	if c.repair != nil {
		return c.repair.SendDatagram(b)
	}
	return plainDatagrams{c}.SendDatagram(b)
}

// ReceiveDatagram returns the next datagram, which is the caller's. With Config.DatagramRepair those that were lost and recovered
// come out of order. While the program does not read,
// 128 datagrams wait and further ones are dropped.
func (c *Conn) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	if !c.q.ConnectionState().SupportsDatagrams.Local {
		return nil, ErrNoDatagrams
	}
	if c.repair != nil {
		return c.repair.ReceiveDatagram(ctx)
	}
	return plainDatagrams{c}.ReceiveDatagram(ctx)
}

func (c *Conn) datagrams() bool {
	s := c.q.ConnectionState().SupportsDatagrams
	return s.Local && s.Remote
}

// CloseWithError closes the connection with a code of the application protocol. The peer's calls
// return an *ApplicationError. Data that is under way is lost: close streams and wait for an answer
// first.
func (c *Conn) CloseWithError(code uint64, reason string) error {
	err := c.q.CloseWithError(quicgo.ApplicationErrorCode(code), reason)
	<-c.ctx.Done() // quic-go's context has ended, and ours follows on another goroutine
	return convert(err)
}

// ConnState holds the results of the handshake.
type ConnState struct {
	TLS       tls.ConnectionState
	Version   Version
	Used0RTT  bool // early data was sent and accepted
	Datagrams bool // both ends enabled them
	ResetAt   bool // both ends enabled it
	GSO       bool // segmentation is left to the packet conn

	DatagramRepair fec.Scheme // that both ends have, fec.None without
}

// State returns what is known; Version, Datagrams and ResetAt are final when the handshake is complete.
func (c *Conn) State() ConnState {
	s := c.q.ConnectionState()
	if c.repair != nil {
		s.TLS.NegotiatedProtocol = c.protocol
	}
	return ConnState{
		DatagramRepair: c.scheme,
		TLS:            s.TLS, Version: Version(s.Version), Used0RTT: s.Used0RTT,
		Datagrams: s.SupportsDatagrams.Local && s.SupportsDatagrams.Remote, GSO: s.GSO,
		ResetAt: s.SupportsStreamResetPartialDelivery.Local && s.SupportsStreamResetPartialDelivery.Remote,
	}
}

// ConnStats are counters and estimates of a connection. Bytes are those of UDP payloads.
type ConnStats struct {
	MinRTT, LatestRTT, SmoothedRTT, RTTVariation time.Duration // RFC 9002 5
	CongestionWindow                             uint64        // bytes
	BytesSent, PacketsSent                       uint64        // retransmissions included
	BytesReceived, PacketsReceived               uint64
	BytesLost, PacketsLost                       uint64 // declared lost; fewer again when some were only late
}

// Stats returns the counters.
func (c *Conn) Stats() ConnStats {
	s := c.q.ConnectionStats()
	return ConnStats{
		MinRTT: s.MinRTT, LatestRTT: s.LatestRTT, SmoothedRTT: s.SmoothedRTT, RTTVariation: s.MeanDeviation,
		CongestionWindow: s.CongestionWindow,
		BytesSent:        s.BytesSent, PacketsSent: s.PacketsSent,
		BytesReceived: s.BytesReceived, PacketsReceived: s.PacketsReceived,
		BytesLost: s.BytesLost, PacketsLost: s.PacketsLost,
	}
}
