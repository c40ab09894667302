package interop

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/udp"
)

// openQUIC opens a transport of package quic over a conn of the stack, with its capability.
func openQUIC(t testing.TB, c net.PacketConn, m quic.MessageConn, cfg quic.TransportConfig) *quic.Transport {
	t.Helper()
	cfg.Messages = m
	tr, err := quic.NewTransport(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// serveEcho accepts connections and returns what their streams bring.
func serveEcho(t testing.TB, tr *quic.Transport, tc *tls.Config, cfg *quic.Config, served *atomic.Int64) {
	t.Helper()
	l, err := tr.Listen(tc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
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
					served.Add(1)
					go func() {
						_, _ = io.Copy(s, s)
						_ = s.Close()
					}()
				}
			}()
		}
	}()
}

// echoes sends n random bytes on a stream and compares what comes back.
func echoes(t testing.TB, c *quic.Conn, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := c.OpenStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SetDeadline(time.Now().Add(time.Minute))
	data := make([]byte, n)
	_, _ = rand.Read(data)
	go func() {
		_, _ = s.Write(data)
		_ = s.Close()
	}()
	got, err := io.ReadAll(s)
	if !bytes.Equal(got, data) || err != nil {
		t.Fatalf("%d bytes of %d came back, %v", len(got), n, err)
	}
}

func dialQUIC(t testing.TB, tr *quic.Transport, to string, tc *tls.Config, c *quic.Config) *quic.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := tr.Dial(ctx, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)), tc, c)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestQUICOffloads: with Messages, batches, segmentation and ECN of the stack's UDP are used; without,
// none of them, though the conn has the methods.
func TestQUICOffloads(t *testing.T) {
	for _, declared := range []bool{true, false} {
		t.Run(fmt.Sprintf("Messages %v", declared), func(t *testing.T) {
			x := newWorld(t, 1)
			b, a := x.observe(t, x.b, ":443"), x.observe(t, x.a, ":0")
			messages := func(o *observed) quic.MessageConn {
				if declared {
					return o
				}
				return nil
			}
			server, client := certificate(t, "echo")
			var served atomic.Int64
			serveEcho(t, openQUIC(t, b, messages(b), quic.TransportConfig{}), server, nil, &served)
			c := dialQUIC(t, openQUIC(t, a, messages(a), quic.TransportConfig{}), addrB+":443", client, nil)
			echoes(t, c, 2<<20)
			if c.State().GSO != declared {
				t.Errorf("GSO %v", c.State().GSO)
			}
			for _, o := range []*observed{a, b} {
				used := []bool{o.batches.Load() > 0, o.gso.Load() > 0, o.marked.Load() > 0}
				for i, what := range []string{"ReadBatch", "UDP_SEGMENT", "ECN"} {
					if used[i] != declared {
						t.Errorf("%v: %s used: %v", o.LocalAddr(), what, used[i])
					}
				}
			}
		})
	}
}

// TestQUICTransportPerLoop has a transport for each socket of a group on one port, on a host of several
// loops. A connection stays with its transport while its client changes ports, and with them loops,
// because the connection ID says which one it is.
func TestQUICTransportPerLoop(t *testing.T) {
	const loops, length, offset = 2, 8, 0
	x := newWorld(t, loops)
	server, client := certificate(t, "echo")
	var served [loops]atomic.Int64
	var conns [loops]*socket.UDPConn
	share := &socket.ListenConfig{UDPOptions: func(o *socket.UDPOptions) { o.Share = true }}
	for i := range conns {
		c, err := x.b.ListenPacketWith(t.Context(), share, "udp", ":443")
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c
	}
	if err := conns[0].SetSteering(&udp.Steering{Length: length, Offset: offset}); err != nil {
		t.Fatal(err)
	}
	for i, c := range conns {
		ids := quic.IndexedIDs(length, offset, uint8(c.Index()))
		serveEcho(t, openQUIC(t, c, c, quic.TransportConfig{IDs: ids}), server, nil, &served[i])
	}
	const clients, moves = 8, 6
	// The port of a client decides: more of them where one transport has had none.
	for n := 0; n < clients || n < 8*clients && (served[0].Load() == 0 || served[1].Load() == 0); n++ {
		c := dialQUIC(t, clientTransport(t, x), addrB+":443", client, nil)
		base := [loops]int64{served[0].Load(), served[1].Load()}
		echoes(t, c, 10_000)
		var before *quic.Path
		for range moves {
			p := probedPath(t, x, c)
			if err := p.Switch(); err != nil {
				t.Fatal(err)
			}
			if before != nil {
				if err := before.Close(); err != nil {
					t.Fatal(err)
				}
			}
			before = p
			echoes(t, c, 10_000)
		}
		// All streams of the client were served by one transport.
		grown := [loops]int64{served[0].Load() - base[0], served[1].Load() - base[1]}
		if grown != [loops]int64{moves + 1, 0} && grown != [loops]int64{0, moves + 1} {
			t.Errorf("the streams of one connection went to the transports %v", grown)
		}
		_ = c.CloseWithError(0, "")
	}
	for i := range served {
		if served[i].Load() == 0 {
			t.Errorf("transport %d had no connection", i)
		}
	}
}

// probedPath returns a path over a new port that the server has answered on.
func probedPath(t *testing.T, x *world, c *quic.Conn) *quic.Path {
	t.Helper()
	p, err := c.AddPath(clientTransport(t, x))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := p.Probe(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

func clientTransport(t testing.TB, x *world) *quic.Transport {
	t.Helper()
	c, err := x.a.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	return openQUIC(t, c, c.(*socket.UDPConn), quic.TransportConfig{})
}

// TestQUICOverBadPaths carries data at 2 % loss each way, and over a path of 1228 bytes: 1200 in UDP
// (RFC 9000 14).
func TestQUICOverBadPaths(t *testing.T) {
	for _, text := range []string{"loss=2% delay=2ms", "mtu=1228", "mtu=1228 loss=2% delay=1ms reorder=2%"} {
		t.Run(text, func(t *testing.T) {
			profile, err := pmd.ParseProfile(text)
			if err != nil {
				t.Fatal(err)
			}
			x := newImpairedWorld(t, 1, profile)
			c, err := x.b.ListenPacket("udp", ":443")
			if err != nil {
				t.Fatal(err)
			}
			server, client := certificate(t, "echo")
			var served atomic.Int64
			narrow := &quic.Config{PacketSize: 1200}
			tr := openQUIC(t, c, c.(*socket.UDPConn), quic.TransportConfig{})
			serveEcho(t, tr, server, narrow, &served)
			conn := dialQUIC(t, clientTransport(t, x), addrB+":443", client, narrow)
			echoes(t, conn, 1<<20)
			if s := conn.Stats(); strings.Contains(text, "loss") && s.PacketsLost == 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}
