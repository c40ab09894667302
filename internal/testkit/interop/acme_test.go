package interop

import (
	"bytes"
	"context"
	"crypto"
	stdtls "crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letsencrypt/challtestsrv"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/core"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"

	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/tls"
	"github.com/millrace/millrace/tls/acme"
)

// pebble is the ACME server of Let's Encrypt's tests, in this process. It rejects some nonces, and
// resolves every name to 127.0.0.1, where it proves control on the ports of site.
type pebble struct {
	directory string
	client    *http.Client
	authority *x509.Certificate // of the directory's HTTPS
	manage    *httptest.Server
	roots     *x509.CertPool
	db        *db.MemoryStore
}

// site is a server that obtains its certificates, on two ports.
type site struct {
	http, https net.Listener
	store       *tls.Store
	manager     atomic.Pointer[acme.Manager]
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func port(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// startPebble starts the authority.
func startPebble(t *testing.T, s *site) *pebble {
	t.Helper()
	return startPebbleFor(t, port(s.http), port(s.https))
}

// startPebbleFor is startPebble for the ports at which control is proven.
func startPebbleFor(t *testing.T, http01, tls01 int) *pebble {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "15")
	t.Setenv("PEBBLE_AUTHZREUSE", "0")
	quiet := log.New(io.Discard, "", 0)
	dnsAddr := freePort(t)
	dns, err := challtestsrv.New(challtestsrv.Config{Log: quiet, DNSAddrs: []string{dnsAddr}})
	if err != nil {
		t.Fatal(err)
	}
	dns.SetDefaultDNSIPv4("127.0.0.1")
	dns.SetDefaultDNSIPv6("")
	go dns.Run()
	t.Cleanup(dns.Shutdown)
	store := db.NewMemoryStore()
	authority := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "of the test", ValidityPeriod: 90 * 24 * 3600}})
	validation := va.New(quiet, http01, tls01, false, dnsAddr, store)
	front := wfe.New(quiet, store, validation, authority, []string{"pebble.example"}, false, false, 0, 0)
	server := httptest.NewTLSServer(front.Handler())
	t.Cleanup(server.Close)
	manage := httptest.NewServer(front.ManagementHandler())
	t.Cleanup(manage.Close)
	p := &pebble{directory: server.URL + wfe.DirectoryPath, client: server.Client(), authority: server.Certificate(), manage: manage, roots: x509.NewCertPool(), db: store}
	p.roots.AppendCertsFromPEM(authority.GetRootCert(0).PEM())
	return p
}

// freePort returns an address whose port is free for UDP and for TCP.
func freePort(t *testing.T) string { return testport.Hold(t).String() }

// renewNow makes the authority ask for the renewal of a certificate.
func (p *pebble) renewNow(t *testing.T, leaf *x509.Certificate) {
	t.Helper()
	now := time.Now()
	window, _ := json.Marshal(map[string]any{"suggestedWindow": map[string]time.Time{"start": now.Add(-2 * time.Hour), "end": now.Add(-time.Hour)}})
	body, _ := json.Marshal(map[string]string{
		"certificate": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})), "ariResponse": string(window),
	})
	resp, err := http.Post(p.manage.URL+"/set-renewal-info/", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s", resp.Status, b)
	}
}

// serialInCertID returns a certificate's serial number as Pebble decodes it from a renewal identifier
// (RFC 9773 4.1): the content octets of its DER encoding, in hexadecimal.
func serialInCertID(t *testing.T, leaf *x509.Certificate) string {
	t.Helper()
	der, err := asn1.Marshal(leaf.SerialNumber)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", der[2:]) // behind tag and length
}

