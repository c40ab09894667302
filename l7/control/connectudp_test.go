package control

import (
	"bufio"
	"bytes"
	"context"
	ctls "crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/semantics"
)

// udpClient is a tunnel of a client, by one version of HTTP.
type udpClient struct {
	status  int
	reset   bool                        // of HTTP/2: it has ended so
	made    string                      // Proxy-Status
	send    func(p []byte)              // a payload of UDP, as the client's version carries it
	capsule func(kind uint64, p []byte) // nil: send has another way
	receive func() []byte
	close   func()
}

// payloadIn returns the payload of the next capsule with one.
func payloadIn(t *testing.T, r io.Reader, c *http3.Capsules, rest *[]byte) []byte {
	t.Helper()
	for {
		for len(*rest) > 0 {
			kind, value, n, complete, err := c.Next(*rest)
			if err != nil {
				t.Error(err)
				return nil
			}
			value = bytes.Clone(value)
			if *rest = (*rest)[n:]; complete && kind == http3.CapsuleDatagram && len(value) > 0 && value[0] == 0 {
				return value[1:]
			}
		}
		b := make([]byte, 4096)
		n, err := r.Read(b)
		if *rest = append(*rest, b[:n]...); n == 0 && err != nil {
			return nil
		}
	}
}

func udpOverHTTP1(t *testing.T, addr, path string) *udpClient {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: proxy.example\r\nConnection: Upgrade\r\nUpgrade: connect-udp\r\nCapsule-Protocol: ?1\r\n\r\n", path)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == 101 && (resp.Header.Get("Upgrade") != "connect-udp" || resp.Header.Get("Capsule-Protocol") != "?1") {
		t.Errorf("%v", resp.Header)
	}
	u := &udpClient{status: resp.StatusCode, made: resp.Header.Get("Proxy-Status"), close: func() { _ = c.(*net.TCPConn).CloseWrite() }}
	var capsules http3.Capsules
	var rest []byte
	u.capsule = func(kind uint64, p []byte) { _, _ = c.Write(http3.AppendCapsule(nil, kind, p)) }
	u.send = func(p []byte) { u.capsule(http3.CapsuleDatagram, append([]byte{0}, p...)) }
	u.receive = func() []byte { return payloadIn(t, in, &capsules, &rest) }
	return u
}

