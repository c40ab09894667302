package tls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
)

// testCertificate is for example.com, signed by itself, with the pool that has it alone.
var testCertificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	return testcert.SelfSigned("example.com")
})

// engineConfigs returns a server's and a client's configuration that accept each other.
func engineConfigs(t testing.TB) (s, c *tls.Config) {
	t.Helper()
	cert, roots := testCertificate()
	s = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	c = &tls.Config{RootCAs: roots, ServerName: "example.com", NextProtos: []string{"http/1.1"}}
	return s, c
}

// cutter says how many bytes of those that are left are the next input.
type cutter func(left int) int

func wholly(left int) int { return left }
func byteWise(int) int    { return 1 }
func randomCuts(seed uint64) cutter {
	r := mathrand.New(mathrand.NewPCG(seed, 1))
	return func(left int) int {
		if r.IntN(3) == 0 {
			return 1 + r.IntN(min(left, 5))
		}
		return 1 + r.IntN(left)
	}
}

// end is an engine of a test and what it reported.
type end struct {
	*Engine
	data   []byte
	events []EventKind
	err    error
	behind []byte // input that waits for a signature
}

// feed gives input to the engine, cut into pieces, each in memory of its own.
func (e *end) feed(in []byte, cut cutter) {
	for len(in) > 0 && e.err == nil {
		n := min(len(in), max(1, cut(len(in))))
		piece := bytes.Clone(in[:n])
		in = in[n:]
		e.feedPiece(piece)
	}
}

func (e *end) feedPiece(piece []byte) {
	piece = append(e.behind, piece...)
	e.behind = nil
	for {
		ev, used, err := e.Next(piece)
		piece = piece[used:]
		if err != nil {
			e.err = err
			return
		}
		if ev.Kind == AwaitingSignature {
			e.behind = piece
			return
		}
		if ev.Kind == NeedInput {
			if len(piece) > 0 {
				e.err = fmt.Errorf("NeedInput left %d bytes", len(piece))
			}
			return
		}
		if ev.Kind != Data {
			e.events = append(e.events, ev.Kind)
		}
		e.data = append(e.data, ev.Data...)
	}
}

// take returns what is pending.
func (e *end) take() []byte {
	p := bytes.Clone(e.Pending())
	e.Advance(len(p))
	return p
}

// exchange moves ciphertext between two engines until neither has any.
func exchange(a, b *end, cut cutter) {
	for {
		ab, ba := a.take(), b.take()
		if len(ab)+len(ba) == 0 {
			return
		}
		b.feed(ab, cut)
		a.feed(ba, cut)
	}
}

// handshaken returns two engines after their handshake.
func handshaken(t testing.TB, s, c *tls.Config, o EngineOptions, cut cutter) (srv, cli *end) {
	t.Helper()
	srv, cli = &end{Engine: NewServerEngine(s, o)}, &end{Engine: NewClientEngine(c, o)}
	t.Cleanup(func() { srv.Close(); cli.Close() })
	exchange(srv, cli, cut)
	if srv.err != nil || cli.err != nil || !srv.Handshaken() || !cli.Handshaken() {
		t.Fatalf("handshake: server %v, client %v", srv.err, cli.err)
	}
	return srv, cli
}

