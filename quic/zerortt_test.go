package quic_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/millrace/millrace/quic"
)

// orders counts the streams that a server has got, each of which is an effect.
type orders struct {
	all   atomic.Int64
	early atomic.Int64 // before the handshake was complete
}

// take is the server: each stream is an order.
func (o *orders) take(c *quic.Conn) {
	for {
		s, err := c.AcceptStream(context.Background())
		if err != nil {
			return
		}
		b := make([]byte, 100)
		n, _ := s.Read(b) // the end may come in a later packet
		if n == 0 {
			continue
		}
		select {
		case <-c.HandshakeComplete():
		default:
			o.early.Add(1)
		}
		o.all.Add(1)
		_, _ = s.Write(b[:n])
		_ = s.Close()
	}
}

// resumable returns a client configuration that has a session of the server.
func resumable(t *testing.T, server net.Addr) *tls.Config {
	t.Helper()
	tc := clientTLS()
	tc.ClientSessionCache = &sessions{ClientSessionCache: tls.NewLRUClientSessionCache(4)}
	client := transport(t, nil, quic.TransportConfig{})
	c := dial(t, client, server, tc, nil)
	eventually(t, "a session ticket", func() bool { return tc.ClientSessionCache.(*sessions).has() })
	_ = c.CloseWithError(0, "")
	return tc
}

// sessions is a cache that says when it has a session.
type sessions struct {
	tls.ClientSessionCache
	n atomic.Int64
}

func (s *sessions) Put(key string, cs *tls.ClientSessionState) {
	s.ClientSessionCache.Put(key, cs)
	if cs != nil {
		s.n.Add(1)
	}
}

func (s *sessions) has() bool { return s.n.Load() > 0 }

var early = &quic.Config{ZeroRTT: true}

// orderEarly places an order as early data. Nothing comes back before the stream is open: quic-go has a
// data race between OpenStream and the peer's transport parameters then. flight is what the client sent before it heard from the
// server: an attacker on the path has all of it.
func orderEarly(t *testing.T, nat *relay, ct *tls.Config) (c *quic.Conn, flight [][]byte, answer func() (string, error)) {
	t.Helper()
	nat.hold()
	c = dial(t, transport(t, nil, quic.TransportConfig{}), nat.addr(), ct, early)
	s, err := c.OpenStream(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.HandshakeComplete():
		t.Error("Dial waited for the handshake")
	default:
	}
	_, _ = s.Write([]byte("one tractor"))
	_ = s.Close()
	eventually(t, "a 0-RTT packet", func() bool {
		flight = nat.flight()
		return slices.ContainsFunc(flight, hasEarly)
	})
	for last := 0; last < len(flight); flight = nat.flight() { // the rest of it
		last = len(flight)
		time.Sleep(100 * time.Millisecond)
	}
	nat.release(t)
	return c, flight, func() (string, error) {
		_ = s.SetReadDeadline(time.Now().Add(patience))
		b, err := io.ReadAll(s)
		return string(b), err
	}
}

