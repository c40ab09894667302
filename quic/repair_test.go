package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/quic/fec"
)

// repairPair connects two ends with the configurations of client and server.
func repairPair(t *testing.T, client, server *Config) (c, s *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	var ends [2]*Transport
	for i := range ends {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		if ends[i], err = NewTransport(conn, TransportConfig{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	a, b := ends[0], ends[1]
	cert, _ := testcert.SelfSigned("test")
	l, err := b.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"chat"}}, server)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = a.Dial(ctx, b.LocalAddr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"chat"}}, client); err != nil {
		t.Fatal(err)
	}
	if s, err = l.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestDatagramRepairIsAgreedOn(t *testing.T) {
	plain := &Config{Datagrams: true}
	rlc := &Config{Datagrams: true, DatagramRepair: &fec.Config{Scheme: fec.RLC, Interval: 2}}
	xor := &Config{Datagrams: true, DatagramRepair: &fec.Config{Scheme: fec.XOR}}
	for _, tc := range []struct {
		name           string
		client, server *Config
		want           fec.Scheme
	}{
		{"both", rlc, rlc, fec.RLC},
		{"client alone", rlc, plain, fec.None},
		{"server alone", plain, rlc, fec.None},
		{"other schemes", rlc, xor, fec.None},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, s := repairPair(t, tc.client, tc.server)
			for name, end := range map[string]*Conn{"client": c, "server": s} {
				if st := end.State(); st.DatagramRepair != tc.want || st.TLS.NegotiatedProtocol != "chat" {
					t.Errorf("%s: %v, protocol %q", name, st.DatagramRepair, st.TLS.NegotiatedProtocol)
				}
			}
			for _, text := range []string{"one", "two", "three"} {
				if err := c.SendDatagram([]byte(text)); err != nil {
					t.Fatal(err)
				}
				if b, err := s.ReceiveDatagram(t.Context()); err != nil || string(b) != text {
					t.Errorf("%q, %v", b, err)
				}
			}
			if err := c.FlushDatagrams(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDatagramRepairRefusesWhatItCannotDo(t *testing.T) {
	repair := &fec.Config{Scheme: fec.RLC}
	for name, c := range map[string]*Config{
		"no datagrams": {DatagramRepair: repair},
		"early data":   {Datagrams: true, ZeroRTT: true, DatagramRepair: repair},
		"bounds":       {Datagrams: true, DatagramRepair: &fec.Config{Scheme: fec.RLC, Window: fec.MaxWindow + 1}},
	} {
		if err := c.check(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	perClient := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }}
	if _, err := (&Config{Datagrams: true, DatagramRepair: repair}).offering(perClient); !errors.Is(err, ErrConfig) {
		t.Errorf("GetConfigForClient: %v", err)
	}
}

// TestWaitingReceiversGetWhatIsRecovered lets two goroutines wait for two datagrams that one symbol brings.
func TestWaitingReceiversGetWhatIsRecovered(t *testing.T) {
	symbols := make(chan []byte)
	link := &channelDatagrams{symbols}
	in, err := fec.NewConn(link, fec.Config{Scheme: fec.RLC, Interval: 2, Window: 2})
	if err != nil {
		t.Fatal(err)
	}
	enc, err := fec.NewEncoder(fec.Config{Scheme: fec.RLC, Interval: 2, Window: 2})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 3)
	for range 3 {
		go func() {
			b, err := in.ReceiveDatagram(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- string(b)
		}()
	}
	first, _, _ := enc.Source(nil, []byte("a"))
	symbols <- first
	if b := <-got; b != "a" {
		t.Errorf("%q", b)
	}
	_, _, _ = enc.Source(nil, []byte("b")) // lost
	symbols <- enc.Repair(nil)
	if b := <-got; b != "b" {
		t.Errorf("%q", b)
	}
	last, _, _ := enc.Source(nil, []byte("c"))
	symbols <- last
	if b := <-got; b != "c" {
		t.Errorf("%q", b)
	}
}

type channelDatagrams struct{ symbols chan []byte }

func (c *channelDatagrams) SendDatagram([]byte) error { return errors.ErrUnsupported }

func (c *channelDatagrams) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	select {
	case b := <-c.symbols:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