// say writes data on one end and returns what the other received.
func say(t testing.TB, from, to *end, data []byte, cut cutter) {
	t.Helper()
	to.data = nil
	for rest := data; len(rest) > 0; {
		n, err := from.Write(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
		exchange(from, to, cut)
		if to.err != nil || from.err != nil {
			t.Fatalf("receiver: %v; sender: %v", to.err, from.err)
		}
	}
	if !bytes.Equal(to.data, data) {
		t.Fatalf("%d bytes arrived, %d were sent, or they differ", len(to.data), len(data))
	}
}

// mode is one way to run a pair of engines.
type mode struct {
	name    string
	version uint16
	suite   uint16 // 0 for the default; only before TLS 1.3
	own     bool   // the engine has the record layer
	options EngineOptions
}

// keptCoroutines are those of all tests, which run one after the other.
var keptCoroutines = new(Coroutines)

var modes = []mode{
	{name: "1.3", version: tls.VersionTLS13, own: true},
	{name: "1.3/crypto/tls", version: tls.VersionTLS13, own: true, options: EngineOptions{StandardHandshake: true}},
	{
		name: "1.3/kept coroutines", version: tls.VersionTLS13, own: true,
		options: EngineOptions{StandardHandshake: true, Coroutines: keptCoroutines},
	},
	{name: "1.3/goroutine", version: tls.VersionTLS13, own: true, options: EngineOptions{StandardHandshake: true, AnyThread: true}},
	{name: "1.3/standard", version: tls.VersionTLS13, options: EngineOptions{StandardRecords: true}},
	{name: "1.2/aes128", version: tls.VersionTLS12, suite: tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, own: true},
	{name: "1.2/aes256", version: tls.VersionTLS12, suite: tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, own: true},
	{name: "1.2/chacha", version: tls.VersionTLS12, suite: tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, own: true},
	{name: "1.2/cbc", version: tls.VersionTLS12, suite: tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA},
	{name: "1.2/standard", version: tls.VersionTLS12, options: EngineOptions{StandardRecords: true}},
}

func (m mode) configs(t testing.TB) (s, c *tls.Config) {
	s, c = engineConfigs(t)
	s.MinVersion, s.MaxVersion = m.version, m.version
	if m.suite != 0 {
		s.CipherSuites = []uint16{m.suite}
		c.CipherSuites = []uint16{m.suite}
	}
	return s, c
}

// TestEnginePair has two engines talk in every mode, fed in every way, at first and resumed.
func TestEnginePair(t *testing.T) {
	cuts := map[string]cutter{"whole": wholly, "bytes": byteWise, "random": randomCuts(1)}
	for _, m := range modes {
		for how, cut := range cuts {
			t.Run(m.name+"/"+how, func(t *testing.T) {
				s, c := m.configs(t)
				c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
				for _, resumed := range []bool{false, true} {
					srv, cli := handshaken(t, s, c, m.options, cut)
					cs := srv.ConnectionState()
					if cs.DidResume != resumed || cs.Version != m.version || cs.NegotiatedProtocol != "http/1.1" {
						t.Fatalf("resumed %v, want %v; version %x, protocol %q", cs.DidResume, resumed, cs.Version, cs.NegotiatedProtocol)
					}
					// crypto/tls logs no keys of a resumed TLS 1.2 session.
					own := m.own && (m.version == tls.VersionTLS13 || !resumed)
					if srv.OwnRecords() != own || cli.OwnRecords() != own {
						t.Fatalf("own records: server %v, client %v, want %v", srv.OwnRecords(), cli.OwnRecords(), own)
					}
					talk(t, srv, cli, cut)
				}
			})
		}
	}
}

// talk exchanges data both ways and closes both directions in turn.
func talk(t *testing.T, srv, cli *end, cut cutter) {
	t.Helper()
	long := bytes.Repeat([]byte("0123456789abcdef"), 20<<10/16) // more than one record has
	say(t, cli, srv, []byte("request"), cut)
	say(t, srv, cli, long, cut)
	say(t, cli, srv, long, cut)
	say(t, srv, cli, []byte("end"), cut)
	if err := cli.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	exchange(cli, srv, cut)
	if n := len(srv.events); n == 0 || srv.events[n-1] != PeerClosed {
		t.Fatalf("the server's events are %v", srv.events)
	}
	if _, err := cli.Write([]byte("x")); !errors.Is(err, ErrWriteClosed) {
		t.Errorf("write after CloseWrite: %v", err)
	}
	say(t, srv, cli, []byte("half closed"), cut)
	if err := errors.Join(srv.CloseWrite(), srv.InputClosed()); err != nil {
		t.Error(err)
	}
	exchange(cli, srv, cut)
	if err := cli.InputClosed(); err != nil {
		t.Error(err)
	}
}

// stdPeer runs a blocking peer in a goroutine over the kernel's loopback, with the engine at the other end.
func stdPeer(t *testing.T, e *Engine, peer func(net.Conn) error) *end {
	t.Helper()
	theirs, ours := loopback(t)
	done := make(chan error, 1)
	go func() { defer theirs.Close(); done <- peer(theirs) }()
	x := &end{Engine: e}
	x.echoOver(ours)
	if err := <-done; err != nil {
		t.Errorf("the peer: %v (engine %v)", err, x.err)
	}
	return x
}

// echoOver has the engine return what it receives over a blocking connection, until that ends, which it closes.
func (x *end) echoOver(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, 3000)
	for {
		for len(x.Pending()) > 0 {
			n, err := conn.Write(x.Pending())
			if x.Advance(n); err != nil {
				return
			}
		}
		if x.err != nil {
			return
		}
		if len(x.data) > 0 {
			n, err := x.Write(x.data)
			x.data, x.err = x.data[n:], err
			continue
		}
		n, err := conn.Read(buf)
		x.feed(buf[:n], wholly)
		if err != nil && x.err == nil && len(x.data) == 0 {
			x.err = x.InputClosed()
			return
		}
	}
}

