package proxy

import (
	"context"
	ctls "crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/h3cases"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/quic"
)

// patience bounds what a test waits for.
const patience = 30 * time.Second

// dial3 opens a connection of QUIC to the rig.
func (r *rig) dial3(ctx context.Context, tr *quic.Transport, c *quic.Config) *quic.Conn {
	r.t.Helper()
	addr, err := net.ResolveUDPAddr("udp", r.secure)
	must(r.t, err)
	q, err := tr.Dial(ctx, addr, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{http3.NextProto}}, c)
	must(r.t, err)
	return q
}

// suiteAnswers answers as package h3cases wants it.
func suiteAnswers(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err == nil && r.URL.Path == "/cookie" && r.Header.Get("Cookie") != "a=1; b=2" {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// notOfAProxy are cases that succeed at an origin server, and that the gateway answers otherwise: it opens no tunnels.
func notOfAProxy(c h3cases.Case) bool {
	return c.Section == "9114 4.4" || strings.Contains(c.Name, "CONNECT") || strings.Contains(strings.ToLower(c.Name), "datagram")
}

// The gateway reacts to hostile clients of HTTP/3 as RFC 9114, 9204, 9218 and 9220 demand.
func TestHTTP3SuiteAgainstFronts(t *testing.T) {
	backend := served(t, suiteAnswers)
	r := http3Rig(t, strings.TrimPrefix(backend.URL, "http://"), func(r *rig) {
		r.tree.Listeners[1].HTTP3.Machine.Datagrams = true
		r.tree.Listeners[1].HTTP3.QUIC = &quic.Config{Datagrams: true}
	})
	from, skipped := quicSocket(t), 0
	for _, c := range h3cases.ServerCases() {
		if notOfAProxy(c) {
			skipped++
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := h3cases.RunServer(ctx, r.dial3(ctx, from, &quic.Config{Datagrams: true}), c); err != nil {
			t.Errorf("RFC %s: %s: %v", c.Section, c.Name, err)
		}
		cancel()
	}
	if skipped > 25 {
		t.Errorf("%d cases are left out", skipped)
	}
	r.settled()
}

// And to hostile backends.
func TestHTTP3SuiteAgainstBacks(t *testing.T) {
	server := quicSocket(t)
	cert, roots := testcert.SelfSigned("backend.test")
	tc := &ctls.Config{Certificates: []ctls.Certificate{cert}, NextProtos: []string{http3.NextProto}}
	r := http3Rig(t, server.LocalAddr().String(), func(r *rig) {
		r.over3(roots)
		r.pool.Connect, r.rule.Request = time.Second, 10*time.Second // of second attempts, which nobody serves
	})
	for _, c := range h3cases.ClientCases() {
		if notOfAProxy(c) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		l, err := server.Listen(tc, nil)
		must(t, err)
		err = h3cases.RunClient(ctx, l, c, func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, "GET", "http://"+r.addr, nil)
			if err != nil {
				return err
			}
			resp, err := r.client(false).Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode >= 500 {
				return fmt.Errorf("%s %s", resp.Status, resp.Header.Get("Proxy-Status"))
			}
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		})
		if err != nil {
			t.Errorf("RFC %s: %s: %v", c.Section, c.Name, err)
		}
		cancel()
		_ = l.Close()
		r.leaveBacks()
	}
	r.settled()
}

// leaveBacks has each case begin with a new connection: none is left, also none that is being opened for a second attempt.
func (r *rig) leaveBacks() {
	r.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		left := 0
		r.do(func() {
			for _, bs := range r.worker.backs {
				bs.retire()
				left += len(bs.opening) + len(bs.shared)
			}
		})
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%d connections are left", left)
		}
	}
}
