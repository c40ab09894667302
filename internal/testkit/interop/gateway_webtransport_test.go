package interop

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/http3"
	headless "github.com/millrace/millrace/internal/testkit/chromium"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testport"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/quic"
)

// sessionsGateway is a gateway at an address of the loopback that lets sessions through to a backend. file has its certificate, for b and
// 127.0.0.1, and the key.
func sessionsGateway(t *testing.T, backend string) (addr, file string, cert tls.Certificate, roots *x509.CertPool) {
	t.Helper()
	cert, roots = testcert.SelfSigned("b", net.IPv4(127, 0, 0, 1))
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "both.pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	addr = testport.Hold(t).String()
	cfg, err := config.Parse("f", fmt.Appendf(nil, `
listeners: [{name: l, address: %q, protocol: HTTPS, versions: ["3"], tls: {certificates: [{cert: %q}]}}]
routes: [{name: r, rules: [{webtransport: {}, backend_refs: [{name: p}]}]}]
pools: [{name: p, protocol: H3, tls: {insecure: true}, backends: [{address: %q}]}]
`, addr, file, backend))
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
	return addr, file, cert, roots
}

// sessionsBackend serves sessions by package http3.
func sessionsBackend(t *testing.T, h http.Handler) (addr string) {
	t.Helper()
	cert, _ := testcert.SelfSigned("b", net.IPv4(127, 0, 0, 1))
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http3.Server{
		Handler: h, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, QUIC: &quic.Config{ResetAt: true},
		Machine: http3.MachineOptions{WebTransport: 16, Session: sessionLimits},
	}
	go func() { _ = server.Serve(pc) }()
	t.Cleanup(func() { _ = server.Close() })
	return pc.LocalAddr().String()
}

// webTransportGo returns the program of webtransport-go.
func webTransportGo(t *testing.T) string {
	t.Helper()
	if os.Getenv("MILLRACE_PEERS") == "" {
		t.Skip("MILLRACE_PEERS is not set: make interop-peers")
	}
	return built(t, "webtransport-peer")
}

// TestWebTransportGoThroughGateway has webtransport-go's client use a session through the gateway, to a backend of package http3 and to
// one of its own.
func TestWebTransportGoThroughGateway(t *testing.T) {
	program := webTransportGo(t)
	calls := func(t *testing.T, addr string) {
		t.Helper()
		to := netip.MustParseAddrPort(addr)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if out, err := exec.CommandContext(ctx, program, "client", fmt.Sprint(to.Port()), to.Addr().String()).CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "ok\n") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	t.Run("to package http3", func(t *testing.T) {
		ended := make(chan error, 1)
		addr, _, _, _ := sessionsGateway(t, sessionsBackend(t, sessionHandler(ended)))
		calls(t, addr)
		wantSessionClosed(t, ended)
	})
	t.Run("to webtransport-go", func(t *testing.T) {
		backend, line := webTransportGoServer(t, program)
		addr, _, _, _ := sessionsGateway(t, backend)
		calls(t, addr)
		if got := line(); got != "closed 77 bye" {
			t.Errorf("the backend prints %q", got)
		}
	})
}

// webTransportGoServer runs webtransport-go's server. line returns the next line that it prints.
func webTransportGoServer(t *testing.T, program string) (addr string, line func() string) {
	t.Helper()
	tc, _ := certificate(t, "h3")
	cert, key := writePEM(t, tc)
	cmd := exec.Command(program, "server", cert, key, "127.0.0.1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // it ends by that
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	line = func() string {
		lines.Scan()
		return lines.Text()
	}
	return net.JoinHostPort("127.0.0.1", line()), line
}

// TestWebTransportThroughGatewayToWebTransportGo has package http3's client use a session through the gateway, to a backend of webtransport-go.
func TestWebTransportThroughGatewayToWebTransportGo(t *testing.T) {
	backend, line := webTransportGoServer(t, webTransportGo(t))
	addr, _, _, roots := sessionsGateway(t, backend)
	tr := &http3.Transport{
		TLS: &tls.Config{RootCAs: roots}, QUIC: &quic.Config{Datagrams: true, ResetAt: true}, Machine: http3.MachineOptions{WebTransport: 16, Session: sessionLimits},
	}
	t.Cleanup(func() { _ = tr.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, _, err := tr.DialSession(ctx, "https://"+addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	driveSession(t, ctx, s)
	if err := s.CloseWithError(77, "bye"); err != nil {
		t.Error(err)
	}
	if got := line(); got != "closed 77 bye" {
		t.Errorf("the backend prints %q", got)
	}
}

// TestWebTransportOfChromiumThroughGateway has a page in Chromium use a session through the gateway. Its certificate is one that the page names.
func TestWebTransportOfChromiumThroughGateway(t *testing.T) {
	ended := make(chan error, 1)
	addr, _, cert, _ := sessionsGateway(t, sessionsBackend(t, sessionHandlerOfAll(ended)))
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!DOCTYPE html><title>sessions</title>")
	}))
	t.Cleanup(site.Close)
	page := headless.Open(t)
	page.Go(site.URL)
	page.Await("document.title === 'sessions'")
	hash := sha256.Sum256(cert.Certificate[0])
	got := page.Eval(fmt.Sprintf(`(async () => {
		const check = (ok, what) => { if (!ok) throw new Error(what); };
		const text = async stream => await new Response(stream).text();
		const first = async stream => { const r = stream.getReader(); const {value} = await r.read(); r.releaseLock(); return value; };
		const write = async (stream, s) => { const w = stream.getWriter(); await w.write(new TextEncoder().encode(s)); await w.close(); };
		const wt = new WebTransport('https://%s/wt', {serverCertificateHashes: [{algorithm: 'sha-256', value: new Uint8Array(%s)}]});
		await wt.ready;
		const greeting = await text((await first(wt.incomingBidirectionalStreams)).readable);
		check(greeting === 'from the server', 'greeting ' + greeting);
		for (let i = 0; i < 5; i++) {
			const s = await wt.createBidirectionalStream();
			const sent = ('' + i).repeat(60000);
			const [, got] = await Promise.all([write(s.writable, sent), text(s.readable)]);
			check(got === sent, got.length + ' bytes come back');
		}
		await write(await wt.createUnidirectionalStream(), 'shout');
		const shout = await text(await first(wt.incomingUnidirectionalStreams));
		check(shout === 'SHOUT', 'unidirectional ' + shout);
		const w = wt.datagrams.writable.getWriter(), r = wt.datagrams.readable.getReader();
		const sending = setInterval(() => w.write(new TextEncoder().encode('datagram')), 100);
		const {value} = await r.read();
		clearInterval(sending);
		check(new TextDecoder().decode(value) === 'datagram', 'datagram ' + value);
		wt.close({closeCode: 77, reason: 'bye'});
	})().then(() => 'ok', e => 'failed: ' + e)`, addr, strings.ReplaceAll(fmt.Sprint(hash[:]), " ", ",")))
	if got != "ok" {
		t.Fatal(got)
	}
	wantSessionClosed(t, ended)
}

// sessionHandlerOfAll is sessionHandler for pages of any origin.
func sessionHandlerOfAll(ended chan error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, err := http3.AcceptSession(w, r, &http3.AcceptOptions{CheckOrigin: func(*http.Request) bool { return true }})
		if err != nil {
			ended <- err
			return
		}
		serveSession(s)
		ended <- context.Cause(s.Context())
	}
}