// fileOrder files the order of a certificate under the serial number that its renewal identifier has.
// Pebble itself files it under the absolute value, without the zero octet that DER puts before a first
// octet of 0x80 or more. It then does not find the order of one certificate in 256 (its serial numbers
// have 63 bits), and answers the order that replaces it with 500.
func (p *pebble) fileOrder(t *testing.T, leaf *x509.Certificate) {
	t.Helper()
	order, err := p.issuedBy(fmt.Sprintf("%x", leaf.SerialNumber.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	order.RLock()
	filed := &core.Order{ID: order.ID, AccountID: order.AccountID, Order: order.Order, CertificateObject: &core.Certificate{ID: serialInCertID(t, leaf)}}
	order.RUnlock()
	if err := p.db.AddOrderByIssuedSerial(filed); err != nil {
		t.Fatal(err)
	}
}

// issuedBy returns the order of a serial number. Pebble files it some time after it has issued the
// certificate.
func (p *pebble) issuedBy(serial string) (order *core.Order, err error) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if order, err = p.db.GetOrderByIssuedSerial(serial); err == nil || time.Now().After(deadline) {
			return order, err
		}
	}
}

// replaced reports whether an order said that it replaces the certificate. Pebble notes so some time
// after it has issued the other one.
func (p *pebble) replaced(t *testing.T, leaf *x509.Certificate) bool {
	t.Helper()
	order, err := p.issuedBy(serialInCertID(t, leaf))
	for deadline := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		order.RLock()
		done := order.IsReplaced
		order.RUnlock()
		if done {
			return true
		}
	}
	return false
}

// served returns the certificate that a server presents for a name, verified.
func (p *pebble) served(t *testing.T, l net.Listener, name string) *x509.Certificate {
	t.Helper()
	c, err := (&stdtls.Dialer{Config: &stdtls.Config{RootCAs: p.roots, ServerName: name}}).Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer c.Close()
	return c.(*stdtls.Conn).ConnectionState().PeerCertificates[0]
}

// newSite returns a site that answers on both ports by the certificates of its store, and challenges
// by its manager.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{http: listen(t), https: listen(t), store: &tls.Store{}}
	base, err := tls.NewServerConfig(tls.ServerOptions{Store: s.store})
	if err != nil {
		t.Fatal(err)
	}
	config := base.Clone()
	config.GetConfigForClient = func(hello *stdtls.ClientHelloInfo) (*stdtls.Config, error) {
		c := base.Clone()
		s.manager.Load().Attach(c)
		return c.GetConfigForClient(hello)
	}
	quiet := log.New(io.Discard, "", 0)
	plain := &http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.manager.Load().HTTPHandler(nil).ServeHTTP(w, r)
	})}
	secure := &http.Server{Handler: http.NotFoundHandler(), TLSConfig: config, ErrorLog: quiet}
	go func() { _ = plain.Serve(s.http) }()
	go func() { _ = secure.ServeTLS(s.https, "", "") }()
	t.Cleanup(func() { _ = plain.Close(); _ = secure.Close() })
	return s
}

// open opens a manager and makes it the site's.
func (s *site) open(t *testing.T, o acme.Options) *acme.Manager {
	t.Helper()
	m, err := acme.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.manager.Store(m)
	return m
}

