package netpeer

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/socket"
	mtls "github.com/millrace/millrace/tls"
)

// TLSConfigs returns configurations of a server, with a certificate of its own (ECDSA on P-256), and of a client that
// accepts it. All else is crypto/tls's default: TLS 1.3, X25519MLKEM768, AES-128-GCM on CPUs that have AES.
func TLSConfigs() (server, client *tls.Config) {
	cert, _ := testcert.SelfSigned("bench.example")
	return &tls.Config{Certificates: []tls.Certificate{cert}}, &tls.Config{InsecureSkipVerify: true}
}

// tlsNet is a stack whose connections speak TLS by crypto/tls.
type tlsNet struct {
	Net
	server, client *tls.Config
}

// TLS returns n with connections of crypto/tls.
func TLS(n Net) Net {
	s, c := TLSConfigs()
	return &tlsNet{n, s, c}
}

func (t *tlsNet) Listen(port uint16) (net.Listener, error) {
	l, err := t.Net.Listen(port)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l, t.server), nil
}

func (t *tlsNet) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	conn, err := t.Net.Dial(ctx, to)
	if err != nil {
		return nil, err
	}
	c := tls.Client(conn, t.client)
	if err := c.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// ServeEngines offers the services of SinkPort and SourcePort by engines on the loops of Millrace, without a goroutine.
func ServeEngines(n Net, all *Counters) error {
	m, ok := n.(*millrace)
	if !ok {
		return errors.New("only millrace has callbacks")
	}
	config, _ := TLSConfigs()
	for _, port := range []uint16{SinkPort, SourcePort} {
		l, err := m.Listen(port)
		if err != nil {
			return err
		}
		l.(*socket.Listener).OnAccept(func(in socket.LoopConn) {
			count := all.of(m, in.Conn())
			count.Conns.Add(1)
			s := &engineService{Engine: mtls.NewServerEngine(config, mtls.EngineOptions{}), count: count}
			if port == SourcePort {
				s.source = make([]byte, chunk)
			}
			in.OnReady(s.ready)
		})
	}
	return nil
}

// engineService is one connection of ServeEngines.
type engineService struct {
	*mtls.Engine
	count  *LoopCounters
	source []byte   // what it sends without end, nil for a sink
	free   [][]byte // buffers that records are made in; the connection holds the others
	made   int      // buffers
	unsent []byte   // records that found no room
}

const (
	engineBuffer  = 33 << 10 // two records
	engineBuffers = 64
)

// ready moves what can be moved: it is called by the loop.
func (s *engineService) ready(in socket.LoopConn, ev socket.Events) {
	if err := s.receive(in); err != nil || ev&socket.Closed != 0 {
		s.Close()
		_ = in.Close()
		return
	}
	s.send(in)
}

// receive decrypts in the receive buffer.
func (s *engineService) receive(in socket.LoopConn) error {
	for {
		p := in.Peek()[0]
		if len(p) == 0 {
			return nil
		}
		ev, n, err := s.Next(p)
		s.count.Bytes.Add(uint64(len(ev.Data)))
		in.Discard(n)
		if err != nil {
			return err
		}
	}
}

// send makes records in buffers that the connection sends from.
func (s *engineService) send(in socket.LoopConn) {
	for {
		if s.unsent == nil {
			b := s.buffer()
			if b == nil {
				_, _ = in.WriteZeroCopy(nil, nil) // asks for an event
				return
			}
			var data []byte
			if s.Handshaken() {
				data = s.source
			}
			out, n, err := s.Seal(b, data)
			if err != nil || len(out) == 0 {
				s.free = append(s.free, b)
				return
			}
			s.count.Bytes.Add(uint64(n))
			s.unsent = out
		}
		b := s.unsent
		ok, err := in.WriteZeroCopy(b, func() { s.free = append(s.free, b[:0]) })
		if !ok || err != nil {
			return
		}
		s.unsent = nil
	}
}

func (s *engineService) buffer() []byte {
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b
	}
	if s.made == engineBuffers {
		return nil
	}
	s.made++
	return make([]byte, 0, engineBuffer)
}
