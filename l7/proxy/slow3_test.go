package proxy

import (
	"context"
	ctls "crypto/tls"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/h3side"
	"github.com/millrace/millrace/quic"
)

// sizedBackend answers with as many bytes as the path says.
func sizedBackend(t *testing.T) string {
	t.Helper()
	s := served(t, func(w http.ResponseWriter, req *http.Request) {
		n, _ := strconv.Atoi(req.URL.Path[1:])
		_, _ = w.Write(make([]byte, n))
	})
	return strings.TrimPrefix(s.URL, "http://")
}

// A client of HTTP/3 that does not read its responses has them reset after the time-out of writes: those that the gateway has yet
// to get from the backend, and those that it has whole. Other requests of the connection go on.
func TestHTTP3SlowReaders(t *testing.T) {
	r := http3Rig(t, sizedBackend(t), func(r *rig) { r.tree.Listeners[1].Timeouts.Write = time.Hour })
	c := over.client3(t, &http3.Transport{
		TLS:  &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"},
		QUIC: &quic.Config{StreamWindow: 1000, MaxStreamWindow: 1000},
	})
	get := func(bytes string) *http.Response {
		t.Helper()
		resp, err := c.Get("https://" + r.secure + "/" + bytes)
		must(t, err)
		return resp
	}
	_ = get("1").Body.Close()
	r.do(func() { r.tree.Listeners[1].Timeouts.Write = 600 * time.Millisecond }) // of the next requests, as a reload has it
	var slow []*http.Response
	for range 5 {
		slow = append(slow, get("40000"), get("4000000"))
	}
	for _, resp := range slow {
		var reset *http3.StreamError
		r.eventually("the reset of a response", func() bool { return r.worker.Stats().WriteTimeouts == 10 })
		if n, err := io.Copy(io.Discard, resp.Body); !errors.As(err, &reset) || reset.Code != http3.RequestCancelled || n > 5000 { // the reset may come behind the first bytes
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	r.do(func() { r.tree.Listeners[1].Timeouts.Write = time.Hour })
	resp := get("5000")
	if n, err := io.Copy(io.Discard, resp.Body); n != 5000 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	r.settled()
	if n := r.worker.Stats().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A backend with HTTP/3 that takes nothing of a request has it reset after the time-out of writes, and the client gets 504. It does not
// count as a client that reads nothing. The connection goes on.
func TestHTTP3BackendThatTakesNothing(t *testing.T) {
	cert, roots := testcert.SelfSigned("backend.test")
	at := quicSocket(t)
	stop := make(chan struct{})
	s := &http3.Server{
		TLS: &ctls.Config{Certificates: []ctls.Certificate{cert}}, QUIC: &quic.Config{StreamWindow: 1000, MaxStreamWindow: 1000},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == "PUT" {
				<-stop
			}
		}),
	}
	go func() { _ = s.ServeTransport(at) }()
	t.Cleanup(func() { close(stop); _ = s.Close() })
	r := http3Rig(t, at.LocalAddr().String(), func(r *rig) { r.over3(roots) })
	c := r.client(false)
	resp, err := c.Get("https://" + r.secure)
	must(t, err)
	_ = resp.Body.Close()
	r.do(func() {
		for _, bs := range r.worker.backs {
			bs.shared[0].conn.(*h3side.Back).C.SetWriteTimeout(200*time.Millisecond, uint64(http3.RequestCancelled))
		}
	})
	req, err := http.NewRequest("PUT", "https://"+r.secure, strings.NewReader(strings.Repeat("x", 1<<20)))
	must(t, err)
	resp, err = c.Do(req)
	must(t, err)
	_ = resp.Body.Close()
	if resp.StatusCode != 504 {
		t.Error(resp.Status)
	}
	resp, err = c.Get("https://" + r.secure)
	must(t, err)
	_ = resp.Body.Close()
	r.settled()
	if s := r.worker.Stats(); s.BackOpened != 1 || s.WriteTimeouts != 0 {
		t.Errorf("%d connections to the backend, %d time-outs of clients", s.BackOpened, s.WriteTimeouts)
	}
}

// A client that does not read the control stream ends its connection: what is due there would gather.
func TestHTTP3ControlStreamsThatAreNotRead(t *testing.T) {
	r := http3Rig(t, sizedBackend(t), func(r *rig) { r.tree.Listeners[1].Timeouts.Write = 200 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	q := r.dial3(ctx, quicSocket(t), &quic.Config{StreamWindow: 1000, MaxStreamWindow: 1000})
	r.eventually("the connection", func() bool {
		for _, f := range r.worker.fronts3 {
			f.C.Uni[0].Write(make([]byte, 5000), false)
			return true
		}
		return false
	})
	<-q.Context().Done()
	var e *quic.ApplicationError
	if err := context.Cause(q.Context()); !errors.As(err, &e) || e.Code != uint64(http3.ExcessiveLoad) {
		t.Error(err)
	}
	r.eventually("no connection", r.worker.Idle)
}