func TestCertificatesByACME(t *testing.T) {
	for what, o := range map[string]acme.Options{"http-01": {NoTLS: true}, "tls-alpn-01": {NoHTTP: true}} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			s := newSite(t)
			p := startPebble(t, s)
			var events []acme.Event
			o.Directory, o.AgreeToTerms, o.Dir, o.Store, o.Client = p.directory, true, filepath.Join(t.TempDir(), "acme"), s.store, p.client
			o.Contact = []string{"mailto:admin@a.example"}
			o.Report = func(e acme.Event) { events = append(events, e) }
			m := s.open(t, o)
			if err := m.Manage("a.example", "www.a.example"); err != nil {
				t.Fatal(err)
			}
			m.Renew(ctx)
			if len(events) != 1 || events[0].Err != nil || events[0].Renewal {
				t.Fatalf("%+v", events)
			}
			first := p.served(t, s.https, "a.example")
			if again := p.served(t, s.https, "www.a.example"); !again.Equal(first) {
				t.Error("another certificate for the other name")
			}
			life := first.NotAfter.Sub(first.NotBefore)
			if next := events[0].Next.Sub(first.NotBefore); next < life/3*2-time.Minute || next > life/3*2+time.Minute {
				t.Errorf("renews after %v of %v", next, life)
			}
			// An address is proven too; over TLS by its name in the reverse tree.
			if err := m.Manage("127.0.0.1"); err != nil {
				t.Fatal(err)
			}
			m.Renew(ctx)
			if len(events) != 2 || events[1].Err != nil {
				t.Fatalf("%+v", events)
			}
			// A restart serves what is stored and keeps the account.
			_ = m.Close()
			key, _ := filepath.Glob(filepath.Join(o.Dir, "*", "account.pem"))
			account, err := os.ReadFile(strings.Join(key, ""))
			if err != nil {
				t.Fatal(err)
			}
			s.store.Remove("acme:a.example")
			m = s.open(t, o)
			if err := m.Manage("a.example", "www.a.example"); err != nil {
				t.Fatal(err)
			}
			if got := p.served(t, s.https, "a.example"); !got.Equal(first) {
				t.Error("a restart forgets the certificate")
			}
			if m.Renew(ctx); len(events) != 2 {
				t.Fatalf("a restart orders anew: %+v", events)
			}
			if st := m.Status()[0]; !st.FromARI || !st.NotAfter.Equal(first.NotAfter) {
				t.Errorf("%+v", st)
			}
			_ = m.Close()
			// The authority wants a new certificate, which replaces the first one (RFC 9773 5). It is
			// asked when: the answer is forgotten with the file.
			p.fileOrder(t, first)
			p.renewNow(t, first)
			files, _ := filepath.Glob(filepath.Join(o.Dir, "*", "certificates", "a.example-*.json"))
			if len(files) != 1 || os.Remove(files[0]) != nil {
				t.Fatal(files)
			}
			m = s.open(t, o)
			defer m.Close()
			if err := m.Manage("a.example", "www.a.example"); err != nil {
				t.Fatal(err)
			}
			m.Renew(ctx)
			if len(events) != 3 || events[2].Err != nil || !events[2].Renewal {
				t.Fatalf("%+v", events)
			}
			second := p.served(t, s.https, "a.example")
			if second.Equal(first) || second.PublicKey.(interface{ Equal(crypto.PublicKey) bool }).Equal(first.PublicKey) {
				t.Error("the old certificate, or the old key")
			}
			if !p.replaced(t, first) {
				t.Error("the order does not say which certificate it replaces")
			}
			if b, _ := os.ReadFile(key[0]); !bytes.Equal(b, account) {
				t.Error("the account's key changed")
			}
		})
	}
}

// TestACMEFailsWithTheAuthoritysReason proves control of nothing: the port answers no challenge.
func TestACMEFailsWithTheAuthoritysReason(t *testing.T) {
	s := newSite(t)
	p := startPebble(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var events []acme.Event
	o := acme.Options{Directory: p.directory, AgreeToTerms: true, Dir: t.TempDir(), Store: s.store, Client: p.client, Report: func(e acme.Event) { events = append(events, e) }}
	other := o
	other.Dir = t.TempDir()
	s.open(t, other) // challenges go to one that has no answers
	m, err := acme.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Manage("b.example"); err != nil {
		t.Fatal(err)
	}
	m.Renew(ctx)
	if len(events) != 1 || events[0].Err == nil || !strings.Contains(events[0].Err.Error(), "b.example") || time.Until(events[0].Next) < 30*time.Second {
		t.Fatalf("%+v", events)
	}
	if st := m.Status()[0]; st.Failures != 1 || !st.NotAfter.IsZero() || len(s.store.Status()) != 0 {
		t.Errorf("%+v", st)
	}
	// Run does the rest once the challenges are answered, but not before the pause is over.
	s.manager.Store(m)
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- m.Run(running) }()
	if err := m.Manage("c.example"); err != nil { // wakes Run
		t.Fatal(err)
	}
	for len(s.store.Status()) == 0 && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	p.served(t, s.https, "c.example")
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if st := m.Status()[0]; st.Failures != 1 {
		t.Errorf("tried again before the pause was over: %+v", st)
	}
}
