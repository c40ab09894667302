package tls

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/millrace/millrace/gpukern/sign"
	"github.com/millrace/millrace/internal/testkit/testcert"
)

// batchCertificate is a certificate for example.com whose key is signed with in batches, on any CPU.
var batchCertificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	cert, roots := testcert.SelfSignedBy(key, "example.com")
	cert.PrivateKey = sign.NewRSASigner(key)
	return cert, roots
})

// batchCertificateECDSA is the same with a key on P-256.
var batchCertificateECDSA = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	cert, roots := testcert.SelfSignedBy(key, "example.com")
	signer := sign.NewSigner(key)
	signer.Prepare()
	cert.PrivateKey = signer
	return cert, roots
})

// freshBatchCertificate returns a certificate for example.com by a key on P-256 that no other test has.
func freshBatchCertificate(t *testing.T) (*ecdsa.PrivateKey, tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, roots := testcert.SelfSignedBy(key, "example.com")
	return key, cert, roots
}

// batchConfigs returns configurations of a server and a client by the way in which the server has its certificate.
func batchConfigs(t *testing.T, way string, version uint16) (s, c *tls.Config) {
	t.Helper()
	cert, roots := batchCertificate()
	if way == "ECDSA" {
		cert, roots = batchCertificateECDSA()
	}
	s = &tls.Config{MinVersion: version, MaxVersion: version}
	c = &tls.Config{RootCAs: roots, ServerName: "example.com"}
	switch way {
	case "Certificates":
		other, _ := testCertificate()
		s.Certificates = []tls.Certificate{other, cert}
		s.Certificates[0].SupportedSignatureAlgorithms = []tls.SignatureScheme{} // no client takes it
	case "GetCertificate", "ECDSA":
		s.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }
	case "GetConfigForClient":
		chosen := s.Clone()
		chosen.Certificates = []tls.Certificate{cert}
		s.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }
	case "client":
		other, pool := testCertificate()
		s.Certificates, s.ClientAuth, s.ClientCAs = []tls.Certificate{other}, tls.RequireAnyClientCert, roots
		c.RootCAs, c.Certificates = pool, []tls.Certificate{cert}
	case "GetClientCertificate":
		other, pool := testCertificate()
		s.Certificates, s.ClientAuth, s.ClientCAs = []tls.Certificate{other}, tls.RequireAnyClientCert, roots
		c.RootCAs = pool
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	return s, c
}

// TestWaitingKeysDecryptIfTheirKeyDoes: crypto/tls refuses a key of ECDSA that is a crypto.Decrypter.
func TestWaitingKeysDecryptIfTheirKeyDoes(t *testing.T) {
	withRSA, _ := batchCertificate()
	withECDSA, _ := batchCertificateECDSA()
	for cert, want := range map[*tls.Certificate]bool{&withRSA: true, &withECDSA: false} {
		own := new(handshake).signsWith(cert)
		if own == cert {
			t.Fatal("the key does not wait")
		}
		d, ok := own.PrivateKey.(crypto.Decrypter)
		if ok != want {
			t.Errorf("%T decrypts: %v", own.PrivateKey, ok)
		}
		if !ok {
			continue
		}
		//lint:ignore SA1019 it is what TLS 1.2 has in its exchange of keys by RSA
		secret, err := rsa.EncryptPKCS1v15(rand.Reader, d.Public().(*rsa.PublicKey), []byte("secret"))
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := d.Decrypt(rand.Reader, secret, nil); err != nil || string(plain) != "secret" {
			t.Errorf("decrypts to %q, %v", plain, err)
		}
	}
}

// pump moves ciphertext between two engines until neither has any or takes any.
func pump(a, b *end) {
	for {
		ab, ba := a.take(), b.take()
		if len(ab)+len(ba) == 0 {
			return
		}
		b.feed(ab, wholly)
		a.feed(ba, wholly)
	}
}

