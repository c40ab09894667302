package quic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	quicgo "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"

	"github.com/millrace/millrace/quic/fec"
)

// Config configures the connections of a listener, or one that is dialed. The zero value is valid,
// and so is nil.
type Config struct {
	// Versions are offered or accepted, the preferred one first; nil is version 1, then 2.
	Versions []Version

	// HandshakeTimeout bounds the time between two packets of a handshake; the whole may take twice
	// that. 0 is 5 s.
	HandshakeTimeout time.Duration
	// IdleTimeout ends a connection from whose peer nothing comes (RFC 9000 10.1). The smaller value
	// of both ends holds. 0 is 30 s.
	IdleTimeout time.Duration
	// KeepAlive is the longest time without a packet, after which a PING is sent; 0 is none.
	KeepAlive time.Duration

	// MaxStreams and MaxUniStreams bound the streams that the peer has open at a time; 0 is 100,
	// negative is none.
	MaxStreams, MaxUniStreams int64
	// StreamWindow and ConnWindow are the first flow control windows, in bytes; 0 is 512 KiB and
	// 768 KiB. They grow to MaxStreamWindow and MaxConnWindow while the program reads as fast as data
	// comes; 0 is 6 MiB and 15 MiB. A peer can make a connection hold MaxConnWindow of unread data.
	StreamWindow, ConnWindow, MaxStreamWindow, MaxConnWindow uint64

	// PacketSize is the size of UDP payloads before path MTU discovery, and the least that the path
	// must carry: 1200 to 1452 bytes. 0 is 1280, or 1200 where the first write of that size fails.
	PacketSize uint16
	// NoPathMTUDiscovery keeps to PacketSize (RFC 8899).
	NoPathMTUDiscovery bool

	// Datagrams enables datagrams (RFC 9221).
	Datagrams bool
	// DatagramRepair sends datagrams with forward error correction where the peer agrees, so that a
	// lost one is recovered without a round trip. It is experimental, costs fec.Overhead bytes of each
	// datagram and a repair symbol for several, and is agreed on by the application protocol: each of
	// NextProtos is offered with the scheme and without. nil is none. It needs Datagrams, and excludes
	// ZeroRTT, whose datagrams may leave before the agreement.
	DatagramRepair *fec.Config

	// ResetAt enables resets that leave the bytes before a stream's reliable boundary to be delivered
	// (draft-ietf-quic-reliable-stream-reset).
	ResetAt bool

	// ZeroRTT permits early data (RFC 9001 4.6). At a client, Dial returns before the handshake is
	// complete if it has a session to resume. At a server, Accept does, and each ticket is good for
	// early data once (see StrikeRegister).
	ZeroRTT bool
	// Replay remembers the tickets of early data, at a server; nil is a register of the listener.
	// Listeners of one process that share ticket keys must share it.
	Replay *StrikeRegister

	// Tokens keeps the server's tokens of address validation at a client (RFC 9000 8.1.3); nil keeps
	// none.
	Tokens *TokenCache

	// Qlog opens the qlog of a connection, nil is none. id is the client's first destination
	// connection ID. It may return nil for no log. The writer is closed after the connection.
	Qlog func(client bool, id []byte) io.WriteCloser
}

// limits of Config.PacketSize: RFC 9000 14 and the largest packet that the engine reads.
const (
	minPacketSize = 1200
	maxPacketSize = 1452
)

// ErrConfig is in errors about values that Config or TransportConfig do not permit.
var ErrConfig = errors.New("quic: configuration")

// engine returns the configuration of quic-go.
func (c *Config) engine() *quicgo.Config {
	if c == nil {
		c = &Config{}
	}
	e := &quicgo.Config{
		HandshakeIdleTimeout:           c.HandshakeTimeout,
		MaxIdleTimeout:                 c.IdleTimeout,
		KeepAlivePeriod:                c.KeepAlive,
		MaxIncomingStreams:             c.MaxStreams,
		MaxIncomingUniStreams:          c.MaxUniStreams,
		InitialStreamReceiveWindow:     c.StreamWindow,
		InitialConnectionReceiveWindow: c.ConnWindow,
		MaxStreamReceiveWindow:         c.MaxStreamWindow,
		MaxConnectionReceiveWindow:     c.MaxConnWindow,
		InitialPacketSize:              c.PacketSize,
		DisablePathMTUDiscovery:        c.NoPathMTUDiscovery,
		EnableDatagrams:                c.Datagrams,

		EnableStreamResetPartialDelivery: c.ResetAt,
		Allow0RTT:                        c.ZeroRTT,
	}
	for _, v := range c.Versions {
		e.Versions = append(e.Versions, quicgo.Version(v))
	}
	if c.Tokens != nil {
		e.TokenStore = c.Tokens.store
	}
	if c.Qlog != nil {
		e.Tracer = c.trace
	}
	return e
}

func (c *Config) check() error {
	if c == nil {
		return nil
	}
	if c.PacketSize != 0 && (c.PacketSize < minPacketSize || c.PacketSize > maxPacketSize) {
		return fmt.Errorf("%w: PacketSize is %d, not 0 or %d to %d", ErrConfig, c.PacketSize, minPacketSize, maxPacketSize)
	}
	switch {
	case c.DatagramRepair == nil:
	case !c.Datagrams:
		return fmt.Errorf("%w: DatagramRepair needs Datagrams", ErrConfig)
	case c.ZeroRTT:
		return fmt.Errorf("%w: DatagramRepair and ZeroRTT exclude each other", ErrConfig)
	default:
		if _, err := fec.NewEncoder(*c.DatagramRepair); err != nil {
			return fmt.Errorf("%w: DatagramRepair: %w", ErrConfig, err)
		}
	}
	for _, v := range c.Versions {
		if v != Version1 && v != Version2 {
			return fmt.Errorf("%w: unknown version %v", ErrConfig, v)
		}
	}
	return nil
}

// trace opens a connection's qlog.
func (c *Config) trace(_ context.Context, client bool, id quicgo.ConnectionID) qlogwriter.Trace {
	w := c.Qlog(client, id.Bytes())
	if w == nil {
		return nil
	}
	seq := qlogwriter.NewConnectionFileSeq(w, client, id)
	go seq.Run()
	return seq
}

// TokenCache keeps tokens by which a client proves its address to a server that it has seen before.
// It may be shared by transports.
type TokenCache struct{ store quicgo.TokenStore }

// NewTokenCache returns a cache of tokens of that many servers, a few of each. The one that was used
// longest ago makes room.
func NewTokenCache(servers, each int) *TokenCache {
	return &TokenCache{quicgo.NewLRUTokenStore(servers, each)}
}
