package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testport"
	l7control "github.com/millrace/millrace/l7/control"
)

// tunnelGateway is a gateway with tunnels of UDP to the loopback, at an address of HTTP/3.
func tunnelGateway(t *testing.T) (addr string, roots *x509.CertPool) {
	t.Helper()
	cert, roots := testcert.SelfSigned("proxy.example")
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "both.pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	addr = testport.Hold(t).String()
	cfg, err := config.Parse("f", fmt.Appendf(nil, `
listeners: [{name: l, address: %q, protocol: HTTPS, versions: ["3"], tls: {certificates: [{cert: %q}]}}]
routes: [{name: r, rules: [{matches: [{path: {value: /.well-known/masque/udp}}], connect_udp: {targets: ["127.0.0.1:*"]}}]}]
`, addr, file))
	if err != nil {
		t.Fatal(err)
	}
	set, err := l7control.Open(cfg, l7control.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- set.Run() }()
	t.Cleanup(func() {
		set.Shutdown()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return addr, roots
}

// TestConnectUDPWithQuicGo has quic-go's client of HTTP/3 open a tunnel, as masque-go does with it, and relay datagrams.
func TestConnectUDPWithQuicGo(t *testing.T) {
	addr, roots := tunnelGateway(t)
	target := testport.EchoUDP(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := quic.DialAddr(ctx, addr, &tls.Config{RootCAs: roots, ServerName: "proxy.example", NextProtos: []string{http3.NextProtoH3}}, &quic.Config{EnableDatagrams: true, InitialPacketSize: 1350})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseWithError(0, "")
	client := (&http3.Transport{EnableDatagrams: true}).NewClientConn(conn)
	select {
	case <-client.ReceivedSettings():
	case <-ctx.Done():
		t.Fatal("no settings")
	}
	if s := client.Settings(); !s.EnableDatagrams || !s.EnableExtendedConnect {
		t.Fatalf("settings %+v", s)
	}
	open := func(port int) (*http3.RequestStream, int) {
		stream, err := client.OpenRequestStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("/.well-known/masque/udp/127.0.0.1/%d/", port)
		err = stream.SendRequestHeader(&http.Request{
			Method: http.MethodConnect, Proto: "connect-udp", Host: "proxy.example", Header: http.Header{http3.CapsuleProtocolHeader: {"?1"}},
			URL: &url.URL{Scheme: "https", Host: "proxy.example", Path: path},
		})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := stream.ReadResponse()
		if err != nil {
			t.Fatal(err)
		}
		return stream, resp.StatusCode
	}
	if _, status := open(0); status != 400 {
		t.Errorf("port 0: %d", status)
	}
	stream, status := open(target.Port)
	if status != 200 {
		t.Fatalf("status %d", status)
	}
	for i := range 200 {
		want := fmt.Sprintf("%d %s", i, strings.Repeat("x", i*6))
		if err := stream.SendDatagram(append([]byte{0}, want...)); err != nil {
			t.Fatal(err)
		}
		if got, err := stream.ReceiveDatagram(ctx); err != nil || len(got) == 0 || string(got[1:]) != want {
			t.Fatalf("datagram %d: %d bytes, %v", i, len(got), err)
		}
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	if n, err := stream.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("%d bytes, %v at the end of the tunnel", n, err)
	}
}
