package fec_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/quic/fec"
)

// lossy loses every nth datagram of a QUIC connection.
type lossy struct {
	*quic.Conn
	nth, n int
}

func (l *lossy) SendDatagram(b []byte) error {
	if l.n++; l.n%l.nth == 0 {
		return nil
	}
	return l.Conn.SendDatagram(b)
}

func transport(t testing.TB) *quic.Transport {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := quic.NewTransport(c, quic.TransportConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// agree connects two ends with what each offers, and returns both connections.
func agree(t *testing.T, client, server []string) (c, s *quic.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	a, b := transport(t), transport(t)
	on := &quic.Config{Datagrams: true}
	cert, _ := testcert.SelfSigned("test")
	l, err := b.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: server}, on)
	if err != nil {
		t.Fatal(err)
	}
	c, err = a.Dial(ctx, b.LocalAddr(), &tls.Config{InsecureSkipVerify: true, NextProtos: client}, on)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = l.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	return c, s
}

// TestOverQUIC negotiates a code and loses every 15th symbol: all datagrams arrive nevertheless.
func TestOverQUIC(t *testing.T) {
	for _, scheme := range []fec.Scheme{fec.XOR, fec.RLC} {
		t.Run(scheme.String(), func(t *testing.T) {
			c, s := agree(t, fec.Offer("chat", scheme), fec.Offer("chat", fec.RLC, fec.XOR))
			base, agreed := fec.Negotiated(s.State().TLS.NegotiatedProtocol)
			if base != "chat" || agreed != scheme {
				t.Fatalf("%q, %v", base, agreed)
			}
			cfg := fec.Config{Scheme: agreed}
			out, err := fec.NewConn(&lossy{Conn: c, nth: 15}, cfg)
			if err != nil {
				t.Fatal(err)
			}
			in, err := fec.NewConn(s, cfg)
			if err != nil {
				t.Fatal(err)
			}
			const n = 300
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			seen := map[uint32]bool{}
			for i := range uint32(n) {
				if err := out.SendDatagram(binary.BigEndian.AppendUint32(nil, i)); err != nil {
					t.Fatal(err)
				}
				if i%10 < 9 {
					continue
				}
				for len(seen) < int(i+1)-2 { // at the pace of the receiver, whose queue is bounded
					b, err := in.ReceiveDatagram(ctx)
					if err != nil {
						t.Fatalf("%d of %d: %v, %+v", len(seen), i, err, in.Stats())
					}
					seen[binary.BigEndian.Uint32(b)] = true
				}
			}
			if err := out.Flush(); err != nil {
				t.Fatal(err)
			}
			for len(seen) < n-2 {
				b, err := in.ReceiveDatagram(ctx)
				if err != nil {
					t.Fatal(err)
				}
				seen[binary.BigEndian.Uint32(b)] = true
			}
			if s := in.Stats(); s.Recovered < 10 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestWithoutAgreement: a server that knows no FEC gets datagrams as they are.
func TestWithoutAgreement(t *testing.T) {
	c, s := agree(t, fec.Offer("chat", fec.RLC), []string{"chat"})
	_, scheme := fec.Negotiated(c.State().TLS.NegotiatedProtocol)
	out, err := fec.NewConn(c, fec.Config{Scheme: scheme})
	if err != nil || scheme != fec.None {
		t.Fatal(scheme, err)
	}
	if err := out.SendDatagram([]byte("plain")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if b, err := s.ReceiveDatagram(ctx); string(b) != "plain" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := out.Flush(); err != nil || out.Stats() != (fec.DecoderStats{}) {
		t.Error(err)
	}
}

func ExampleOffer() {
	// Both ends offer what they have, and TLS chooses.
	fmt.Println(fec.Offer("chat", fec.RLC))
	base, scheme := fec.Negotiated("chat+fec-rlc-1")
	fmt.Println(base, scheme)
	// Output:
	// [chat+fec-rlc-1 chat]
	// chat rlc
}
