package daemon

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
)

// waitingBackend answers with the user that the gateway names; requests of /wait do so after release.
func waitingBackend(t *testing.T) (address string, reached chan string, release chan struct{}) {
	t.Helper()
	reached, release = make(chan string, 16), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			reached <- r.Header.Get("X-User")
			<-release
		}
		_, _ = io.WriteString(w, r.Header.Get("X-User"))
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), reached, release
}

// userLimits is a route whose limits count users; AUTH is how they are known.
const userLimits = `
rate_limits: [{name: each, key: {by: user}, requests: 4, interval: 1h}]
routes:
- name: r
  AUTH
  rate_limits: [each]
  concurrency: {per_user: 1}
  rules:
  - filters: [{type: RequestHeaderModifier, set: [{name: x-user, value: "${user}"}]}]
    backend_refs: [{name: p}]
pools: [{name: p, backends: [{address: "BACKEND"}]}]
`

// userAsks sends a request of a user, and returns its status and content.
type userAsks func(version, user, path string) (status int, body string)

// checkUserLimits checks that each user has a place and four requests, whatever versions they come by, and that users do not count for each
// other. named are the names of the users one and two for the backend.
func checkUserLimits(t *testing.T, ask userAsks, reached chan string, release chan struct{}, named map[string]string) {
	t.Helper()
	done := make(chan int)
	go func() {
		status, _ := ask("1.1", "one", "/wait")
		done <- status
	}()
	if got := <-reached; got != named["one"] {
		t.Errorf("the backend gets user %q", got)
	}
	for _, version := range []string{"2", "3"} {
		if status, _ := ask(version, "one", "/"); status != 429 {
			t.Errorf("HTTP/%s: %d beside another request of the user", version, status)
		}
		if status, body := ask(version, "two", "/"); status != 200 || body != named["two"] {
			t.Errorf("HTTP/%s: another user gets %d %q", version, status, body)
		}
	}
	close(release)
	if status := <-done; status != 200 {
		t.Errorf("the first request gets %d", status)
	}
	for i, version := range []string{"3", "1.1", "2", "3"} { // four were counted: one that was served, two for which there was no place, and the first of these
		status, body := ask(version, "one", "/")
		if want := i == 0; (status == 200 && body == named["one"]) != want || !want && status != 429 {
			t.Errorf("HTTP/%s, request %d: %d %q", version, i, status, body)
		}
	}
	if status, _ := ask("1.1", "two", "/"); status != 200 {
		t.Errorf("another user gets %d", status)
	}
}

// TestLimitsByUserClaim: limits by user count what a claim of the token names, whatever the subject, with clients of all versions.
func TestLimitsByUserClaim(t *testing.T) {
	backend, reached, release := waitingBackend(t)
	i := newIssuer(t)
	src := strings.NewReplacer("BACKEND", backend, "AUTH", "auth: {jwt: {issuer: me, audiences: [api], jwks_file: FOLDER/keys, user_claim: tenant}}").Replace(userLimits)
	v := newVersions(t, src, map[string]string{"keys": i.jwks("a")})
	var subjects atomic.Int32
	ask := func(version, user, path string) (int, string) {
		resp, body := v.ask(version, "GET", path, "Authorization", "Bearer "+i.token("a", fmt.Sprint("subject", subjects.Add(1)), `,"tenant":"`+user+`"`))
		return resp.StatusCode, body
	}
	checkUserLimits(t, ask, reached, release, map[string]string{"one": "one", "two": "two"})
	if resp, _ := v.ask("2", "GET", "/", "Authorization", "Bearer "+newIssuer(t).token("a", "x", `,"tenant":"two"`)); resp.StatusCode != 401 {
		t.Errorf("a token of another issuer gets %d", resp.StatusCode)
	}
}

// clientAuthority signs certificates of clients.
type clientAuthority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newClientAuthority(t *testing.T) *clientAuthority {
	t.Helper()
	a := &clientAuthority{t: t}
	a.key, a.cert = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign makes a key and its certificate: by itself for the authority.
func (a *clientAuthority) sign(c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, cert
}

// client returns the certificate of a client.
func (a *clientAuthority) client(name string) tls.Certificate {
	a.t.Helper()
	key, cert := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// TestLimitsByClientCertificate: without credentials of HTTP the subject of the client's certificate is the user.
func TestLimitsByClientCertificate(t *testing.T) {
	backend, reached, release := waitingBackend(t)
	dir, a := t.TempDir(), newClientAuthority(t)
	roots := writePair(t, dir, "gateway.test")
	write(t, filepath.Join(dir, "clients"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})))
	src := strings.NewReplacer("BACKEND", backend, "AUTH", "").Replace(userLimits)
	s := newSite(t, "admin: {socket: SOCKET}\nloops: 2\nlisteners:\n- {name: web, address: LISTEN, protocol: HTTPS, versions: ['1.1', '2', '3'], tls: {certificates: [{cert: "+
		dir+"/gateway.test}], client_auth: {ca_file: "+dir+"/clients}}}\n"+src)
	clients := map[string]http.RoundTripper{}
	for _, user := range []string{"one", "two"} {
		conf := &tls.Config{RootCAs: roots, ServerName: "gateway.test", Certificates: []tls.Certificate{a.client(user)}}
		first := &http.Transport{TLSClientConfig: conf.Clone(), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
		second, third := &http.Transport{TLSClientConfig: conf.Clone(), ForceAttemptHTTP2: true}, &http3.Transport{TLS: conf.Clone()}
		t.Cleanup(func() { first.CloseIdleConnections(); second.CloseIdleConnections(); third.Close() })
		clients["1.1"+user], clients["2"+user], clients["3"+user] = first, second, third
	}
	ask := func(version, user, path string) (int, string) {
		req, err := http.NewRequestWithContext(context.Background(), "GET", "https://"+s.addr+path, http.NoBody)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		resp, err := clients[version+user].RoundTrip(req)
		if err != nil {
			t.Errorf("HTTP/%s: %v", version, err)
			return 0, ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	checkUserLimits(t, ask, reached, release, map[string]string{})
}
