package interop

import (
	stdtls "crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
	quichttp3 "github.com/quic-go/quic-go/http3"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/testport"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/tls/acme"
)

// TestGatewayObtainsCertificates has a gateway prove its names to pebble by each challenge, serve by what it gets, and go on after a
// restart without an order.
func TestGatewayObtainsCertificates(t *testing.T) {
	for _, challenge := range []string{"http-01", "tls-alpn-01"} {
		t.Run(challenge, func(t *testing.T) {
			plain, secure := testport.Hold(t), testport.Hold(t)
			p := startPebbleFor(t, int(plain.Port()), int(secure.Port()))
			dir := t.TempDir()
			ca := filepath.Join(dir, "ca.pem")
			if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.authority.Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf(`
listeners:
- {name: plain, address: "%s", protocol: HTTP}
- name: web
  address: "%s"
  protocol: HTTPS
  tls: {acme: {names: [www.a.example, a.example], dir: "%s", agree_to_terms: true, directory: "%s", ca_file: "%s", challenges: %s}}
routes: [{name: r, rules: [{filters: [{type: FixedResponse, body: "served"}]}]}]
`, plain, secure, filepath.Join(dir, "acme"), p.directory, ca, challenge)
			get := func(name string) (string, error) {
				tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &stdtls.Config{RootCAs: p.roots, ServerName: name}}
				q, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+secure.String()+"/", nil)
				if err != nil {
					return "", err
				}
				q.Host = name
				resp, err := tr.RoundTrip(q)
				if err != nil {
					return "", err
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				return string(b), err
			}
			run := func(log io.Writer) (s *l7control.Set, stop func()) {
				cfg, err := config.Parse("f", []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				s, err = l7control.Open(cfg, l7control.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- s.Run() }()
				stop = sync.OnceFunc(func() { // the folder is free at the end of Run
					s.Shutdown()
					if err := <-done; err != nil {
						t.Error(err)
					}
				})
				t.Cleanup(stop)
				return s, stop
			}
			var log strings.Builder
			s, stop := run(&log)
			for _, name := range []string{"www.a.example", "a.example"} {
				for {
					body, err := get(name)
					if err == nil && body == "served" {
						break
					}
					select {
					case <-t.Context().Done():
						t.Fatalf("%s: %q, %v", name, body, err)
					case <-time.After(20 * time.Millisecond):
					}
				}
			}
			certs := s.Status(nil).Listeners[1].Certificates
			if len(certs) != 2 || certs[0].NotAfter == nil || time.Until(*certs[0].NotAfter) < 24*time.Hour || certs[0].Next == nil || certs[0].Error != "" || certs[0].File != "" {
				t.Errorf("%+v", certs)
			}
			if resp, err := http.Get("http://" + plain.String() + "/.well-known/acme-challenge/unknown"); err != nil || resp.StatusCode != 200 {
				t.Errorf("a token of another client does not reach the rules: %v, %v", resp, err)
			}
			http.DefaultClient.CloseIdleConnections()
			stop()
			if n := strings.Count(log.String(), "the certificate is in use"); n != 2 {
				t.Errorf("%d certificates in the log:\n%s", n, log.String())
			}

			again := &strings.Builder{} // a restart serves what is stored, at once
			s, stop = run(again)
			if body, err := get("a.example"); err != nil || body != "served" {
				t.Errorf("after a restart: %q, %v", body, err)
			}
			cfg, err := config.Parse("f", []byte(strings.Replace(text, "www.a.example, a.example", "a.example", 1)))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Reload(cfg); err != nil { // other names, the same account
				t.Fatal(err)
			}
			if body, err := get("a.example"); err != nil || body != "served" {
				t.Errorf("after a reload: %q, %v", body, err)
			}
			if cfg, err = config.Parse("f", []byte(strings.Replace(text, p.directory, acme.LetsEncryptStaging, 1))); err != nil {
				t.Fatal(err)
			}
			if err := s.Reload(cfg); err == nil || !strings.Contains(err.Error(), "another authority") {
				t.Errorf("a reload with another authority: %v", err)
			}
			stop()
			if strings.Contains(again.String(), "the certificate is in use") {
				t.Errorf("an order after a restart:\n%s", again)
			}
		})
	}
}

// TestGatewayObtainsCertificatesOnDemand has clients ask for names of which the gateway has no certificate, over TCP and HTTP/3: the handshake
// waits while pebble issues it, names without a permission get none, and a restart goes on by what is in the folder.
func TestGatewayObtainsCertificatesOnDemand(t *testing.T) {
	plain, secure := testport.Hold(t), testport.Hold(t)
	p := startPebbleFor(t, int(plain.Port()), int(secure.Port()))
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.authority.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse("f", fmt.Appendf(nil, `
listeners:
- {name: plain, address: "%s", protocol: HTTP}
- name: web
  address: "%s"
  protocol: HTTPS
  versions: ["1.1", "3"]
  tls: {acme: {dir: "%s", agree_to_terms: true, directory: "%s", ca_file: "%s", on_demand: {names: [tcp.a.example, quic.a.example], wait: 1m}}}
routes: [{name: r, rules: [{filters: [{type: FixedResponse, body: "served"}]}]}]
`, plain, secure, filepath.Join(dir, "acme"), p.directory, ca))
	if err != nil {
		t.Fatal(err)
	}
	get := func(tr http.RoundTripper, name string) (string, error) {
		q, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+secure.String()+"/", nil)
		if err != nil {
			return "", err
		}
		q.Host = name
		resp, err := tr.RoundTrip(q)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	over := map[string]func(name string) (string, error){
		"tcp": func(name string) (string, error) {
			return get(&http.Transport{DisableKeepAlives: true, TLSClientConfig: &stdtls.Config{RootCAs: p.roots, ServerName: name}}, name)
		},
		"quic": func(name string) (string, error) {
			tr := &quichttp3.Transport{TLSClientConfig: &stdtls.Config{RootCAs: p.roots, ServerName: name}, QUICConfig: &quicgo.Config{HandshakeIdleTimeout: time.Minute}}
			defer tr.Close()
			return get(tr, name)
		},
	}
	for start := range 2 {
		s, err := l7control.Open(cfg, l7control.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Run() }()
		stop := sync.OnceFunc(func() {
			s.Shutdown()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(stop)
		for by, ask := range over {
			if text, err := ask(by + ".a.example"); text != "served" {
				t.Errorf("start %d, %s: %q %v", start, by, text, err)
			}
			if _, err := ask("none.a.example"); err == nil {
				t.Errorf("%s: a name that is not permitted is served", by)
			}
		}
		st := s.Status(func(string) bool { return true }).Listeners[1].OnDemand
		if st == nil || st.Certificates != 2 || st.Obtained != 2 || st.Failed != 0 || st.Refused == 0 {
			t.Errorf("start %d: %+v", start, st)
		}
		stop()
	}
}