// udpOverHTTP2 drives a machine of HTTP/2 over a connection.
func udpOverHTTP2(t *testing.T, addr, path string) *udpClient {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	m := http2.NewMachine(http2.RoleClient, http2.Options{})
	flush := func(out []byte) {
		if out = m.AppendControl(out); len(out) > 0 {
			_, _ = c.Write(out)
		}
	}
	s, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.AppendRequest(m.AppendControl(nil), s, &semantics.Message{
		Method: "CONNECT", Protocol: "connect-udp", Scheme: "https", Authority: "proxy.example", Path: path, ContentLength: -1,
		Fields: []semantics.Field{{Name: "capsule-protocol", Value: "?1"}},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	flush(out)
	var in, content []byte
	u := &udpClient{}
	ended := false
	// more reads until there is more content, or until the header if it is not there.
	more := func() bool {
		for had := len(content); ; {
			ev, n, err := m.Input(in)
			if in = in[n:]; err != nil {
				t.Error(err)
				return false
			}
			switch {
			case ev.Kind == http2.NeedInput:
				if flush(nil); u.status > 0 && (len(content) > had || ended) {
					return len(content) > had
				}
				b := make([]byte, 16<<10)
				n, err := c.Read(b)
				if in = append(in, b[:n]...); err != nil && n == 0 {
					return false
				}
			case ev.Stream != s:
			case ev.Kind == http2.Headers:
				u.status = s.Message.Status
				for _, f := range s.Message.Fields {
					if f.Name == "proxy-status" {
						u.made = f.Value
					}
				}
				had = len(content) - 1
				if had < 0 {
					return true
				}
			case ev.Kind == http2.Data:
				content = append(content, ev.Payload...)
				m.Consumed(s, len(ev.Payload))
			case ev.Kind == http2.End || ev.Kind == http2.Failed:
				ended, u.reset = true, ev.Kind == http2.Failed && !ended // a reset that follows the end is about the request
			}
		}
	}
	more()
	var capsules http3.Capsules
	u.capsule = func(kind uint64, p []byte) {
		out, _, err := m.AppendData(nil, s, http3.AppendCapsule(nil, kind, p), false)
		if err != nil {
			t.Error(err)
		}
		flush(out)
	}
	u.send = func(p []byte) { u.capsule(http3.CapsuleDatagram, append([]byte{0}, p...)) }
	var rest []byte
	u.receive = func() []byte {
		return payloadIn(t, readerFunc(func(b []byte) (int, error) {
			if len(content) == 0 && !more() {
				return 0, io.EOF
			}
			n := copy(b, content)
			content = content[n:]
			return n, nil
		}), &capsules, &rest)
	}
	u.close = func() {
		out, _, _ := m.AppendData(nil, s, nil, true)
		flush(out)
	}
	return u
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func udpOverHTTP3(t *testing.T, addr, path string, roots *x509.CertPool, datagrams bool) *udpClient {
	tr := &http3.Transport{TLS: &ctls.Config{RootCAs: roots, ServerName: "proxy.example"}, Machine: http3.MachineOptions{Datagrams: datagrams}}
	t.Cleanup(func() { _ = tr.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	to := &url.URL{Scheme: "https", Host: addr, Path: path}
	if p, err := url.PathUnescape(path); err == nil && p != path {
		to.Path, to.RawPath = p, path
	}
	req := &http.Request{Method: "CONNECT", URL: to, Host: "proxy.example", Header: http.Header{":protocol": {"connect-udp"}, "Capsule-Protocol": {"?1"}}}
	tunnel, resp, err := tr.DialTunnel(ctx, req)
	if resp == nil {
		t.Fatal(err)
	}
	u := &udpClient{status: resp.StatusCode, made: resp.Header.Get("Proxy-Status")}
	if tunnel == nil {
		return u
	}
	u.capsule = func(kind uint64, p []byte) { _, _ = tunnel.Write(http3.AppendCapsule(nil, kind, p)) }
	u.close = func() { _ = tunnel.Close() }
	if !datagrams { // RFC 9297 3.5
		var capsules http3.Capsules
		var rest []byte
		u.send = func(p []byte) { u.capsule(http3.CapsuleDatagram, append([]byte{0}, p...)) }
		u.receive = func() []byte { return payloadIn(t, tunnel, &capsules, &rest) }
		return u
	}
	u.send = func(p []byte) { _ = tunnel.SendDatagram(append([]byte{0}, p...)) }
	u.receive = func() []byte {
		p, err := tunnel.ReceiveDatagram(ctx)
		if err != nil || len(p) == 0 || p[0] != 0 {
			return nil
		}
		return p[1:]
	}
	return u
}

const tunnelFile = `
listeners:
  - {name: plain, address: "ADDR", protocol: HTTP, versions: ["1.1", "2"]}
  - {name: secure, address: "SECURE", protocol: HTTPS, versions: ["3"], tls: {certificates: [{cert: "CERT"}]}}
routes:
  - name: r
    rules:
      - {name: udp, matches: [{path: {value: /.well-known/masque/udp}}], connect_udp: {targets: ["TARGETS"], tunnels: 2, idle: 30s}}
      - {name: rest, filters: [{type: FixedResponse, body: x}]}
`

// tunnelGateway is a gateway with a rule of tunnels.
func tunnelGateway(t *testing.T, targets string) (r *running, dial map[string]func(path string) *udpClient) {
	t.Helper()
	secure, file, roots := secureFile(t)
	text := strings.NewReplacer("SECURE", secure, "CERT", file, "TARGETS", targets).Replace(tunnelFile)
	r = serve(t, text)
	return r, map[string]func(path string) *udpClient{
		"HTTP/1.1":                 func(path string) *udpClient { return udpOverHTTP1(t, r.addr.String(), path) },
		"HTTP/2":                   func(path string) *udpClient { return udpOverHTTP2(t, r.addr.String(), path) },
		"HTTP/3":                   func(path string) *udpClient { return udpOverHTTP3(t, secure, path, roots, true) },
		"HTTP/3 without datagrams": func(path string) *udpClient { return udpOverHTTP3(t, secure, path, roots, false) },
	}
}

// Datagrams pass in both directions with each version; capsules of other types, and datagrams of other contexts, are passed over.
func TestDatagramsPassThroughTunnels(t *testing.T) {
	at := testport.EchoUDP(t)
	r, dial := tunnelGateway(t, "127.0.0.0/8:*")
	for version, dial := range dial {
		u := dial(fmt.Sprintf("/.well-known/masque/udp/127.0.0.1/%d/", at.Port))
		if want := map[string]int{"HTTP/1.1": 101}[version]; u.status != want && (want > 0 || u.status != 200) {
			t.Errorf("%s: status %d", version, u.status)
			continue
		}
		u.capsule(0x1234, bytes.Repeat([]byte("y"), 100_000))
		u.capsule(http3.CapsuleDatagram, []byte{5, 'n', 'o'})
		for _, p := range []string{"hello", "", strings.Repeat("x", 1100)} {
			if u.send([]byte(p)); string(u.receive()) != p {
				t.Errorf("%s: a datagram of %d bytes does not come back", version, len(p))
			}
		}
		u.capsule(http3.CapsuleDatagram, append([]byte{0}, "by a capsule"...)) // with HTTP/3 too (RFC 9297 3.5)
		if got := string(u.receive()); got != "by a capsule" {
			t.Errorf("%s: %q by a capsule", version, got)
		}
		if got := metricsOf(t, r); !strings.Contains(got, `millrace_http_udp_tunnels{rule="r/udp"} 1`) {
			t.Errorf("%s: %s", version, got)
		}
		u.close()
		eventually(t, version+": the tunnel is closed", func() bool { return strings.Contains(metricsOf(t, r), `millrace_http_udp_tunnels{rule="r/udp"} 0`) })
	}
	got := metricsOf(t, r)
	for _, want := range []string{
		`millrace_http_udp_tunnels_total{rule="r/udp",result="opened"} 4`, `millrace_http_udp_tunnel_datagrams_total{rule="r/udp",direction="to_target"} 16`,
		`millrace_http_udp_tunnel_datagrams_total{rule="r/udp",direction="from_target"} 16`, `millrace_http_udp_tunnel_dropped_datagrams_total{rule="r/udp"} 4`,
	} {
		if !strings.Contains(sorted(got), sorted(want)) {
			t.Errorf("lacks %s:\n%s", want, got)
		}
	}
}

// sorted has labels in one order.
func sorted(s string) string {
	return strings.NewReplacer(`{result="opened",rule="r/udp"}`, `{rule="r/udp",result="opened"}`, `{direction="to_target",rule="r/udp"}`, `{rule="r/udp",direction="to_target"}`,
		`{direction="from_target",rule="r/udp"}`, `{rule="r/udp",direction="from_target"}`).Replace(s)
}

func metricsOf(t *testing.T, r *running) string {
	t.Helper()
	reg := metrics.NewRegistry(metrics.Build{})
	reg.Add(r.WriteMetrics)
	var b bytes.Buffer
	if err := reg.WriteText(&b, metrics.Selection{All: true}); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, "udp_tunnel") && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// eventually waits until something holds, within a bound that only ends a hang.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 2000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("not: %s", what)
}

// What may not be reached is answered 403, and what is no target 400; a rule without tunnels has none.
func TestTunnelsThatAreRefused(t *testing.T) {
	_, dial := tunnelGateway(t, "0.0.0.0/0:53-60000")
	for version, dial := range dial {
		for path, want := range map[string]int{
			"/.well-known/masque/udp/127.0.0.1/53/":              403,
			"/.well-known/masque/udp/169.254.169.254/80/":        403,
			"/.well-known/masque/udp/192.0.2.1/52/":              403,
			"/.well-known/masque/udp/%3A%3Affff%3A127.0.0.1/53/": 403,
			"/.well-known/masque/udp/127.1/53/":                  400,
			"/.well-known/masque/udp/192.0.2.1/":                 400,
			"/other":                                             map[string]int{"HTTP/1.1": 200}[version], // the upgrade is ignored
		} {
			if want == 0 {
				want = 405
			}
			u := dial(path)
			if u.status != want || want == 403 && !strings.Contains(u.made, "destination_ip_prohibited") {
				t.Errorf("%s %s: %d %q, want %d", version, path, u.status, u.made, want)
			}
		}
	}
}

// More tunnels than the rule may have get 503, and a wrong capsule ends one.
func TestTunnelsHaveABound(t *testing.T) {
	at := testport.EchoUDP(t)
	r, dial := tunnelGateway(t, "127.0.0.1:*")
	path := fmt.Sprintf("/.well-known/masque/udp/127.0.0.1/%d/", at.Port)
	one, two := dial["HTTP/1.1"](path), dial["HTTP/3"](path)
	if one.status != 101 || two.status != 200 {
		t.Fatalf("%d, %d", one.status, two.status)
	}
	if u := dial["HTTP/2"](path); u.status != 503 {
		t.Errorf("a third tunnel: %d", u.status)
	}
	one.capsule(http3.CapsuleDatagram, make([]byte, 70_000)) // more than a payload of UDP
	if got := one.receive(); got != nil {
		t.Errorf("%d bytes after a wrong capsule", len(got))
	}
	eventually(t, "one tunnel is left", func() bool { return strings.Contains(metricsOf(t, r), `millrace_http_udp_tunnels{rule="r/udp"} 1`) })
	if u := dial["HTTP/2"](path); u.status != 200 {
		t.Errorf("a tunnel in its place: %d", u.status)
	}
}

// secureFile returns an address of UDP that was free a moment ago, and a certificate with its key in a file.
func secureFile(t *testing.T) (addr, file string, roots *x509.CertPool) {
	t.Helper()
	cert, roots := testcert.SelfSigned("proxy.example")
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	file = filepath.Join(t.TempDir(), "both.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return testport.Hold(t).String(), file, roots
}

// A tunnel without datagrams ends by its time, as a message that is complete.
func TestTunnelsEndByTheirTime(t *testing.T) {
	at := testport.EchoUDP(t)
	r := serve(t, strings.NewReplacer("TARGETS", "127.0.0.1:*", "idle: 30s", "idle: 1s", `  - {name: secure, address: "SECURE", protocol: HTTPS, versions: ["3"], tls: {certificates: [{cert: "CERT"}]}}`+"\n", "").Replace(tunnelFile))
	u := udpOverHTTP2(t, r.addr.String(), fmt.Sprintf("/.well-known/masque/udp/127.0.0.1/%d/", at.Port))
	if u.status != 200 {
		t.Fatalf("status %d", u.status)
	}
	if got := u.receive(); got != nil { // until the gateway ends it
		t.Errorf("%q", got)
	}
	if u.reset {
		t.Error("the tunnel was reset")
	}
	eventually(t, "the tunnel is closed", func() bool { return strings.Contains(metricsOf(t, r), `millrace_http_udp_tunnels{rule="r/udp"} 0`) })
}