// TestHandshakesAwaitSignatures has handshakes of a loop wait for one batch, by every way of having a certificate.
func TestHandshakesAwaitSignatures(t *testing.T) {
	for _, way := range []string{"Certificates", "GetCertificate", "GetConfigForClient", "client", "GetClientCertificate", "ECDSA"} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			for _, o := range []EngineOptions{{}, {StandardHandshake: true}, {StandardHandshake: true, AnyThread: true}} {
				t.Run(way+" "+tls.VersionName(version), func(t *testing.T) {
					s, c := batchConfigs(t, way, version)
					certificates := slices.Clone(append(s.Certificates, c.Certificates...))
					var q Signatures
					defer func() {
						for i, cert := range append(s.Certificates, c.Certificates...) {
							if cert.PrivateKey != certificates[i].PrivateKey {
								t.Error("the user's Config was changed")
							}
						}
					}()
					const n = 5
					var servers, clients [n]*end
					signed := 0
					for i := range n {
						var srv, cli *end
						goOn := func() { signed++; srv.feedPiece(nil); cli.feedPiece(nil) }
						o.Signatures, o.Signed = &q, goOn
						srv = &end{Engine: NewServerEngine(s, o)}
						cli = &end{Engine: NewClientEngine(c, o)}
						defer srv.Close()
						defer cli.Close()
						pump(srv, cli)
						if q.Waiting() != i+1 || srv.Handshaken() {
							t.Fatalf("%d wait for a signature, handshaken %v: %v, %v", q.Waiting(), srv.Handshaken(), srv.err, cli.err)
						}
						servers[i], clients[i] = srv, cli
					}
					q.Run()
					passes := uint64(2)
					if way == "ECDSA" {
						passes = 1
					}
					if signed != n || q.Stats() != (sign.Stats{Signatures: n, Passes: passes}) {
						t.Errorf("%d went on, %+v", signed, q.Stats())
					}
					for i := range n {
						pump(servers[i], clients[i])
						if servers[i].err != nil || clients[i].err != nil || !servers[i].Handshaken() || !clients[i].Handshaken() {
							t.Fatalf("handshake %d: %v, %v", i, servers[i].err, clients[i].err)
						}
						if !servers[i].OwnRecords() {
							t.Error("crypto/tls has the records")
						}
						say(t, clients[i], servers[i], []byte("request"), wholly)
						say(t, servers[i], clients[i], []byte("response"), wholly)
					}
					if q.Waiting() != 0 {
						t.Errorf("%d wait", q.Waiting())
					}
				})
			}
		}
	}
}

// TestInputWhileASignatureIsAwaited stays where it is: the engine consumes none, and does not spin.
func TestInputWhileASignatureIsAwaited(t *testing.T) {
	for _, standard := range []bool{false, true} {
		t.Run(fmt.Sprint("crypto/tls ", standard), func(t *testing.T) { testInputWhileAwaiting(t, standard) })
	}
}

func testInputWhileAwaiting(t *testing.T, standard bool) {
	s, c := batchConfigs(t, "Certificates", tls.VersionTLS13)
	var q Signatures
	srv := &end{Engine: NewServerEngine(s, EngineOptions{Signatures: &q, StandardHandshake: standard})}
	cli := &end{Engine: NewClientEngine(c, EngineOptions{})}
	defer srv.Close()
	defer cli.Close()
	hello := cli.take()
	for _, more := range [][]byte{nil, {typeChangeCipherSpec, 3, 3, 0, 1, 1}} {
		ev, n, err := srv.Next(append(bytes.Clone(hello), more...))
		if ev.Kind != AwaitingSignature || n != len(hello) || err != nil {
			t.Fatalf("event %v, %d of %d bytes, %v", ev.Kind, n, len(hello), err)
		}
		hello = nil
		for range 3 {
			if ev, n, err := srv.Next(more); ev.Kind != AwaitingSignature || n != 0 || err != nil {
				t.Fatalf("event %v, %d bytes, %v", ev.Kind, n, err)
			}
		}
	}
	if err := srv.CloseWrite(); !errors.Is(err, ErrHandshaking) {
		t.Errorf("CloseWrite: %v", err)
	}
	q.Run()
	srv.feed([]byte{typeChangeCipherSpec, 3, 3, 0, 1, 1}, wholly)
	pump(srv, cli)
	if srv.err != nil || !srv.Handshaken() {
		t.Errorf("handshaken %v, %v", srv.Handshaken(), srv.err)
	}
}

