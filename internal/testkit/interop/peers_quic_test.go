package interop

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	quicgo "github.com/quic-go/quic-go"
)

// The connections of a peer, and the bytes that each echoes.
const quicBytes, quicConns = 300_000, 3

// quicPeers echo streams: a full handshake, then resumed ones.
func quicPeers() []peer {
	return []peer{
		{"QUIC", "aioquic", asClient, overUDP, never, func(t *testing.T, b *testbed) {
			quicProgramCallsUs(t, b, aioquicPython(t), "testdata/aioquic_echo.py")
		}},
		{"QUIC", "aioquic", asServer, overUDP, never, func(t *testing.T, b *testbed) {
			weCallQUICProgram(t, b, aioquicPython(t), "testdata/aioquic_echo.py")
		}},
		{"QUIC", "quinn", asClient, overUDP, never, func(t *testing.T, b *testbed) { quicProgramCallsUs(t, b, built(t, "quinn-peer"), "quic") }},
		{"QUIC", "quinn", asServer, overUDP, never, func(t *testing.T, b *testbed) { weCallQUICProgram(t, b, built(t, "quinn-peer"), "quic") }},
		{"QUIC", "quiche", asClient, overUDP, never, func(t *testing.T, b *testbed) { quicProgramCallsUs(t, b, built(t, "quiche-peer"), "quic") }},
		{"QUIC", "quiche", asServer, overUDP, never, func(t *testing.T, b *testbed) { weCallQUICProgram(t, b, built(t, "quiche-peer"), "quic") }},
		{"QUIC", "quic-go", asClient, overUDP, lossy, quicgoCallsUs},
		{"QUIC", "quic-go", asServer, overUDP, lossy, weCallQUICGo},
	}
}

// quicEchoServer is ours, and counts the streams. It returns its address.
func quicEchoServer(t *testing.T, b *testbed, tc *tls.Config) (addr string, streams *atomic.Int64) {
	t.Helper()
	tr := b.quic(t)
	streams = new(atomic.Int64)
	serveEcho(t, tr, tc, b.quicConfig(), streams)
	return tr.LocalAddr().String(), streams
}

// quicProgramCallsUs runs a program with the arguments "client", port, bytes, connections and host.
func quicProgramCallsUs(t *testing.T, b *testbed, program string, args ...string) {
	t.Helper()
	tc, _ := certificate(t, "echo")
	addr, streams := quicEchoServer(t, b, tc)
	host, port, _ := net.SplitHostPort(addr)
	out, err := b.program(t, "", program, append(args, "client", port, strconv.Itoa(quicBytes), strconv.Itoa(quicConns), host)...)
	if err != nil || !strings.HasSuffix(out, "ok\n") || streams.Load() != quicConns {
		t.Errorf("%d streams, %v\n%s", streams.Load(), err, out)
	}
}

// weCallQUICProgram starts a program with the arguments "server", certificate, key and host, which prints its port.
func weCallQUICProgram(t *testing.T, b *testbed, program string, args ...string) {
	t.Helper()
	tc, client := certificate(t, "echo")
	cert, key := writePEM(t, tc)
	s := b.serve(t, program, append(args, "server", cert, key, linuxAddr)...)
	weCallQUIC(t, b, net.JoinHostPort(linuxAddr, s.line(t)), client)
}

// weCallQUIC opens connections to a server that echoes. All but the first resume.
func weCallQUIC(t *testing.T, b *testbed, addr string, client *tls.Config) {
	t.Helper()
	tr := b.quic(t)
	client = client.Clone()
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for i := range quicConns {
		c := dialQUIC(t, tr, addr, client, b.quicConfig())
		echoes(t, c, quicBytes)
		if st := c.State(); st.TLS.DidResume != (i > 0) {
			t.Errorf("connection %d: resumed %v", i, st.TLS.DidResume)
		}
		if b.impair != "" && i == quicConns-1 && c.Stats().PacketsLost == 0 {
			t.Logf("no packet was lost: %+v", c.Stats())
		}
		_ = c.CloseWithError(0, "")
	}
}

func quicgoCallsUs(t *testing.T, b *testbed) {
	tc, client := certificate(t, "echo")
	addr, streams := quicEchoServer(t, b, tc)
	to, err := net.ResolveUDPAddr("udp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	tr := &quicgo.Transport{Conn: b.packetsLinux(t)}
	defer tr.Close()
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range quicConns {
		c, err := tr.Dial(ctx, to, client, &quicgo.Config{InitialPacketSize: b.quicConfig().PacketSize})
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.OpenStreamSync(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.SetDeadline(deadline())
		sent := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4, 5, 6, 7, 8, 9}, quicBytes/10)
		go func() {
			_, _ = s.Write(sent)
			_ = s.Close()
		}()
		var got bytes.Buffer
		if _, err := got.ReadFrom(s); err != nil || !bytes.Equal(got.Bytes(), sent) {
			t.Fatalf("%d bytes come back, %v", got.Len(), err)
		}
		if resumed := c.ConnectionState().TLS.DidResume; resumed != (i > 0) {
			t.Errorf("connection %d: resumed %v", i, resumed)
		}
		_ = c.CloseWithError(0, "")
	}
	if streams.Load() != quicConns {
		t.Errorf("%d streams", streams.Load())
	}
}

func weCallQUICGo(t *testing.T, b *testbed) {
	tc, client := certificate(t, "echo")
	tr := &quicgo.Transport{Conn: b.packetsLinux(t)}
	defer tr.Close()
	l, err := tr.Listen(tc, &quicgo.Config{InitialPacketSize: b.quicConfig().PacketSize})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go echoStreams(l)
	weCallQUIC(t, b, l.Addr().String(), client)
}
