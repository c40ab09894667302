package proxy

import (
	"context"
	ctls "crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/quic"
)

// http3Rig serves HTTP/3 beside the rest.
func http3Rig(t *testing.T, backend string, change func(r *rig)) *rig {
	return newRig(t, backend, func(r *rig) {
		r.tree.Listeners[1].HTTP3 = &HTTP3Options{Machine: http3.MachineOptions{ExtendedConnect: true}}
		if change != nil {
			change(r)
		}
	})
}

// client3 returns a client of HTTP/3.
func (r *rig) client3() *http.Client {
	return over.client3(r.t, &http3.Transport{TLS: &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"}})
}

// Clients of HTTP/3 get what backends of net/http answer.
func TestRelaysHTTP3(t *testing.T) {
	for _, backH2 := range []bool{false, true} {
		backend := echoBackend(t, backH2)
		r := http3Rig(t, backend, func(r *rig) {
			if backH2 {
				r.pool.Protocol = HTTP2
			}
		})
		t.Run(fmt.Sprintf("back h2=%v", backH2), func(t *testing.T) { postMany(t, r.client3(), "https://"+r.secure+"/a?b=c") })
		r.settled()
		t.Logf("%+v", r.worker.Stats())
	}
}

// Connections of HTTP/3 count for the limit of the listener. One that is too many once its handshake is done is closed.
func TestConnectionsOfHTTP3AreLimited(t *testing.T) {
	r := http3Rig(t, "127.0.0.1:1", func(r *rig) { r.tree.Listeners[1].Limits.Connections = 1 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	from := quicSocket(t)
	first := r.dial3(ctx, from, nil)
	r.eventually("the first connection", func() bool { return len(r.worker.fronts3) == 1 })
	second := r.dial3(ctx, from, nil)
	<-second.Context().Done()
	var e *quic.ApplicationError
	if err := context.Cause(second.Context()); !errors.As(err, &e) || e.Code != uint64(http3.ExcessiveLoad) {
		t.Error(err)
	}
	_ = first.CloseWithError(uint64(http3.NoError), "")
	r.eventually("the end of the first connection", func() bool { return len(r.worker.fronts3) == 0 })
	r.do(func() {
		if a := r.worker.admissions["secure"]; a.Open() != 0 || a.Refused(DeniedLimit) != 1 {
			t.Errorf("%d are open, %d refused", a.Open(), a.Refused(DeniedLimit))
		}
	})
}

// echoBackend3 is echoBackend over HTTP/3.
func echoBackend3(t *testing.T, q *quic.Config) (addr string, roots *x509.CertPool) {
	t.Helper()
	cert, roots := testcert.SelfSigned("backend.test")
	at := quicSocket(t)
	s := &http3.Server{TLS: &ctls.Config{Certificates: []ctls.Certificate{cert}}, QUIC: q, Handler: echoHandler(t)}
	go func() { _ = s.ServeTransport(at) }()
	t.Cleanup(func() { _ = s.Close() })
	return at.LocalAddr().String(), roots
}

// over3 has the pool of a rig speak HTTP/3.
func (r *rig) over3(roots *x509.CertPool) {
	r.pool.Protocol, r.pool.TLS = HTTP3, &ctls.Config{RootCAs: roots, ServerName: "backend.test"}
}

// Backends with HTTP/3 answer clients of every version. One permits few streams at a time, so that several connections are needed.
func TestRelaysToHTTP3(t *testing.T) {
	for name, q := range map[string]*quic.Config{"plain": nil, "few streams": {MaxStreams: 3}} {
		backend, roots := echoBackend3(t, q)
		r := http3Rig(t, backend, func(r *rig) { r.over3(roots) })
		for version, c := range map[string]*http.Client{"h1": r.client(false), "h2": r.client(true), "h3": r.client3()} {
			t.Run(name+", "+version, func(t *testing.T) { postMany(t, c, "https://"+r.secure+"/a?b=c") })
		}
		r.settled()
		if n := r.worker.Stats().BackOpened; n > 40 { // eight requests at a time need three
			t.Errorf("%s: %d connections to the backend", name, n)
		}
		t.Logf("%+v", r.worker.Stats())
	}
}

// postMany posts contents of many sizes, eight at a time.
func postMany(t *testing.T, c *http.Client, url string) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range 10 {
				body := make([]byte, rnd.IntN(1<<rnd.IntN(21)))
				for i := range body {
					body[i] = byte(rnd.Uint32())
				}
				post(t, c, url, body)
			}
		})
	}
	wg.Wait()
}
