package quicconn

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/quic"
)

// successive is the sockets of one process after another, with their listeners.
type successive struct {
	t       *testing.T
	cert    tls.Certificate
	client  *tls.Config
	at      netip.AddrPort
	secret  []byte
	reached chan uint8 // numbers of the processes that have accepted
}

func newSuccessive(t *testing.T) *successive {
	t.Helper()
	cert, roots := testcert.SelfSigned("test")
	secret, err := quic.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return &successive{
		t: t, cert: cert, client: &tls.Config{RootCAs: roots, ServerName: "test", NextProtos: []string{"x"}},
		at: testport.Hold(t), secret: secret, reached: make(chan uint8, 8),
	}
}

// process returns the sockets of a process, which listens at the address.
func (s *successive) process(number uint8, inherited map[netip.AddrPort]*quic.Passed) *Sockets {
	s.t.Helper()
	sockets, err := NewSockets(number, s.secret, inherited)
	if err != nil {
		s.t.Fatal(err)
	}
	tr, err := sockets.Open(s.at, sockets.Config())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = tr.Close() })
	l, err := tr.Listen(&tls.Config{Certificates: []tls.Certificate{s.cert}, NextProtos: []string{"x"}}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		for {
			if _, err := l.Accept(context.Background()); err != nil {
				return
			}
			s.reached <- number
		}
	}()
	return sockets
}

// dial opens a connection, which a process accepts.
func (s *successive) dial(want uint8) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	tr, err := OverKernel(netip.AddrPort{}, quic.TransportConfig{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = tr.Close() })
	if _, err := tr.Dial(ctx, net.UDPAddrFromAddrPort(s.at), s.client, nil); err != nil {
		s.t.Fatal(err)
	}
	if got := <-s.reached; got != want {
		s.t.Errorf("process %d has accepted, want %d", got, want)
	}
}

// pass passes the sockets as an upgrade does, by their descriptors.
func (s *successive) pass(from *Sockets, want uint8) map[netip.AddrPort]*quic.Passed {
	s.t.Helper()
	all, number, err := from.Pass()
	if err != nil || number != want {
		s.t.Fatalf("the next process is %d, want %d, %v", number, want, err)
	}
	again, err := FromFiles(Files(all))
	if err != nil {
		s.t.Fatal(err)
	}
	return again
}

// TestNumbersOfProcessesAreNotUsedTwice passes a socket to one process after another, all of which are still there.
func TestNumbersOfProcessesAreNotUsedTwice(t *testing.T) {
	s := newSuccessive(t)
	now := s.process(254, nil)
	s.dial(254)
	for _, number := range []uint8{255, 0, 1} {
		next := s.process(number, s.pass(now, number))
		if left := next.Prepared(); len(left) != 0 {
			t.Errorf("%v are left", left)
		}
		now.Hold(true, nil)
		next.Take()
		now.Give()
		s.dial(number)
		now = next
	}
	back, err := NewSockets(253, s.secret, s.pass(now, 2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := back.Open(s.at, back.Config()); err != nil {
		t.Fatal(err)
	}
	all, number, err := back.Pass() // 254, 255, 0 and 1 are still there
	if err != nil || number != 2 {
		t.Errorf("the next process is %d, %v", number, err)
	}
	for _, p := range all {
		p.Close()
	}
}

// TestSocketsThatTheNextProcessDoesNotTake has one of an address that it does not have: the old one goes on to read it.
func TestSocketsThatTheNextProcessDoesNotTake(t *testing.T) {
	s := newSuccessive(t)
	old := s.process(1, nil)
	next, err := NewSockets(2, s.secret, s.pass(old, 2))
	if err != nil {
		t.Fatal(err)
	}
	left := next.Prepared()
	if len(left) != 1 || left[0] != s.at {
		t.Fatalf("%v are left", left)
	}
	old.Hold(true, left)
	s.dial(1)
	old.Hold(true, nil)
	old.Hold(false, nil) // the next process has failed
	s.dial(1)
}

func TestDescriptorsOfNoSocket(t *testing.T) {
	if _, err := FromFiles([]File{{At: netip.MustParseAddrPort("192.0.2.1:443"), Relay: 3}}); err == nil {
		t.Error("relays without a socket were taken")
	}
	if _, err := NewSockets(1, nil, nil); err == nil {
		t.Error("no secret is needed")
	}
}
