package control

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	ctls "crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/testcert"
)

// clientPair writes a certificate of a client or server with its key into one file, and returns the certificate.
func clientPair(t *testing.T, file string, names x509.Certificate) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	names.SerialNumber, names.NotBefore, names.NotAfter = big.NewInt(7), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	names.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, &names, &names, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// The certificate of a pool may name the gateway in any way: clients have no name that others ask for.
func TestCertificatesForBackendsNeedNoHostname(t *testing.T) {
	spiffe := &url.URL{Scheme: "spiffe", Host: "mesh.test", Path: "/gateway"}
	server, _ := testcert.SelfSigned("backend.test")
	for name, template := range map[string]x509.Certificate{
		"common name": {Subject: pkix.Name{CommonName: "gateway"}},
		"URI":         {URIs: []*url.URL{spiffe}},
		"e-mail":      {EmailAddresses: []string{"gateway@mesh.test"}},
		"DNS name":    {DNSNames: []string{"gateway.test"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "client.pem")
			cert := clientPair(t, file, template)
			path := filepath.Join(filepath.Dir(file), "gateway.yaml")
			if err := os.WriteFile(path, fmt.Appendf(nil, `
listeners: [{name: web, address: "198.18.0.1:80", protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, protocol: HTTPS, tls: {insecure: true, certificate: {cert: %q}}, backends: [{address: "198.18.1.1:443"}]}]
`, file), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Load(path) // which reads the files as well
			if err != nil {
				t.Fatal(err)
			}
			conf, _, err := backendTLS(cfg, &cfg.Pools[0])
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AddCert(cert)
			here, there := net.Pipe()
			defer here.Close()
			go func() { _, _ = io.Copy(io.Discard, ctls.Client(here, conf)) }()
			if err := there.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			s := ctls.Server(there, &ctls.Config{Certificates: []ctls.Certificate{server}, ClientAuth: ctls.RequireAndVerifyClientCert, ClientCAs: roots})
			if err := s.Handshake(); err != nil || !s.ConnectionState().PeerCertificates[0].Equal(cert) {
				t.Errorf("the backend: %v", err)
			}
			there.Close()
		})
	}
}
