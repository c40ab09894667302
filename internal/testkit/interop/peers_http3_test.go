package interop

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	quicgo "github.com/quic-go/quic-go"
	quicgoh3 "github.com/quic-go/quic-go/http3"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
)

// http3Peers exchange requests and contents of many sizes, some side by side.
func http3Peers() []peer {
	return []peer{
		{"HTTP/3", "aioquic", asClient, overUDP, never, func(t *testing.T, b *testbed) {
			http3ProgramCallsUs(t, b, aioquicPython(t), "testdata/aioquic_h3.py")
		}},
		{"HTTP/3", "aioquic", asServer, overUDP, never, func(t *testing.T, b *testbed) {
			weCallHTTP3Program(t, b, aioquicPython(t), "testdata/aioquic_h3.py")
		}},
		{"HTTP/3", "h3 over quinn", asClient, overUDP, never, func(t *testing.T, b *testbed) { http3ProgramCallsUs(t, b, built(t, "quinn-peer"), "h3") }},
		{"HTTP/3", "h3 over quinn", asServer, overUDP, never, func(t *testing.T, b *testbed) { weCallHTTP3Program(t, b, built(t, "quinn-peer"), "h3") }},
		{"HTTP/3", "quiche", asClient, overUDP, never, func(t *testing.T, b *testbed) { http3ProgramCallsUs(t, b, built(t, "quiche-peer"), "h3") }},
		{"HTTP/3", "quiche", asServer, overUDP, never, func(t *testing.T, b *testbed) { weCallHTTP3Program(t, b, built(t, "quiche-peer"), "h3") }},
		{"HTTP/3, malformed", "h3i", asClient, overUDP, never, malformedFromH3i},
		{"HTTP/3", "quic-go", asClient, overUDP, plain, quicgoRequestsFromUs},
		{"HTTP/3", "quic-go", asServer, overUDP, plain, weRequestFromQUICGo},
	}
}

// http3Server is ours; it serves h3Handler, or another. It returns its address.
func http3Server(t *testing.T, b *testbed, tc *tls.Config, h http.Handler) string {
	t.Helper()
	if h == nil {
		h = http.HandlerFunc(h3Handler)
	}
	tr := b.quic(t)
	s := &http3.Server{Handler: h, TLS: tc, QUIC: b.quicConfig(), Machine: http3.MachineOptions{
		Datagrams: true, ExtendedConnect: true, WebTransport: 16, Session: sessionLimits,
	}}
	go func() { _ = s.ServeTransport(tr) }()
	t.Cleanup(func() { _ = s.Close() })
	return tr.LocalAddr().String()
}

// http3Client is ours.
func http3Client(t *testing.T, b *testbed, tc *tls.Config) *http3.Transport {
	t.Helper()
	tr := b.quic(t)
	rt := &http3.Transport{
		TLS: tc, QUIC: b.quicConfig(), DisableCompression: true, Machine: http3.MachineOptions{Datagrams: true, WebTransport: 16, Session: sessionLimits},
		Dial: func(ctx context.Context, addr string, tc *tls.Config, qc *quic.Config) (*quic.Conn, error) {
			to, err := netip.ParseAddrPort(addr)
			if err != nil {
				return nil, err
			}
			return tr.Dial(ctx, net.UDPAddrFromAddrPort(to), tc, qc)
		},
	}
	t.Cleanup(func() { _ = rt.Close() })
	return rt
}

// http3ProgramCallsUs runs a program with the arguments "client", port, number of requests and host.
func http3ProgramCallsUs(t *testing.T, b *testbed, program string, args ...string) {
	t.Helper()
	tc, _ := certificate(t, "h3")
	host, port, _ := net.SplitHostPort(http3Server(t, b, tc, nil))
	out, err := b.program(t, "", program, append(args, "client", port, "20", host)...)
	if err != nil || !strings.HasSuffix(out, "ok\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// weCallHTTP3Program starts a program with the arguments "server", certificate, key and host, which prints its port
// and echoes contents.
func weCallHTTP3Program(t *testing.T, b *testbed, program string, args ...string) {
	t.Helper()
	tc, client := certificate(t, "h3")
	cert, key := writePEM(t, tc)
	s := b.serve(t, program, append(args, "server", cert, key, linuxAddr)...)
	url := "https://" + net.JoinHostPort(linuxAddr, s.line(t)) + "/echo"
	c := &http.Client{Transport: http3Client(t, b, client), Timeout: patience}
	for i := range 20 {
		sent := strings.Repeat("z", i*3000)
		resp, err := c.Post(url, "text/plain", strings.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(got) != sent || resp.Header.Get("X-Method") != "POST" || resp.ProtoMajor != 3 {
			t.Fatalf("%d bytes of %d, %v, %v", len(got), len(sent), err, resp.Header)
		}
	}
}

// malformedFromH3i has cases of what HTTP/3 forbids, with the reaction that each demands.
func malformedFromH3i(t *testing.T, b *testbed) {
	tc, _ := certificate(t, "h3")
	host, port, _ := net.SplitHostPort(http3Server(t, b, tc, nil))
	out, err := b.program(t, "", built(t, "quiche-peer"), "h3i", port, host)
	if err != nil || !strings.HasSuffix(out, " passed, 0 failed\n") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(out)
}

func quicgoRequestsFromUs(t *testing.T, b *testbed) {
	tc, client := certificate(t, "h3")
	addr := http3Server(t, b, tc, nil)
	tr := &quicgo.Transport{Conn: b.packetsLinux(t)}
	defer tr.Close()
	rt := &quicgoh3.Transport{
		TLSClientConfig: client, QUICConfig: &quicgo.Config{InitialPacketSize: b.quicConfig().PacketSize},
		Dial: func(ctx context.Context, addr string, tc *tls.Config, qc *quicgo.Config) (*quicgo.Conn, error) {
			to, err := net.ResolveUDPAddr("udp4", addr)
			if err != nil {
				return nil, err
			}
			return tr.DialEarly(ctx, to, tc, qc)
		},
	}
	defer rt.Close()
	h3Exchanges(t, &http.Client{Transport: rt, Timeout: patience}, "https://"+addr)
}

func weRequestFromQUICGo(t *testing.T, b *testbed) {
	tc, client := certificate(t, "h3")
	pc := b.packetsLinux(t)
	s := &quicgoh3.Server{Handler: http.HandlerFunc(h3Handler), TLSConfig: tc, QUICConfig: &quicgo.Config{InitialPacketSize: b.quicConfig().PacketSize}}
	go func() { _ = s.Serve(pc) }()
	defer s.Close()
	h3Exchanges(t, &http.Client{Transport: http3Client(t, b, client), Timeout: patience}, "https://"+pc.LocalAddr().String())
}
