package control

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	ctls "crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
)

// testIssuer is an authority of a test, with one certificate that it has issued and the answers of its responder.
type testIssuer struct {
	cert, leaf *x509.Certificate
	key        crypto.Signer
	asked      atomic.Int32
	url        string
}

func newTestIssuer(t *testing.T, dir string, mustStaple bool) *testIssuer {
	t.Helper()
	a := &testIssuer{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a.asked.Add(1)
		w.Write(a.answer(t, time.Hour)) //nolint:errcheck // the client sees it
	}))
	t.Cleanup(s.Close)
	sign := func(c, parent *x509.Certificate, key, by crypto.Signer) *x509.Certificate {
		c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	root := &x509.Certificate{Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	rootKey, key := newKey(), newKey()
	a.key, a.cert = rootKey, sign(root, root, rootKey, rootKey)
	leaf := &x509.Certificate{DNSNames: []string{"a.example"}, OCSPServer: []string{s.URL}, KeyUsage: x509.KeyUsageDigitalSignature}
	if mustStaple {
		leaf.ExtraExtensions = []pkix.Extension{{Id: []int{1, 3, 6, 1, 5, 5, 7, 1, 24}, Value: []byte{0x30, 3, 2, 1, 5}}}
	}
	a.leaf = sign(leaf, a.cert, key, rootKey)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, b := range []*pem.Block{{Type: "CERTIFICATE", Bytes: a.leaf.Raw}, {Type: "CERTIFICATE", Bytes: a.cert.Raw}, {Type: "PRIVATE KEY", Bytes: der}} {
		text += string(pem.EncodeToMemory(b))
	}
	write(t, filepath.Join(dir, "a.pem"), text)
	return a
}

// answer is a response for a time.
func (a *testIssuer) answer(t *testing.T, d time.Duration) []byte {
	b, err := ocsp.CreateResponse(a.cert, a.cert, ocsp.Response{Status: ocsp.Good, SerialNumber: a.leaf.SerialNumber, ThisUpdate: time.Now().Add(-2 * time.Hour), NextUpdate: time.Now().Add(d)}, a.key)
	if err != nil {
		t.Error(err)
	}
	return b
}

// handshake returns the state of a connection.
func (r *running) handshake(t *testing.T, c *ctls.Config) (ctls.ConnectionState, error) {
	t.Helper()
	c.InsecureSkipVerify, c.ServerName = true, "a.example"
	conn, err := ctls.Dial("tcp", r.addr.String(), c)
	if err != nil {
		return ctls.ConnectionState{}, err
	}
	defer conn.Close()
	return conn.ConnectionState(), nil
}

const stapled = `
listeners: [{name: web, address: "ADDR", protocol: HTTPS, tls: {certificates: [{cert: %s/a.pem%s}]%s}}]
routes: [{name: r, rules: [{filters: [{type: FixedResponse}]}]}]
`

func TestResponsesOfOCSPAreFetched(t *testing.T) {
	dir := t.TempDir()
	a := newTestIssuer(t, dir, true)
	r := serve(t, fmt.Sprintf(stapled, dir, "", ", ocsp: fetch"))
	for range 500 {
		if st, err := r.handshake(t, &ctls.Config{}); err != nil {
			t.Fatal(err)
		} else if len(st.OCSPResponse) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	st, err := r.handshake(t, &ctls.Config{MaxVersion: ctls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ocsp.ParseResponseForCert(st.OCSPResponse, a.leaf, a.cert); err != nil {
		t.Error(err)
	}
	if c := r.Status(nil).Listeners[0].Certificates[0]; c.Staple == nil || time.Until(*c.Staple) < time.Minute {
		t.Errorf("%+v", c)
	}
	r.reload(t, fmt.Sprintf(stapled, dir, "", ", ocsp: fetch, misdirected: 'off'"))
	r.reload(t, fmt.Sprintf(stapled, dir, "", ""))
	if !strings.Contains(r.log.String(), "it demands an OCSP response") {
		t.Errorf("the log has %s", r.log)
	}
}

func TestResponsesOfOCSPComeFromFiles(t *testing.T) {
	dir := t.TempDir()
	a, file := newTestIssuer(t, dir, false), filepath.Join(dir, "a.ocsp")
	write(t, file, string(a.answer(t, -time.Hour)))
	text := fmt.Sprintf(stapled, dir, ", ocsp_file: "+file, "")
	r := serve(t, text)
	if st, err := r.handshake(t, &ctls.Config{}); err != nil || len(st.OCSPResponse) > 0 || !strings.Contains(r.log.String(), "OCSP response is not current") {
		t.Errorf("a response that has ended: %d bytes, %v, %s", len(st.OCSPResponse), err, r.log)
	}
	response := a.answer(t, time.Hour)
	write(t, file, string(response))
	r.reload(t, text)
	if st, err := r.handshake(t, &ctls.Config{}); err != nil || string(st.OCSPResponse) != string(response) {
		t.Errorf("%d bytes, %v", len(st.OCSPResponse), err)
	}
	if n := a.asked.Load(); n != 0 {
		t.Errorf("the responder was asked %d times", n)
	}
}

// The versions and suites of a listener are those of its handshakes.
func TestVersionsAndSuitesOfAListener(t *testing.T) {
	dir := t.TempDir()
	newTestIssuer(t, dir, false)
	const suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
	r := serve(t, fmt.Sprintf(stapled, dir, "", ", max_version: '1.2', ciphers: "+suite))
	st, err := r.handshake(t, &ctls.Config{})
	if err != nil || st.Version != ctls.VersionTLS12 || ctls.CipherSuiteName(st.CipherSuite) != suite {
		t.Errorf("version %x, suite %s, %v", st.Version, ctls.CipherSuiteName(st.CipherSuite), err)
	}
	if _, err := r.handshake(t, &ctls.Config{MinVersion: ctls.VersionTLS13}); err == nil {
		t.Error("TLS 1.3 is served")
	}
	if _, err := r.handshake(t, &ctls.Config{CipherSuites: []uint16{ctls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}); err == nil {
		t.Error("another suite is served")
	}
	r.reload(t, fmt.Sprintf(stapled, dir, "", ", min_version: '1.3'"))
	if st, err := r.handshake(t, &ctls.Config{}); err != nil || st.Version != ctls.VersionTLS13 {
		t.Errorf("version %x, %v", st.Version, err)
	}
	if _, err := r.handshake(t, &ctls.Config{MaxVersion: ctls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is served")
	}
}

// reload makes another configuration the one in use.
func (r *running) reload(t *testing.T, text string) {
	t.Helper()
	if err := r.Reload(r.file(text)); err != nil {
		t.Fatal(err)
	}
}
