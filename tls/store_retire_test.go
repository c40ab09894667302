package tls

import (
	"crypto/tls"
	"reflect"
	"testing"

	"github.com/millrace/millrace/gpukern/sign"
)

// keyMemory returns the private key that batches sign with, of a prepared signer on a curve.
func keyMemory(s *sign.Signer) reflect.Value {
	return reflect.ValueOf(s).Elem().FieldByName("batch").Elem().Elem().FieldByName("private")
}

// retired reports whether the memory is zero throughout.
func retired(memory reflect.Value) bool {
	for i := range memory.Len() {
		if !memory.Index(i).IsZero() {
			return false
		}
	}
	return true
}

// serving returns a store that serves example.com by a key that is signed with in batches on any CPU, and the key.
func serving(t *testing.T) (*Store, *tls.Config, *sign.Signer, reflect.Value) {
	t.Helper()
	key, cert, roots := freshBatchCertificate(t)
	s := &Store{}
	if err := s.Set("a", cert, true); err != nil {
		t.Fatal(err)
	}
	signer := sign.NewSigner(key)
	signer.Prepare()
	e := s.entries["a"]
	e.cert.PrivateKey, e.signer = signer, signer // as Wrap on a CPU with the instructions
	return s, &tls.Config{RootCAs: roots, ServerName: "example.com"}, signer, keyMemory(signer)
}

// TestReplacedKeysAreZeroed lets a handshake end that waits for its signature.
func TestReplacedKeysAreZeroed(t *testing.T) {
	for name, change := range map[string]func(*Store, tls.Certificate) error{
		"Set":    func(s *Store, c tls.Certificate) error { return s.Set("a", c, true) },
		"Remove": func(s *Store, _ tls.Certificate) error { s.Remove("a"); return nil },
		"Close":  func(s *Store, _ tls.Certificate) error { s.Close(); return nil },
	} {
		for _, standard := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				s, c, _, memory := serving(t)
				var q Signatures
				srv := &end{Engine: NewServerEngine(&tls.Config{GetCertificate: s.GetCertificate}, EngineOptions{Signatures: &q, StandardHandshake: standard})}
				cli := &end{Engine: NewClientEngine(c, EngineOptions{})}
				defer srv.Close()
				defer cli.Close()
				pump(srv, cli)
				q.exchanges.Run() // the signature waits
				if q.Waiting() != 1 {
					t.Fatalf("%d wait", q.Waiting())
				}
				other, _ := testCertificate()
				if err := change(s, other); err != nil {
					t.Fatal(err)
				}
				if retired(memory) {
					t.Fatal("the key is gone before the handshake has signed")
				}
				q.Run()
				srv.feedPiece(nil)
				pump(srv, cli)
				if !srv.Handshaken() || !cli.Handshaken() {
					t.Errorf("the handshake did not end: %v, %v", srv.err, cli.err)
				}
				if !retired(memory) {
					t.Error("the key stays in memory")
				}
			})
		}
	}
}

// TestAbortedHandshakesLeaveNoKey closes the engine while its signature waits.
func TestAbortedHandshakesLeaveNoKey(t *testing.T) {
	for _, standard := range []bool{false, true} {
		s, c, _, memory := serving(t)
		var q Signatures
		srv := &end{Engine: NewServerEngine(&tls.Config{GetCertificate: s.GetCertificate}, EngineOptions{Signatures: &q, StandardHandshake: standard})}
		cli := &end{Engine: NewClientEngine(c, EngineOptions{})}
		pump(srv, cli)
		q.exchanges.Run()
		s.Close()
		srv.Close()
		cli.Close()
		if !retired(memory) {
			t.Errorf("crypto/tls %v: the key stays in memory", standard)
		}
	}
}

// TestAClosedStoreServesOn by keys of crypto: connections may hold its Config.
func TestAClosedStoreServesOn(t *testing.T) {
	s, c, _, _ := serving(t)
	s.Close()
	s.Close()
	if _, _, serverErr, clientErr := shake(t, &tls.Config{GetCertificate: s.GetCertificate}, c); serverErr != nil || clientErr != nil {
		t.Error(serverErr, clientErr)
	}
}

// TestKeysOfTheCallerAreNotZeroed: a Signer that the caller made is not the store's.
func TestKeysOfTheCallerAreNotZeroed(t *testing.T) {
	key, cert, _ := freshBatchCertificate(t)
	signer := sign.NewSigner(key)
	signer.Prepare()
	memory := keyMemory(signer)
	cert.PrivateKey = signer
	s := storeOf(t, cert)
	s.Close()
	if retired(memory) {
		t.Error("the key of the caller is gone")
	}
}
