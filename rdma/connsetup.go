package rdma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/millrace/millrace/rdma/transport"
)

// ConnConfig describes a Conn. The zero value is good.
type ConnConfig struct {
	Buffers    int // messages that the peer may send ahead of ReadMessage: 2 to 4096; 0 is 64
	BufferSize int // bytes of the longest message: 64 to 16 MiB; 0 is 16 KiB. The smaller one of both sides counts

	// KeepAlive is the time without a message after which an empty one asks whether the peer is still there. One that is not ends the
	// connection with ETIMEDOUT, within KeepAlive and a second. 0 is 15 s; negative is never.
	KeepAlive time.Duration

	SelectiveRepeat bool   // as of QPConfig, where both sides have it
	LineRate        uint64 // as of QPConfig
	Window          uint32 // as of QPConfig
}

// check returns the configuration with defaults.
func (c ConnConfig) check() (ConnConfig, error) {
	if c.Buffers == 0 {
		c.Buffers = 64
	}
	if c.BufferSize == 0 {
		c.BufferSize = 16 << 10
	}
	if c.Window == 0 {
		c.Window = transport.DefaultWindow
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.Buffers < 2 || c.Buffers > 4096 || c.BufferSize < 64 || c.BufferSize > 16<<20 {
		return c, fmt.Errorf("%w: %d buffers of %d bytes, want 2 to 4096 of 64 to 16777216", transport.ErrAttribute, c.Buffers, c.BufferSize)
	}
	return c, nil
}

// A Conn's messages are SENDs with immediate data:
//
//	 31  30           16 15             0
//	+---+---------------+---------------+
//	|FIN|   reserved    |    credits    |
//	+---+---------------+---------------+
//
// credits is the number of receive buffers that the sender of the message has emptied since its last one. A side sends as many messages as it
// has credits, so that no RNR NAK slows it. Messages without payload, which return credits or close, need none: the receiver has
// spare buffers for as many of them as a side sends without acknowledgement.
const (
	immFIN       = 1 << 31
	immCredits   = 1<<16 - 1
	spareBuffers = 4
	mostControls = spareBuffers - 1 // in flight; FIN is one more
)

// hello is the private data by which two Conns agree: magic, version, buffers, window of selective repeat, size.
const (
	helloMagic = "mrdm"
	helloLen   = 14
)

func (c *ConnConfig) hello() []byte {
	b := append([]byte(helloMagic), 0, 1)
	b = binary.BigEndian.AppendUint16(b, uint16(c.Buffers))
	window := uint16(0)
	if c.SelectiveRepeat {
		window = uint16(c.Window)
	}
	b = binary.BigEndian.AppendUint16(b, window)
	return binary.BigEndian.AppendUint32(b, uint32(c.BufferSize))
}

// ErrProtocol is the error of a peer that is no Conn.
var ErrProtocol = errors.New("rdma: the peer has no message connection: it speaks RDMA-CM, and another protocol over it")

// parseHello reads the private data of a peer.
func parseHello(b []byte) (credits int, window uint16, size int, err error) {
	if len(b) < helloLen || string(b[:4]) != helloMagic || b[5] != 1 {
		return 0, 0, 0, ErrProtocol
	}
	be := binary.BigEndian
	credits, window, size = int(be.Uint16(b[6:])), be.Uint16(b[8:]), int(be.Uint32(b[10:]))
	if credits < 2 || credits > 4096 || size < 64 || size > 16<<20 {
		return 0, 0, 0, ErrProtocol
	}
	return credits, window, size, nil
}

// newConn makes the objects of a connection and posts its receives.
func newConn(c *Context, cfg ConnConfig) (*Conn, error) {
	s := &Conn{ctx: c, cfg: cfg, pd: c.AllocPD()}
	s.changed.L = &s.mu
	recvs := cfg.Buffers + spareBuffers
	err := s.make(recvs)
	if err == nil {
		err = s.qp.Modify(Init, Attr{}, netip.Addr{})
	}
	for i := 0; i < recvs && err == nil; i++ {
		err = s.postRecv(uint16(i))
	}
	if err != nil {
		s.release()
		return nil, err
	}
	for i := range cfg.Buffers {
		s.free = append(s.free, uint16(i))
	}
	return s, nil
}

func (s *Conn) make(recvs int) (err error) {
	n := (recvs + s.cfg.Buffers) * s.cfg.BufferSize
	if s.mr, err = s.pd.RegMR(make([]byte, n), LocalWrite); err != nil {
		return err
	}
	s.cq = s.ctx.CreateSink(s.completed)
	s.qp, err = s.pd.CreateQP(QPConfig{
		Service: RC, SendCQ: s.cq, RecvCQ: s.cq, SendDepth: s.cfg.Buffers + spareBuffers, RecvDepth: recvs, Window: s.cfg.Window,
		SelectiveRepeat: s.cfg.SelectiveRepeat, LineRate: s.cfg.LineRate,
	})
	return err
}

// release ends the objects.
func (s *Conn) release() {
	if s.qp != nil {
		_ = s.qp.Destroy()
	}
	if s.mr != nil {
		_ = s.mr.Dereg()
	}
	_ = s.pd.Dealloc()
}

func (s *Conn) postRecv(buffer uint16) error {
	return s.qp.PostRecv(&RecvWR{ID: uint64(buffer), List: []SGE{s.mr.SGE(int(buffer)*s.cfg.BufferSize, s.cfg.BufferSize)}})
}

// sendBuffer returns the place of a send buffer.
func (s *Conn) sendBuffer(i uint16) int {
	return (s.cfg.Buffers + spareBuffers + int(i)) * s.cfg.BufferSize
}

// Dial connects to a Listener.
func Dial(ctx context.Context, c *Context, to netip.AddrPort, cfg ConnConfig) (*Conn, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	s, err := newConn(c, cfg)
	if err != nil {
		return nil, err
	}
	s.local, s.remote = Addr{netip.AddrPortFrom(c.cfg.Addr, 0)}, Addr{to}
	s.id, err = c.ConnectCM(ctx, to, s.qp, ConnParam{Private: cfg.hello(), replied: s.agree})
	if err != nil {
		s.release()
		return nil, err
	}
	s.keepAlive()
	return s, nil
}

// agree takes the peer's values.
func (s *Conn) agree(private []byte, p *peerParam) error {
	credits, window, size, err := parseHello(private)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credits, s.size, p.window = credits, min(size, s.cfg.BufferSize), window
	return nil
}
