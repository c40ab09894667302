package proxy

import (
	"context"
	ctls "crypto/tls"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/quic"
)

// A backend with HTTP/3 that permits no requests on its connections is not asked for one connection after another.
func TestBackendWithoutStreams(t *testing.T) {
	server := quicSocket(t)
	cert, roots := testcert.SelfSigned("backend.test")
	tc := &ctls.Config{Certificates: []ctls.Certificate{cert}, NextProtos: []string{http3.NextProto}}
	r := http3Rig(t, server.LocalAddr().String(), func(r *rig) {
		r.over3(roots)
		r.rule.Request, r.rule.Attempts = 5*time.Second, 2
	})
	l, err := server.Listen(tc, &quic.Config{MaxStreams: -1})
	must(t, err)
	var n atomic.Int32
	go func() {
		for n.Load() < 50 {
			if _, err := l.Accept(context.Background()); err != nil {
				return
			}
			n.Add(1)
		}
	}()
	resp, err := r.client(false).Get("http://" + r.addr)
	must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode < 500 || n.Load() > 3 { // one that was not processed is repeated once more
		t.Errorf("status %d, %d connections for two attempts", resp.StatusCode, n.Load())
	}
	r.settled()
}
