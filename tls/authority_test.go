package tls

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience bounds what tests wait for.
const patience = 30 * time.Second

// authority is a CA of a test.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

var serials atomic.Int64

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// rsaKey is slow to make: one serves all tests.
var rsaKey = sync.OnceValue(func() crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// newAuthority returns a root, or an intermediate one of parent; change may alter the template.
func newAuthority(t testing.TB, name string, parent *authority, change func(*x509.Certificate)) *authority {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	a := &authority{key: newKey(t)}
	signer := parent
	if parent == nil {
		signer = &authority{template, a.key}
	}
	a.cert = signer.sign(t, template, a.key.Public(), change)
	return a
}

// sign makes a certificate; the time is that of now unless change says otherwise.
func (a *authority) sign(t testing.TB, template *x509.Certificate, public crypto.PublicKey, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(1000 + serials.Add(1))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// issue returns a certificate for names with its chain up to a, for servers and clients.
func (a *authority) issue(t testing.TB, key crypto.Signer, change func(*x509.Certificate), names ...string) tls.Certificate {
	t.Helper()
	if key == nil {
		key = newKey(t)
	}
	template := &x509.Certificate{
		DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if len(names) > 0 {
		template.Subject.CommonName = names[0]
	}
	leaf := a.sign(t, template, key.Public(), change)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw, a.cert.Raw}, PrivateKey: key, Leaf: leaf}
}

// roots returns the pool with a only.
func (a *authority) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// file writes the authority's certificate and returns its path.
func (a *authority) file(t testing.TB) string {
	t.Helper()
	return writeFile(t, filepath.Join(t.TempDir(), "ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

func (a *authority) loadRoots(t testing.TB) *Roots {
	t.Helper()
	r, err := LoadRoots(a.file(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func writeFile(t testing.TB, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pemOf returns chain and key of a certificate in one file.
func pemOf(t testing.TB, c tls.Certificate) (b []byte) {
	t.Helper()
	for _, der := range c.Certificate {
		b = append(b, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
}

// storeOf returns a store of certificates, the first of which is the default.
func storeOf(t testing.TB, certs ...tls.Certificate) *Store {
	t.Helper()
	s := &Store{}
	for i, c := range certs {
		if err := s.Set(string(rune('a'+i)), c, i == 0); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// shake makes a handshake over a pipe, and exchanges a byte each way, so that the client has its
// tickets and each side knows what the other one found.
func shake(t testing.TB, server, client *tls.Config) (ss, cs tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	// A socket, since with a pipe alerts and Finished of both sides would wait for each other.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			serverErr = err
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		s := tls.Server(c, server)
		if serverErr = s.Handshake(); serverErr != nil {
			_, _ = io.Copy(io.Discard, c) // a reset would take the alert from the client
			return
		}
		ss = s.ConnectionState()
		_, serverErr = io.ReadFull(s, make([]byte, 1))
		_, _ = s.Write([]byte("s"))
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	tc := tls.Client(c, client)
	if clientErr = tc.Handshake(); clientErr == nil {
		cs = tc.ConnectionState()
		_, _ = tc.Write([]byte("c"))
		_, clientErr = io.ReadFull(tc, make([]byte, 1))
	}
	_ = c.Close()
	<-done
	return ss, cs, serverErr, clientErr
}

// mustShake is shake for what must succeed.
func mustShake(t testing.TB, server, client *tls.Config) (ss, cs tls.ConnectionState) {
	t.Helper()
	ss, cs, serverErr, clientErr := shake(t, server, client)
	if err := errors.Join(serverErr, clientErr); err != nil {
		t.Fatal(err)
	}
	return ss, cs
}

func serverConfig(t testing.TB, o ServerOptions) *tls.Config {
	t.Helper()
	c, err := NewServerConfig(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func clientConfig(t testing.TB, o ClientOptions) *tls.Config {
	t.Helper()
	c, err := NewClientConfig(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var edKey = sync.OnceValue(func() crypto.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
})
