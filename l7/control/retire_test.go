package control

import (
	ctls "crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/sign"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/tls"
)

// batchKeyOf returns the memory of the private key that a store's certificate is signed with in batches.
func batchKeyOf(t *testing.T, s *tls.Store) reflect.Value {
	t.Helper()
	cert, err := s.GetCertificate(&ctls.ClientHelloInfo{SupportedVersions: []uint16{ctls.VersionTLS13}, SignatureSchemes: []ctls.SignatureScheme{ctls.ECDSAWithP256AndSHA256}})
	must(t, err)
	key := reflect.ValueOf(sign.Of(cert.PrivateKey)).Elem().FieldByName("batch")
	if key.IsNil() {
		t.Fatal("no handshake has prepared the key for batches")
	}
	return key.Elem().Elem().FieldByName("private")
}

// isZero reports whether the memory is zero throughout.
func isZero(memory reflect.Value) bool {
	for i := range memory.Len() {
		if !memory.Index(i).IsZero() {
			return false
		}
	}
	return true
}

// afterHello is a connection that sends one message, and what follows after the gate.
type afterHello struct {
	net.Conn
	sent    atomic.Int32
	reached chan struct{}
	gate    chan struct{}
}

func (c *afterHello) Write(p []byte) (int, error) {
	if c.sent.Add(1) == 2 {
		close(c.reached)
		<-c.gate
	}
	return c.Conn.Write(p)
}

// handshakeUnderWay begins a handshake, which waits for its client. The function that is returned ends it.
func handshakeUnderWay(t *testing.T, at string, conf *ctls.Config) (end func() error) {
	t.Helper()
	raw, err := net.Dial("tcp", at)
	must(t, err)
	must(t, raw.SetDeadline(time.Now().Add(time.Minute)))
	c := &afterHello{Conn: raw, reached: make(chan struct{}), gate: make(chan struct{})}
	result := make(chan error, 1)
	go func() { result <- ctls.Client(c, conf).Handshake() }()
	select {
	case <-c.reached:
	case err := <-result:
		t.Fatalf("the handshake ended early: %v", err)
	}
	return func() error {
		defer raw.Close()
		close(c.gate)
		return <-result
	}
}

// TestReloadZeroesKeys replaces the certificate of a listener by one with another key, then changes the listener, then closes the
// gateway. Each time the memory of the key before is zero afterwards, and a handshake that was under way ends.
func TestReloadZeroesKeys(t *testing.T) {
	if !sign.Supported() {
		t.Skip("this CPU has no AVX-512 IFMA: no keys are prepared for batches")
	}
	file := filepath.Join(t.TempDir(), "web.pem")
	write := func() *ctls.Config {
		roots := x509.NewCertPool()
		roots.AddCert(clientPair(t, file, x509.Certificate{DNSNames: []string{"web.example"}}))
		return &ctls.Config{RootCAs: roots, ServerName: "web.example"}
	}
	conf := write()
	at := testport.Hold(t).String()
	src := fmt.Sprintf(`
loops: 1
listeners: [{name: web, address: %q, protocol: HTTPS, tls: {certificates: [{cert: %q}]}}]
routes: [{name: r, rules: [{filters: [{type: FixedResponse, status_code: 200, body: hello}]}]}]
`, at, file)
	s := openSet(t, src, nil)
	ended := make(chan error, 1)
	go func() { ended <- s.Run() }()
	end := handshakeUnderWay(t, at, conf)
	memory := batchKeyOf(t, s.served["web"].store)
	if isZero(memory) {
		t.Fatal("there is no key")
	}

	next := write()
	reload(t, s, src)
	if !isZero(memory) {
		t.Error("after the reload the replaced key stays in memory")
	}
	must(t, end())

	end = handshakeUnderWay(t, at, next)
	memory = batchKeyOf(t, s.served["web"].store)
	reload(t, s, strings.Replace(src, "tls: {", `tls: {min_version: "1.3", `, 1))
	if !isZero(memory) {
		t.Error("after a change of the listener its key stays in memory")
	}
	must(t, end())

	must(t, handshakeUnderWay(t, at, next)())
	memory = batchKeyOf(t, s.served["web"].store)
	reload(t, s, strings.Replace(src, "tls: {", `tls: {min_version: "1.3", `, 1)) // as it is: the key stays
	if isZero(memory) {
		t.Error("a reload that changes nothing zeroed the key")
	}
	s.Shutdown()
	must(t, <-ended)
	must(t, s.Close())
	if !isZero(memory) {
		t.Error("after the end the key stays in memory")
	}
}
