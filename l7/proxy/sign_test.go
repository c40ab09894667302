package proxy

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	ctls "crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/sign"
	"github.com/millrace/millrace/internal/testkit/testcert"
)

// batchSigned has the secure listener serve a certificate whose key is signed with in batches, on any CPU.
func batchSigned(r *rig) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(r.t, err)
	batchSignedBy(r, key)
}

func batchSignedECDSA(r *rig) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(r.t, err)
	batchSignedBy(r, key)
}

func batchSignedBy(r *rig, key crypto.Signer) {
	cert, roots := testcert.SelfSignedBy(key, "gateway.test", net.IPv4(127, 0, 0, 1))
	signer := sign.NewSigner(key)
	signer.Prepare()
	cert.PrivateKey = signer
	r.roots = roots
	r.tree.Listeners[1].TLS = &ctls.Config{Certificates: []ctls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
}

// helloCounter counts the writes of a client: the first is its ClientHello.
type helloCounter struct {
	net.Conn
	writes *atomic.Int64
}

func (c helloCounter) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.writes.Add(1)
	return n, err
}

// TestHandshakesShareABatch has many clients say hello while the loop is busy: their signatures are made several at once.
func TestHandshakesShareABatch(t *testing.T) {
	t.Run("RSA", func(t *testing.T) { testSharedBatch(t, batchSigned) })
	t.Run("ECDSA", func(t *testing.T) { testSharedBatch(t, batchSignedECDSA) })
}

func testSharedBatch(t *testing.T, signed func(*rig)) {
	const clients = 12
	r := newRig(t, echoBackend(t, false), signed)
	release := make(chan struct{})
	var held, ended sync.WaitGroup
	held.Add(1)
	go r.loop.Do(func() { held.Done(); <-release })
	held.Wait()
	var hellos atomic.Int64
	for range clients {
		ended.Go(func() {
			raw, err := net.Dial("tcp", r.secure)
			if err != nil {
				t.Error(err)
				return
			}
			defer raw.Close()
			_ = raw.SetDeadline(time.Now().Add(patience))
			c := ctls.Client(helloCounter{raw, &hellos}, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"})
			_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\n\r\n")
			answer, _ := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
				t.Errorf("%v, %.60q", err, answer)
			}
		})
	}
	for hellos.Load() < clients {
		time.Sleep(time.Millisecond)
	}
	close(release)
	ended.Wait()
	all := r.worker.Stats()
	s := all.Signatures
	if all.Exchanges != clients {
		t.Errorf("%d of %d handshakes are the engine's own", all.Exchanges, clients)
	}
	if s.Signatures+s.Alone != clients || s.Signatures == 0 || s.Passes >= clients || s.Faults != 0 {
		t.Errorf("%+v of %d handshakes", s, clients)
	}
}

// TestClientsThatLeaveWhileTheirSignatureIsMade harm no others.
func TestClientsThatLeaveWhileTheirSignatureIsMade(t *testing.T) {
	r := newRig(t, echoBackend(t, false), batchSigned)
	for i := range 24 {
		raw, err := net.Dial("tcp", r.secure)
		must(t, err)
		hello := ctls.Client(raw, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"})
		go func() { _ = hello.Handshake() }()
		if i%2 == 0 {
			must(t, raw.(*net.TCPConn).SetLinger(0)) // a reset
		}
		if i%3 != 0 {
			time.Sleep(time.Millisecond)
		}
		must(t, raw.Close())
	}
	resp, err := r.client(false).Get("https://" + r.secure + "/")
	must(t, err)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
	r.settled()
	r.do(func() {
		if n := r.worker.Signatures.Waiting(); n != 0 {
			t.Errorf("%d handshakes wait", n)
		}
	})
}
