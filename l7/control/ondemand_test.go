package control

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	ctls "crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/quic"
)

// must ends the test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reload makes a configuration the one in use.
func reload(t *testing.T, s *Set, src string) {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte("admin: {socket: \"\"}\n"+src))
	must(t, err)
	must(t, s.Reload(cfg))
}

// demandFolder makes the folder of an authority's certificates, with those of names, and returns it with their roots.
func demandFolder(t *testing.T, directory string, names ...string) (dir string, roots *x509.CertPool) {
	t.Helper()
	dir, roots = t.TempDir(), x509.NewCertPool()
	sum := sha256.Sum256([]byte(directory))
	folder := filepath.Join(dir, hex.EncodeToString(sum[:8]), "certificates")
	must(t, os.MkdirAll(folder, 0o700))
	for _, name := range names {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		pair, _ := testcert.SelfSignedBy(key, name)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		must(t, err)
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		must(t, err)
		roots.AddCert(leaf)
		text := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})...)
		must(t, os.WriteFile(filepath.Join(folder, name+".pem"), text, 0o600))
	}
	return dir, roots
}

// TestCertificatesOnDemand has clients ask for names whose certificates are in the folder: a program permits some of them.
func TestCertificatesOnDemand(t *testing.T) {
	var asked atomic.Int64
	ask := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Query().Get("domain") != "good.example" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(ask.Close)
	const directory = "https://ca.invalid/directory"
	dir, roots := demandFolder(t, directory, "good.example", "bad.example", "listed.example")
	at := testport.Hold(t).String()
	src := fmt.Sprintf(`
loops: 1
listeners: [{name: web, address: %q, protocol: HTTPS, tls: {acme: {dir: %q, agree_to_terms: true, directory: %q, on_demand: {names: [listed.example], ask: %q}}}}]
routes: [{name: r, rules: [{filters: [{type: FixedResponse, status_code: 200, body: hello}]}]}]
`, at, dir, directory, ask.URL+"/ask")
	s := openSet(t, src, nil)
	ended := make(chan error, 1)
	go func() { ended <- s.Run() }()
	defer func() {
		s.Shutdown()
		must(t, <-ended)
	}()
	dial := func(name string) error {
		c, err := ctls.Dial("tcp", at, &ctls.Config{RootCAs: roots, ServerName: name})
		if err == nil {
			err = c.Close()
		}
		return err
	}
	for range 2 {
		for _, name := range []string{"good.example", "listed.example"} {
			if err := dial(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := dial("bad.example"); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("bad.example: %v", err)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
	st := s.Status(func(string) bool { return true }).Listeners[0].OnDemand
	if st == nil || st.Certificates != 2 || st.Obtained != 2 || st.Asked != 2 || st.Refused == 0 || st.Failed != 0 {
		t.Errorf("%+v", st)
	}
	var reg metrics.Registry
	reg.Add(s.WriteMetrics)
	var text strings.Builder
	must(t, reg.WriteText(&text, metrics.Selection{}))
	scrape := text.String()
	for _, line := range []string{`millrace_http_demand_certificates{listener="web"} 2`, `millrace_http_demand_asked_total{listener="web"} 2`} {
		if !strings.Contains(scrape, line) {
			t.Errorf("no %q", line)
		}
	}
	reload(t, s, strings.Replace(src, "names: [listed.example]", "names: [listed.example], certificates: 9", 1))
	if err := errors.Join(dial("good.example"), dial("listed.example")); err != nil {
		t.Errorf("after a reload: %v", err)
	}
	reload(t, s, strings.Replace(src, ", ask: \""+ask.URL+"/ask\"", "", 1))
	if err := dial("good.example"); err == nil || dial("listed.example") != nil {
		t.Errorf("a name that is permitted no more: %v", err)
	}
}

// TestCertificatesOnDemandOverHTTP3 has handshakes of HTTP/3 wait for a certificate as those over TCP do, side by side, and end where there
// is none within the time.
func TestCertificatesOnDemandOverHTTP3(t *testing.T) {
	ask, answer := make(chan string, 9), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ask <- r.URL.Query().Get("domain")
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	const directory = "https://ca.invalid/directory"
	dir, roots := demandFolder(t, directory, "a.example", "b.example")
	src := fmt.Sprintf(`
loops: 1
listeners:
- {name: web, address: %q, protocol: HTTPS, versions: ["2", "3"], tls: {acme: {dir: %q, agree_to_terms: true, directory: %q, on_demand: {ask: %q, wait: 1m}}}}
- {name: short, address: %q, protocol: HTTPS, versions: ["2", "3"], tls: {acme: {dir: %q, agree_to_terms: true, directory: %q, on_demand: {ask: %q, wait: 1s}}}}
routes: [{name: r, rules: [{filters: [{type: FixedResponse, status_code: 200, body: hello}]}]}]
`, testport.Hold(t), dir, directory, server.URL, testport.Hold(t), t.TempDir(), directory, server.URL)
	s := openSet(t, src, nil)
	ended := make(chan error, 1)
	go func() { ended <- s.Run() }()
	defer func() {
		s.Shutdown()
		must(t, <-ended)
	}()
	at := func(i int) string {
		return s.Status(func(string) bool { return true }).Listeners[i].Addresses[0].String()
	}
	get := func(addr, name string) error {
		tr := &http3.Transport{TLS: &ctls.Config{RootCAs: roots, ServerName: name}, QUIC: &quic.Config{HandshakeTimeout: time.Minute}}
		defer tr.Close()
		q, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+addr+"/", nil)
		must(t, err)
		q.Host = name
		resp, err := tr.RoundTrip(q)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	results := make(chan error, 4)
	for _, name := range []string{"a.example", "b.example", "a.example"} {
		go func() { results <- get(at(0), name) }()
	}
	for range 2 {
		<-ask // both names wait, each asked for once
	}
	if err := get(at(1), "c.example"); err == nil {
		t.Error("a name beyond the limit gets a certificate")
	}
	select {
	case err := <-results:
		t.Fatalf("a handshake has not waited: %v", err)
	default:
	}
	close(answer)
	for range 3 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	for _, l := range s.Status(func(string) bool { return true }).Listeners {
		if l.OnDemand.Waiting != 0 {
			t.Errorf("%s: %d handshakes wait", l.Name, l.OnDemand.Waiting)
		}
	}
}
