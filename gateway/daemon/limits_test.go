package daemon

import (
	"context"
	ctls "crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/quic"
)

const limitsConfig = `
admin: {socket: SOCKET}
loops: 8
listeners:
- {name: web, address: "LISTEN", protocol: HTTP, limits: {connections: LIMIT}}
- {name: safe, address: "SECURE", protocol: HTTPS, versions: ["1.1", "3"], tls: {certificates: [{cert: PAIR, default: true}]}, limits: {connections: 2}}
routes:
- {name: r, rules: [{filters: [{type: FixedResponse, status_code: 204}]}]}
`

// asked is a connection of HTTP/1.1 that was answered once, nil if it was refused.
func (s *site) asked() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		return nil // the reset may come as soon as the connection is there
	}
	s.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	b := make([]byte, 12)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil
	}
	if string(b) != "HTTP/1.1 204" {
		s.t.Errorf("%q", b)
	}
	return c
}

// listener returns the state of a listener.
func (s *site) listener(name string) (l control.ListenerStatus) {
	s.t.Helper()
	st := s.d.workers.Status(nil)
	for _, l = range st.Listeners {
		if l.Name == name {
			return l
		}
	}
	s.t.Fatalf("no listener %q", name)
	return l
}

// A limit of connections is one for all loops: it is used up whatever loops the kernel chooses, holds for the versions of HTTP
// together, outlives a reload, and what it refuses is counted.
func TestALimitOfConnectionsHoldsForAllLoopsTogether(t *testing.T) {
	secure, dir := free(t), t.TempDir()
	tc := &ctls.Config{RootCAs: writePair(t, dir, "gateway.test"), ServerName: "gateway.test"}
	src := func(limit string) string {
		return strings.NewReplacer("SECURE", secure, "PAIR", filepath.Join(dir, "gateway.test"), "LIMIT", limit).Replace(limitsConfig)
	}
	s := newSite(t, src("8"))
	var open []net.Conn
	for i := range 8 {
		c := s.asked()
		if c == nil {
			t.Fatalf("connection %d of 8 is refused", i+1)
		}
		open = append(open, c)
	}
	for range 3 {
		if s.asked() != nil {
			t.Error("more than 8 connections are served")
		}
	}
	open[0].Close()
	await(t, func() bool { return s.asked() != nil })
	s.reload(src("9"))
	if s.asked() == nil {
		t.Error("a higher limit admits no more")
	}
	if s.asked() != nil {
		t.Error("a reload forgets what was open")
	}
	l := s.listener("web")
	if l.Open != 9 || l.Refused["limit"] < 4 {
		t.Errorf("%d connections are open, %v refused", l.Open, l.Refused)
	}
	if got := s.counted(`millrace_http_listener_connections{listener="web"}`); got != "9" {
		t.Errorf("%s connections are in the metrics", got)
	}

	one, err := ctls.Dial("tcp", secure, tc)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	ask3 := func() error {
		tr := &http3.Transport{TLS: tc}
		t.Cleanup(func() { tr.Close() })
		req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+secure, nil) // which is not repeated
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		resp, err := tr.RoundTrip(req.WithContext(ctx))
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := ask3(); err != nil {
		t.Error(err)
	}
	var alert *quic.TransportError
	if err := ask3(); !errors.As(err, &alert) || alert.Code != 0x150 { // a later end would cost keys and a signature
		t.Errorf("HTTP/3 beyond the limit: %v", err)
	}
	l = s.listener("safe")
	if diff := cmp.Diff(map[string]uint64{"limit": 1}, l.Refused); diff != "" || l.Open != 2 {
		t.Errorf("%d connections are open, refused: %s", l.Open, diff)
	}
	if got := s.counted(`millrace_http_refused_connections_total{listener="safe",reason="limit"}`); got != "1" {
		t.Errorf("%s refused connections are in the metrics", got)
	}
}