// echoOf writes and expects the same back.
func echoOf(conn *tls.Conn) error {
	data := bytes.Repeat([]byte("ping pong "), 5000)
	written := make(chan error, 1)
	go func() { _, err := conn.Write(data); written <- err }()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if err := <-written; err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return errors.New("another echo")
	}
	return conn.Close()
}

// TestEngineAgainstCryptoTLS has crypto/tls as the peer of each mode.
func TestEngineAgainstCryptoTLS(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			s, c := m.configs(t)
			c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			for range 2 {
				x := stdPeer(t, NewServerEngine(s, m.options), func(n net.Conn) error { return echoOf(tls.Client(n, c)) })
				if x.err != nil {
					t.Error(x.err)
				}
				x = stdPeer(t, NewClientEngine(c, m.options), func(n net.Conn) error { return echoOf(tls.Server(n, s)) })
				if x.err != nil {
					t.Error(x.err)
				}
				if !x.ConnectionState().DidResume {
					t.Error("the client engine did not resume")
				}
			}
		})
	}
}

// TestEngineAbortLeaksNothing gives up handshakes at every stage.
func TestEngineAbortLeaksNothing(t *testing.T) {
	s, c := engineConfigs(t)
	before := runtime.NumGoroutine()
	var pool Coroutines
	for _, o := range []EngineOptions{
		{}, {StandardHandshake: true}, {StandardHandshake: true, AnyThread: true}, {StandardHandshake: true, Coroutines: &pool},
	} {
		for fed := 0; fed < 400; fed += 37 {
			srv, cli := &end{Engine: NewServerEngine(s, o)}, &end{Engine: NewClientEngine(c, o)}
			hello := cli.take()
			srv.feed(hello[:min(fed, len(hello))], wholly)
			srv.Close()
			cli.Close()
			cli.Close()
			if _, _, err := srv.Next(hello); !errors.Is(err, ErrEngineClosed) {
				t.Fatal(err)
			}
		}
	}
	if n := len(pool.idle); n < 2 || n > maxIdleCoroutines {
		t.Errorf("%d coroutines are kept", n)
	}
	pool.Close()
	for wait := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(wait) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestEnginePanicOfCallback has a callback panic: the panic arrives where the handshake was resumed, and nothing is left.
func TestEnginePanicOfCallback(t *testing.T) {
	s, c := engineConfigs(t)
	broken := s.Clone()
	broken.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { panic("callback") }
	before := runtime.NumGoroutine()
	var pool Coroutines
	for i := range 6 {
		o := EngineOptions{Coroutines: &pool, StandardHandshake: i%2 == 0}
		cli := NewClientEngine(c, EngineOptions{})
		srv := NewServerEngine(broken, o)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			_, _, _ = srv.Next(bytes.Clone(cli.Pending()))
		}()
		srv.Close()
		cli.Close()
		x, y := handshaken(t, s, c, o, wholly)
		say(t, x, y, []byte("others go on"), wholly)
	}
	pool.Close()
	for wait := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(wait) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
