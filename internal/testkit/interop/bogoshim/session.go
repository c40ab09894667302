package main

import (
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/millrace/millrace/socket"
	mtls "github.com/millrace/millrace/tls"
)

// session is a TLS connection to the runner.
type session interface {
	io.ReadWriter
	ConnectionState() tls.ConnectionState
	// shutdown ends the sending side and reads until the runner ends its own, so that it sees the alert
	// before it finds the connection closed.
	shutdown()
	close()
}

// halfCloser is a TCP connection, of the kernel or of a Millrace stack.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

func newSession(f *flags, conn *net.TCPConn, config *tls.Config) (session, error) {
	switch f.millrace {
	case "crypto/tls":
		if f.server {
			return &stdSession{tls.Server(conn, config), conn}, nil
		}
		return &stdSession{tls.Client(conn, config), conn}, nil
	case "engine":
		return newEngineSession(f, conn, config), nil
	case "stack":
		through, err := overStacks(conn)
		if err != nil {
			return nil, err
		}
		return newEngineSession(f, through, config), nil
	}
	return nil, errUsage
}

type stdSession struct {
	*tls.Conn
	tcp halfCloser
}

func (s *stdSession) shutdown() { drain(s.tcp) }
func (s *stdSession) close()    { s.tcp.Close() }

func drain(c halfCloser) {
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
	c.Close()
}

// engineSession drives an engine over a blocking connection.
type engineSession struct {
	*mtls.Engine
	tcp    halfCloser
	cut    int    // the most bytes of an input, 0 for all that arrived
	buf    []byte // what was read
	in     []byte // the part of it that the engine has not had
	plain  []byte // data that Read has not returned
	closed bool   // the peer's close_notify
	batch  mtls.Signatures
}

func newEngineSession(f *flags, tcp halfCloser, config *tls.Config) *engineSession {
	s := &engineSession{tcp: tcp, cut: f.cut, buf: make([]byte, 4096)}
	o := mtls.EngineOptions{Remote: tcp.RemoteAddr(), Local: tcp.LocalAddr(), Signatures: &s.batch}
	if f.server {
		s.Engine = mtls.NewServerEngine(config, o)
	} else {
		s.Engine = mtls.NewClientEngine(config, o)
	}
	return s
}

// flush sends what is pending.
func (s *engineSession) flush() error {
	for len(s.Pending()) > 0 {
		n, err := s.tcp.Write(s.Pending())
		s.Advance(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// step moves some input into the engine. An error of the engine comes before one of sending its alert.
func (s *engineSession) step() error {
	if err := s.flush(); err != nil {
		return err
	}
	if len(s.in) == 0 {
		n, err := s.tcp.Read(s.buf)
		s.in = s.buf[:n]
		if n == 0 && err != nil {
			if s.Handshaken() && !s.closed {
				return io.EOF // crypto/tls accepts an end between records, and so do its results here
			}
			return errors.Join(s.InputClosed(), s.flush())
		}
	}
	part := s.in
	if s.cut > 0 {
		part = part[:min(len(part), 1+rand.IntN(s.cut))]
	}
	ev, n, err := s.Next(part)
	s.in = s.in[n:]
	for err == nil && ev.Kind == mtls.AwaitingSignature {
		s.batch.Run()
		ev, _, err = s.Next(nil)
	}
	flushErr := s.flush()
	s.plain = append(s.plain, ev.Data...)
	s.closed = s.closed || ev.Kind == mtls.PeerClosed
	if err != nil {
		return err
	}
	return flushErr
}

func (s *engineSession) Read(p []byte) (int, error) {
	for len(s.plain) == 0 {
		if s.closed {
			return 0, io.EOF
		}
		if err := s.step(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.plain)
	s.plain = s.plain[n:]
	return n, nil
}

func (s *engineSession) Write(p []byte) (n int, err error) {
	for !s.Handshaken() {
		if err := s.step(); err != nil {
			return 0, err
		}
	}
	for n < len(p) {
		m, err := s.Engine.Write(p[n:])
		n += m
		if err := errors.Join(err, s.flush()); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s *engineSession) shutdown() { _ = s.flush(); s.Engine.Close(); drain(s.tcp) }
func (s *engineSession) close()    { s.Engine.Close(); s.tcp.Close() }

// overStacks returns a connection over two stacks of Millrace, joined in memory; what leaves the second goes to conn
// and back. Both stacks last as long as the process.
func overStacks(conn *net.TCPConn) (halfCloser, error) {
	near, far := netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.2/24")
	a, b, err := socket.Pair(near, far)
	if err != nil {
		return nil, err
	}
	l, err := b.Listen("tcp", "198.18.0.2:443")
	if err != nil {
		return nil, err
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	c, err := a.Dial("tcp", "198.18.0.2:443")
	if err != nil {
		return nil, err
	}
	peer := (<-accepted).(halfCloser)
	go relay(peer, conn)
	go relay(conn, peer)
	return c.(halfCloser), nil
}

func relay(to, from halfCloser) {
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}
