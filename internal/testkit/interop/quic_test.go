package interop

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// observed is a UDPConn that counts how quic-go uses it.
type observed struct {
	*socket.UDPConn
	batches, read atomic.Int64 // calls of ReadBatch, and messages
	gso, sent     atomic.Int64 // calls of WriteMsgUDP of several datagrams, and all
	marked        atomic.Int64 // messages that came with ECN
}

func (o *observed) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	n, err := o.UDPConn.ReadBatch(ms, flags)
	o.batches.Add(1)
	o.read.Add(int64(n))
	for _, m := range ms[:n] {
		if trafficClass(m.OOB[:m.NN])&3 != 0 {
			o.marked.Add(1)
		}
	}
	return n, err
}

func (o *observed) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (int, int, error) {
	if control(oob, unix.IPPROTO_UDP, unix.UDP_SEGMENT) != nil {
		o.gso.Add(1)
	}
	o.sent.Add(1)
	return o.UDPConn.WriteMsgUDP(b, oob, addr)
}

// control returns the value of a control message, nil where there is none.
func control(oob []byte, level, typ int32) []byte {
	messages, _ := unix.ParseSocketControlMessage(oob)
	for _, m := range messages {
		if m.Header.Level == level && m.Header.Type == typ {
			return m.Data
		}
	}
	return nil
}

// trafficClass returns the TOS or traffic class of a message that was received; ECN is its two low bits.
func trafficClass(oob []byte) byte {
	b := control(oob, unix.IPPROTO_IP, unix.IP_TOS)
	if b == nil {
		b = control(oob, unix.IPPROTO_IPV6, unix.IPV6_TCLASS)
	}
	if b == nil {
		return 0
	}
	return b[0]
}

func (x *world) observe(t *testing.T, s *socket.Stack, addr string) *observed {
	t.Helper()
	c, err := s.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return &observed{UDPConn: c.(*socket.UDPConn)}
}

// TestQUIC has quic-go carry a stream each way, over its interface for batches, with GSO and ECN.
func TestQUIC(t *testing.T) {
	for _, c := range []struct {
		name, at, to string
		loops        int
	}{
		{"IPv4", addrB + ":443", addrB, 1},
		{"any address, IPv6", ":443", addrB6, 1},
		{"any address, two loops", ":443", addrB, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newWorld(t, c.loops)
			b, a := x.observe(t, x.b, c.at), x.observe(t, x.a, ":0")
			within(t, 30*time.Second, "QUIC", func() { quicEcho(t, a, b, c.to) })
			for _, o := range []*observed{a, b} {
				if o.batches.Load() == 0 || o.read.Load() == 0 {
					t.Errorf("%v: ReadBatch was not used", o.LocalAddr())
				}
				if o.gso.Load() == 0 {
					t.Errorf("%v: UDP_SEGMENT was not used in %d writes", o.LocalAddr(), o.sent.Load())
				}
				if o.marked.Load() == 0 {
					t.Errorf("%v: no packet came with ECN", o.LocalAddr())
				}
			}
		})
	}
}

func quicEcho(t *testing.T, a, b *observed, to string) {
	server, client := certificate(t, "echo")
	tb := &quic.Transport{Conn: b}
	l, err := tb.Listen(server, nil)
	if err != nil {
		t.Error(err)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		echoStreams(l)
	}()
	ta := &quic.Transport{Conn: a}
	quicClient(t, ta, client, net.JoinHostPort(to, "443"))
	for _, err := range []error{l.Close(), tb.Close(), ta.Close(), a.Close(), b.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	<-done
}

// echoStreams sends back what comes on each stream of each connection.
func echoStreams(l *quic.Listener) {
	for {
		c, err := l.Accept(context.Background())
		if err != nil {
			return
		}
		go func() {
			for {
				s, err := c.AcceptStream(context.Background())
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(s, s)
					_ = s.Close()
				}()
			}
		}()
	}
}

func quicClient(t *testing.T, tr *quic.Transport, conf *tls.Config, addr string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	c, err := tr.Dial(ctx, to, conf, nil)
	if err != nil {
		t.Error(err)
		return
	}
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	data := make([]byte, 2<<20)
	_, _ = rand.Read(data)
	go func() {
		_, _ = s.Write(data)
		_ = s.Close()
	}()
	got, err := io.ReadAll(s)
	if !bytes.Equal(got, data) || err != nil {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(data), err)
	}
	if err := c.CloseWithError(0, ""); err != nil {
		t.Error(err)
	}
}

var _ quic.OOBCapablePacketConn = (*socket.UDPConn)(nil)