// TestEarlyDataAndItsReplay sends early data, which succeeds, and replays the packets of the client
// to the same server, to a second loop of it, and to another instance with the same ticket keys.
func TestEarlyDataAndItsReplay(t *testing.T) {
	var first, second, other orders
	tc, register := serverTLS(), quic.NewStrikeRegister(quic.StrikeConfig{})
	tc.SetSessionTicketKeys([][32]byte{{1}})
	shared := &quic.Config{ZeroRTT: true, Replay: register}
	loop1, loop2 := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	instance := transport(t, nil, quic.TransportConfig{})
	serve(t, loop1, tc, shared, first.take)
	serve(t, loop2, tc, shared, second.take)
	foreign := serve(t, instance, tc, early, other.take).Replay()

	ct := resumable(t, loop1.LocalAddr())
	nat := newRelay(t, loop1.LocalAddr())
	c, flight, answer := orderEarly(t, nat, ct)
	if got, err := answer(); got != "one tractor" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if !c.State().Used0RTT || first.all.Load() != 1 {
		t.Fatalf("early data: %v, %d orders", c.State().Used0RTT, first.all.Load())
	}
	if err := c.CloseWithError(0, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection is gone", func() bool { return loop1.Stats().Conns == 0 })

	replay(t, flight, loop2.LocalAddr(), 300*time.Millisecond)
	replay(t, flight, instance.LocalAddr(), 300*time.Millisecond)
	eventually(t, "the first server takes the connection ID anew", func() bool {
		replay(t, flight, loop1.LocalAddr(), 50*time.Millisecond)
		return register.Stats().Replayed >= 2
	})
	if n := first.all.Load() + second.all.Load() + other.all.Load(); n != 1 {
		t.Errorf("%d orders were taken, want 1", n)
	}
	if s := register.Stats(); s.Accepted != 1 || s.Replayed < 2 || s.Foreign != 0 {
		t.Errorf("%+v", s)
	}
	if s := foreign.Stats(); s.Accepted != 0 || s.Foreign != 1 {
		t.Errorf("another instance: %+v", s)
	}
}

// TestQUICGoAloneTakesReplays is the counterpart: without the register the same replay succeeds.
func TestQUICGoAloneTakesReplays(t *testing.T) {
	var got atomic.Int64
	tc := serverTLS()
	tc.SetSessionTicketKeys([][32]byte{{1}})
	var addrs []net.Addr
	for range 2 {
		conn := udpConn(t)
		tr := &quicgo.Transport{Conn: conn}
		l, err := tr.ListenEarly(tc, &quicgo.Config{Allow0RTT: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = tr.Close(), conn.Close() })
		addrs = append(addrs, conn.LocalAddr())
		go func() {
			for {
				c, err := l.Accept(context.Background())
				if err != nil {
					return
				}
				go func() {
					s, err := c.AcceptStream(context.Background())
					if err != nil {
						return
					}
					if n, _ := s.Read(make([]byte, 100)); n > 0 {
						got.Add(1)
					}
				}()
			}
		}()
	}
	ct := resumable(t, addrs[0])
	nat := newRelay(t, addrs[0])
	_, flight, _ := orderEarly(t, nat, ct)
	eventually(t, "the order", func() bool { return got.Load() == 1 })
	eventually(t, "the replay succeeds", func() bool {
		replay(t, flight, addrs[1], 100*time.Millisecond)
		return got.Load() >= 2
	})
}

// TestRejectedEarlyData: a client whose ticket is known sends its data again after the handshake.
func TestRejectedEarlyData(t *testing.T) {
	var o orders
	server := transport(t, nil, quic.TransportConfig{})
	// A window of a nanosecond makes every ticket too old.
	l := serve(t, server, serverTLS(), &quic.Config{ZeroRTT: true, Replay: quic.NewStrikeRegister(quic.StrikeConfig{Window: 1})}, o.take)
	ct := resumable(t, server.LocalAddr())
	nat := newRelay(t, server.LocalAddr())
	c, _, answer := orderEarly(t, nat, ct)
	if _, err := answer(); !errors.Is(err, quic.Err0RTTRejected) {
		t.Fatalf("read: %v, want %v", err, quic.Err0RTTRejected)
	}
	if err := c.Restart(timeout(t)); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, c, "order"); got != "order" {
		t.Errorf("%q", got)
	}
	if c.State().Used0RTT || !c.State().TLS.DidResume || o.early.Load() != 0 || o.all.Load() != 1 {
		t.Errorf("0-RTT %v, resumed %v, %d early orders of %d", c.State().Used0RTT, c.State().TLS.DidResume, o.early.Load(), o.all.Load())
	}
	if s := l.Replay().Stats(); s.Expired != 1 || s.Accepted != 0 {
		t.Errorf("%+v", s)
	}
}

// hasEarly reports whether a datagram has a 0-RTT packet (RFC 9000 17.2.3), perhaps behind an Initial
// packet.
func hasEarly(b []byte) bool {
	for len(b) > 7 && b[0]&0x80 != 0 {
		if b[0]&0x30 == 0x10 {
			return true
		}
		at := 6 + int(b[5])
		at += 1 + int(b[at])
		token, n := varint(b[at:])
		at += n + int(token)
		length, n := varint(b[at:])
		b = b[min(at+n+int(length), len(b)):]
	}
	return false
}

// varint decodes a variable-length integer (RFC 9000 16).
func varint(b []byte) (v uint64, n int) {
	n = 1 << (b[0] >> 6)
	v = uint64(b[0] & 0x3f)
	for _, c := range b[1:n] {
		v = v<<8 | uint64(c)
	}
	return v, n
}