// TestEndsWhileASignatureIsAwaited: none is made for a handshake that has ended, and Signed is not called.
func TestEndsWhileASignatureIsAwaited(t *testing.T) {
	for name, stop := range map[string]func(*Engine) error{
		"closed": func(e *Engine) error { e.Close(); return nil },
		"input ended": func(e *Engine) error {
			if err := e.InputClosed(); !errors.Is(err, io.ErrUnexpectedEOF) {
				return err
			}
			return nil
		},
	} {
		for _, o := range []EngineOptions{{}, {StandardHandshake: true}, {StandardHandshake: true, AnyThread: true}} {
			s, c := batchConfigs(t, "Certificates", tls.VersionTLS13)
			var q Signatures
			o.Signatures, o.Signed = &q, func() { t.Error(name, ": Signed of a handshake that has ended") }
			srv := &end{Engine: NewServerEngine(s, o)}
			cli := &end{Engine: NewClientEngine(c, EngineOptions{})}
			pump(srv, cli)
			if q.Waiting() != 1 {
				t.Fatalf("%d wait", q.Waiting())
			}
			if err := stop(srv.Engine); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			q.Run()
			if got := q.Stats(); got.Signatures != 0 {
				t.Errorf("%s: %+v", name, got)
			}
			srv.Close()
			cli.Close()
		}
	}
}

// TestResumptionNeedsNoSignature: a session that resumes waits for its key exchange alone, and for nothing with crypto/tls.
func TestResumptionNeedsNoSignature(t *testing.T) {
	for _, standard := range []bool{false, true} {
		s, c := batchConfigs(t, "GetCertificate", tls.VersionTLS13)
		c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		var q Signatures
		for i := range 2 {
			var srv *end
			signed := func() { srv.feedPiece(nil) }
			srv = &end{Engine: NewServerEngine(s, EngineOptions{Signatures: &q, Signed: signed, StandardHandshake: standard})}
			cli := &end{Engine: NewClientEngine(c, EngineOptions{})}
			pump(srv, cli)
			if want := 1 - i; standard && q.Waiting() != want || !standard && q.Waiting() != 1 {
				t.Fatalf("crypto/tls %v, connection %d: %d wait", standard, i, q.Waiting())
			}
			q.Run()
			pump(srv, cli)
			if !srv.Handshaken() || srv.ConnectionState().DidResume != (i == 1) || q.Stats().Signatures != 1 {
				t.Errorf("crypto/tls %v, connection %d: handshaken %v, resumed %v, %+v",
					standard, i, srv.Handshaken(), srv.ConnectionState().DidResume, q.Stats())
			}
			srv.Close()
			cli.Close()
		}
	}
}

// TestAStoreWrapsItsKeys: certificates of files are signed with in batches where the CPU has a form for them.
func TestAStoreWrapsItsKeys(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := testcert.SelfSignedBy(key, "example.com")
	var store Store
	if err := store.Set("a", cert, false); err != nil {
		t.Fatal(err)
	}
	got, err := store.GetCertificate(&tls.ClientHelloInfo{ServerName: "example.com", SupportedVersions: []uint16{tls.VersionTLS13}, SignatureSchemes: schemesPSS})
	if err != nil {
		t.Fatal(err)
	}
	if wrapped := sign.Of(got.PrivateKey) != nil; wrapped != sign.Supported() {
		t.Errorf("wrapped %v, supported %v", wrapped, sign.Supported())
	}
}
