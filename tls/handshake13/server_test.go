package handshake13

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
)

// clientHello returns the message of a client of crypto/tls.
func clientHello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	var sent bytes.Buffer
	_ = tls.Client(recorder{w: &sent}, c).Handshake() // it fails: nothing answers
	b := sent.Bytes()
	if len(b) < 9 {
		t.Fatal("no ClientHello")
	}
	return b[5 : 5+int(b[3])<<8+int(b[4])]
}

// recorder is a connection that keeps what is written.
type recorder struct {
	net.Conn
	w io.Writer
	r io.Reader // nil has nothing
}

func (r recorder) Write(p []byte) (int, error)      { return r.w.Write(p) }
func (r recorder) SetReadDeadline(time.Time) error  { return nil }
func (r recorder) Close() error                     { return nil }
func (r recorder) SetWriteDeadline(time.Time) error { return nil }
func (r recorder) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// Read reads from r.
func (r recorder) Read(p []byte) (int, error) {
	if r.r == nil {
		return 0, io.EOF
	}
	return r.r.Read(p)
}

// usualHello is the message of a client with tickets, usualOptions what its server offers.
var (
	usualHello = func() func(t testing.TB) []byte {
		var once sync.Once
		var hello []byte
		return func(t testing.TB) []byte {
			once.Do(func() {
				hello = clientHello(t, &tls.Config{
					ServerName: "example.com", NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(1),
				})
			})
			return hello
		}
	}()
	usualOptions = Options{Groups: []tls.CurveID{tls.X25519MLKEM768, tls.X25519}, Protocols: []string{"h2", "http/1.1"}}
)

// certificate has a key on P-256.
var certificate = sync.OnceValue(func() *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	cert, _ := testcert.SelfSignedBy(key, "example.com")
	return &cert
})

// step moves a server to its next state.
func step(t testing.TB, s *Server) {
	t.Helper()
	r := Accepted
	switch s.State() {
	case AwaitingHello:
		r = s.Read(usualHello(t))
	case AwaitingOptions:
		r = s.Choose(&usualOptions)
	case AwaitingIdentity:
		r = s.Certify(certificate())
	case AwaitingExchange:
		s.Exchange.Compute()
		r = s.Exchanged()
	case AwaitingSignature:
		s.Signed(make([]byte, 70))
	default:
		t.Fatal("no step from", s.State())
	}
	if r != Accepted {
		t.Fatal(r)
	}
}

// calls are the calls of a server, and the state that each is for.
var calls = []struct {
	of   State
	call func(t *testing.T, s *Server)
}{
	{AwaitingHello, func(t *testing.T, s *Server) { s.Read(usualHello(t)) }},
	{AwaitingOptions, func(_ *testing.T, s *Server) { s.Choose(&usualOptions) }},
	{AwaitingIdentity, func(_ *testing.T, s *Server) { s.Certify(certificate()) }},
	{AwaitingExchange, func(_ *testing.T, s *Server) { s.Exchange.Compute(); s.Exchanged() }},
	{AwaitingSignature, func(_ *testing.T, s *Server) { s.Signed(nil) }},
}

// TestCallsOutOfOrder are faults of the caller.
func TestCallsOutOfOrder(t *testing.T) {
	for state := AwaitingHello; state < states; state++ {
		for i, c := range calls {
			if c.of == state {
				continue
			}
			s := New()
			if state == Refused {
				s.refuse(Malformed)
			}
			for s.state != state {
				step(t, s)
			}
			func() {
				defer func() {
					if recover() == nil && s.state != Refused {
						t.Errorf("%v: call %d is no panic, and leads to %v", state, i, s.state)
					}
				}()
				c.call(t, s)
			}()
		}
	}
}

// TestEveryStateIsReachedAndLeft: the table has a way to each state, and none out of the last ones.
func TestEveryStateIsReachedAndLeft(t *testing.T) {
	reached := map[State]bool{AwaitingHello: true}
	for from, events := range transitions {
		for _, to := range events {
			if to != none {
				reached[to] = true
			}
		}
		final := State(from) == Complete || State(from) == Refused
		if stays := !slices.ContainsFunc(events[:], func(to State) bool { return to != none && to != State(from) }); stays != final {
			t.Errorf("%v is final: %v", State(from), stays)
		}
	}
	if len(reached) != int(states) {
		t.Errorf("%d of %d states are reached", len(reached), states)
	}
	for i := range states {
		if i.String() == "" {
			t.Error("a state without a name")
		}
	}
	for i := range reasons {
		if i.String() == "" {
			t.Error("a reason without a name")
		}
	}
}

