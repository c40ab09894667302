package daemon

import (
	ctls "crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	l4control "github.com/millrace/millrace/l4/control"
)

// prefaced is a listener whose connections have to begin with a text.
type prefaced struct {
	net.Listener
	text string
}

func (l *prefaced) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		got := make([]byte, len(l.text))
		if _, err := io.ReadFull(c, got); err == nil && string(got) == l.text {
			return c, nil
		}
		c.Close()
	}
}

// The headers of the PROXY protocol for connections without a client (2.1, 2.2: UNKNOWN, and LOCAL with no addresses).
const (
	unknown1 = "PROXY UNKNOWN\r\n"
	local2   = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
)

// Probes connect to backends as the pool does: with a header of the PROXY protocol, HTTP/2 alone, the name and the authorities that the
// pool expects, and its certificate.
func TestProbesConnectAsTheirPool(t *testing.T) {
	for _, c := range []struct {
		name, preface, pool string
		major               int
		tls                 bool
	}{
		{name: "PROXY 1", preface: unknown1, pool: "proxy_protocol: v1, health: {type: http", major: 1},
		{name: "PROXY 2", preface: local2, pool: "proxy_protocol: v2, health: {type: http", major: 1},
		{name: "HTTP/2", pool: "protocol: H2C, health: {type: http", major: 2},
		{name: "TLS", pool: "protocol: HTTPS, TLS, health: {type: https", major: 1, tls: true},
		{name: "gRPC", pool: "protocol: H2C, health: {type: grpc", major: 2},
		{name: "gRPC and all", preface: local2, pool: "protocol: H2, proxy_protocol: v2, TLS, health: {type: grpcs, grpc: {service: a.b}", major: 2, tls: true},
		{name: "all", preface: local2, pool: "protocol: H2, proxy_protocol: v2, TLS, health: {type: https", major: 2, tls: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			ca := writePair(t, dir, "inner.test")
			pair := filepath.Join(dir, "inner.test")
			var probes atomic.Int64
			backend := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
			backend.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if named := r.TLS == nil || r.TLS.ServerName == "inner.test"; named && r.ProtoMajor == c.major && r.Header.Get("User-Agent") == "millrace-health" {
					probes.Add(1)
					if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
						w.Header().Set("Content-Type", "application/grpc")
						io.WriteString(w, "\x00\x00\x00\x00\x02\x08\x01") // SERVING
						w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
					}
				}
			})
			backend.Protocols.SetHTTP1(c.major == 1)
			backend.Protocols.SetHTTP2(c.major == 2 && c.tls)
			backend.Protocols.SetUnencryptedHTTP2(c.major == 2 && !c.tls)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := &prefaced{ln, c.preface}
			if c.tls {
				backend.TLSConfig = &ctls.Config{ClientCAs: ca, ClientAuth: ctls.RequireAndVerifyClientCert}
				go backend.ServeTLS(served, pair, pair)
			} else {
				go backend.Serve(served)
			}
			t.Cleanup(func() { _ = backend.Close() })
			tls := strings.ReplaceAll("tls: {server_name: inner.test, ca_file: PAIR, certificate: {cert: PAIR}}", "PAIR", pair)
			src := strings.NewReplacer("TLS", tls).Replace(c.pool)
			s := newSite(t, strings.NewReplacer("BACKEND", ln.Addr().String(), "{name: p,", "{name: p, "+src+", interval: 200ms, timeout: 200ms, fall: 1, rise: 1},").
				Replace(descriptorsConfig))
			await(t, func() bool {
				st, err := s.admin.Status(t.Context(), l4control.Selection{})
				return probes.Load() >= 3 && err == nil && st.Listeners.Pools[0].Backends[0].Healthy
			})
		})
	}
}
