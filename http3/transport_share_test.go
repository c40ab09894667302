package http3_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/quic"
)

// sharing is a server of all names below test.example, and what counts its connections. It answers requests for
// strict.test.example on connections that were opened for that name only.
func sharing(t *testing.T) (port string, conns *atomic.Int64, tc *tls.Config) {
	cert, roots := testcert.SelfSigned("*.test.example")
	conns = &atomic.Int64{}
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	s := &http3.Server{
		TLS:    &tls.Config{Certificates: []tls.Certificate{cert}},
		Serves: func(host string) bool { return host != "none.test.example" },
		ConnContext: func(ctx context.Context, _ *quic.Conn) context.Context {
			conns.Add(1)
			return ctx
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, _ := strings.Cut(r.Host, ":")
			if host == "strict.test.example" && r.TLS.ServerName != host {
				w.WriteHeader(http.StatusMisdirectedRequest)
				return
			}
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s", host, b)
		}),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(pc)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	_, port, _ = net.SplitHostPort(pc.LocalAddr().String())
	return port, conns, &tls.Config{RootCAs: roots}
}

// lookup resolves the names of the tests.
func lookup(_ context.Context, host string) ([]netip.Addr, error) {
	switch {
	case host == "elsewhere.test.example":
		return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
	case strings.HasSuffix(host, ".example"):
		return []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1")}, nil
	}
	return nil, errors.New("no such name")
}

// A connection carries requests for all names of its certificate at its address, and no others (RFC 9114 3.3).
func TestConnectionsAreShared(t *testing.T) {
	port, conns, tc := sharing(t)
	rt := transport(t, &http3.Transport{TLS: tc, Lookup: lookup, ShareConnections: true})
	c := &http.Client{Transport: rt, Timeout: patience}
	for _, step := range []struct {
		host   string
		status int
		conns  int64 // so far
	}{
		{"a", 200, 1},
		{"b", 200, 1},
		{"a", 200, 1},
		{"b", 200, 1},
		{"none", 421, 2},
		{"none", 421, 2}, // refused on the shared connection, then on its own
		{"strict", 200, 3},
		{"strict", 200, 3},
		{"b", 200, 3},
		{"elsewhere", 200, 4},
	} {
		host := step.host + ".test.example"
		resp, err := c.Post("https://"+host+":"+port, "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(host, err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != step.status || step.status == 200 && string(b) != host+" body" || conns.Load() != step.conns {
			t.Errorf("%s: %s %q, %d connections, want %d", host, resp.Status, b, conns.Load(), step.conns)
		}
	}
	before := conns.Load()
	if _, err := c.Get("https://other.example:" + port); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a name that the certificate does not have: %v", err)
	}
	// A body that cannot be sent again keeps the answer.
	rt2 := transport(t, &http3.Transport{TLS: tc, Lookup: lookup, ShareConnections: true})
	c = &http.Client{Transport: rt2, Timeout: patience}
	if _, err := c.Get("https://a.test.example:" + port); err != nil {
		t.Fatal(err)
	}
	resp, err := c.Post("https://strict.test.example:"+port, "text/plain", io.MultiReader(strings.NewReader("body")))
	if err != nil || resp.StatusCode != http.StatusMisdirectedRequest || conns.Load() != before+1 {
		t.Errorf("%v, %v, %d connections more", resp, err, conns.Load()-before)
	}
}

// Connections are not shared where that is not asked for, and where the configuration checks other names or checks
// that fail for the name.
func TestConnectionsThatAreNotShared(t *testing.T) {
	port, conns, tc := sharing(t)
	named, lax, checking := tc.Clone(), tc.Clone(), tc.Clone()
	named.ServerName, lax.InsecureSkipVerify = "a.test.example", true
	var asked atomic.Int64
	checking.VerifyConnection = func(cs tls.ConnectionState) error {
		if cs.ServerName == "b.test.example" && asked.Add(1) == 1 {
			return errors.New("not on this connection")
		}
		return nil
	}
	for i, rt := range []*http3.Transport{{TLS: tc}, {TLS: named, ShareConnections: true}, {TLS: lax, ShareConnections: true}, {TLS: checking, ShareConnections: true}} {
		rt.Lookup = lookup
		c := &http.Client{Transport: transport(t, rt), Timeout: patience}
		for k, host := range []string{"a", "b"} {
			resp, err := c.Get("https://" + host + ".test.example:" + port)
			if err != nil {
				t.Fatal(i, err)
			}
			_ = resp.Body.Close()
			if n := conns.Load(); n != int64(2*i+k+1) {
				t.Errorf("case %d: %d connections after request %d", i, n, k)
			}
		}
	}
}

// Another port is another server, though address and name are the same.
func TestConnectionsToPortsAreNotShared(t *testing.T) {
	first, conns, tc := sharing(t)
	second, others, _ := sharing(t)
	rt := transport(t, &http3.Transport{Lookup: lookup, ShareConnections: true, TLS: tc})
	c := &http.Client{Transport: rt, Timeout: patience}
	if _, err := c.Get("https://a.test.example:" + first); err != nil {
		t.Fatal(err)
	}
	// Its certificate is of another authority: a request that gets an answer went elsewhere.
	if _, err := c.Get("https://b.test.example:" + second); err == nil || others.Load() > 0 || conns.Load() != 1 {
		t.Errorf("%v, %d and %d connections", err, conns.Load(), others.Load())
	}
}