// TestAHandshakeAllocatesLittle: what is left is the copies that its user keeps.
func TestAHandshakeAllocatesLittle(t *testing.T) {
	hello := clientHello(t, &tls.Config{ServerName: "example.com", CurvePreferences: []tls.CurveID{tls.X25519}})
	cert, signature := certificate(), make([]byte, 70)
	n := testing.AllocsPerRun(100, func() {
		s := New()
		if s.Read(hello) != Accepted || s.Choose(&usualOptions) != Accepted || s.Certify(cert) != Accepted {
			t.Fatal("refused")
		}
		s.Exchange.Shared[0] = 1
		if s.Exchanged() != Accepted {
			t.Fatal("refused")
		}
		s.Signed(signature)
		s.Release()
	})
	if n > 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
}

// TestSessionsAreThoseOfCryptoTLS: a session of this package is one that crypto/tls makes, and the other way round.
func TestSessionsAreThoseOfCryptoTLS(t *testing.T) {
	var made *tls.SessionState
	created := time.Unix(1_800_000_000, 0)
	server := &tls.Config{Certificates: []tls.Certificate{*certificate()}, Time: func() time.Time { return created }, NextProtos: []string{"a"}}
	server.WrapSession = func(_ tls.ConnectionState, s *tls.SessionState) ([]byte, error) {
		made = s
		return []byte("ticket"), nil
	}
	hello := clientHello(t, &tls.Config{ServerName: "a", NextProtos: []string{"a"}, ClientSessionCache: tls.NewLRUClientSessionCache(1)})
	record := append([]byte{22, 3, 1, byte(len(hello) >> 8), byte(len(hello))}, hello...)
	conn := tls.Server(recorder{w: io.Discard, r: bytes.NewReader(record)}, server)
	if err := conn.Handshake(); made == nil {
		t.Fatal("no session:", err) // else the error is that no Finished comes
	}
	s, ok := ParseSession(made)
	if !ok || !s.Created.Equal(created) || s.Suite != conn.ConnectionState().CipherSuite || len(s.Secret) < 32 {
		t.Fatalf("%+v, %v", s, ok)
	}
	same, err := NewSession(s.Suite, s.Created, s.Secret)
	if err != nil {
		t.Fatal(err)
	}
	x, errX := made.Bytes()
	if y, errY := same.Bytes(); errX != nil || errY != nil || !bytes.Equal(x, y) {
		t.Errorf("crypto/tls: %x, %v; here: %x, %v", x, errX, y, errY)
	}
	same.Extra = [][]byte{[]byte("of the user"), nil}
	if s, ok := ParseSession(same); !ok || len(s.Secret) < 32 {
		t.Error("a session with extra is not taken:", ok)
	}
	same.EarlyData = true
	if _, ok := ParseSession(same); ok {
		t.Error("a session with early data is taken")
	}
	if !SessionsSupported() {
		t.Error("not supported")
	}
}

// FuzzHello has any ClientHello parsed without a panic, and every part that is taken in the message.
func FuzzHello(f *testing.F) {
	f.Add(usualHello(f))
	f.Add([]byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, message []byte) {
		s := New()
		defer s.Release()
		if s.Read(message) != Accepted {
			return
		}
		for i, ticket := range s.Hello.Tickets {
			if len(ticket) == 0 || len(s.Hello.binder(i)) == 0 || s.Hello.bindersAt >= len(message) {
				t.Fatalf("ticket %d of %d bytes, binders at %d of %d", i, len(ticket), s.Hello.bindersAt, len(message))
			}
		}
		if s.Choose(&usualOptions) != Accepted {
			return
		}
		s.Certify(certificate())
		if s.State() != AwaitingExchange {
			return
		}
		if s.Exchange.Compute(); s.Exchanged() != Accepted {
			return
		}
		s.Signed([]byte("signature"))
		for m := s.ServerHello(); m[0] != messageServerHello || int(m[2])<<8+int(m[3])+4 != len(m); {
			t.Fatalf("ServerHello %x", m)
		}
		last := byte(messageEncryptedExtensions)
		for m := s.Flight(); len(m) > 0; {
			n := 4 + int(m[1])<<16 + int(m[2])<<8 + int(m[3])
			if n > len(m) || m[0] < last {
				t.Fatalf("message %d of %d bytes in %d", m[0], n, len(m))
			}
			last, m = m[0], m[n:]
		}
	})
}
