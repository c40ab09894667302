package http3_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
)

// Attack: a client that cancels requests as soon as they are sent is closed with H3_EXCESSIVE_LOAD, and never
// has more handlers running than permitted.
func TestRapidReset(t *testing.T) {
	var running, most atomic.Int64
	url := serve(t, &http3.Server{MaxHandlers: 20, Machine: http3.MachineOptions{MaxResets: 50}, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-r.Context().Done():
			time.Sleep(time.Millisecond) // some work that goes on
		case <-time.After(patience):
		}
	})})
	tc := clientTLS()
	tc.NextProtos = []string{http3.NextProto}
	conn, err := dialQUIC(within(t), t, strings.TrimPrefix(url, "https://"), tc, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := http3.NewMachine(http3.RoleClient, http3.MachineOptions{TableCapacity: -1})
	control, err := conn.OpenUniStream(within(t))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = control.Write(m.AppendControl(nil))
	sent := 0
	for ; conn.Context().Err() == nil; sent++ {
		s, err := conn.OpenStream(within(t))
		if err != nil {
			break
		}
		if sent > 20000 {
			t.Fatal("the connection stays open")
		}
		_, _ = s.Write([]byte("\x01\x10\x00\x00\xd1\xd7\xc1\x50\x09localhost"))
		if sent%8 == 0 {
			time.Sleep(time.Millisecond) // so that some reach their handlers
		}
		s.CancelWrite(uint64(http3.RequestCancelled))
		s.CancelRead(uint64(http3.RequestCancelled))
	}
	var ae *quic.ApplicationError
	if err := context.Cause(conn.Context()); !errors.As(err, &ae) || !ae.Remote || ae.Code != uint64(http3.ExcessiveLoad) {
		t.Errorf("after %d requests: %v", sent, err)
	}
	if n := most.Load(); n > 20 || n == 0 {
		t.Errorf("%d handlers at a time", n)
	}
}

// A client that stops the control stream of the server ends the connection, though nothing is to be written to it (RFC 9114 6.2.1).
func TestTheControlStreamIsStopped(t *testing.T) {
	url := serve(t, &http3.Server{Handler: http.NotFoundHandler()})
	tc := clientTLS()
	tc.NextProtos = []string{http3.NextProto}
	conn, err := dialQUIC(within(t), t, strings.TrimPrefix(url, "https://"), tc, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := conn.AcceptUniStream(within(t))
	if err != nil {
		t.Fatal(err)
	}
	s.CancelRead(uint64(http3.NoError))
	select {
	case <-conn.Context().Done():
	case <-within(t).Done():
		t.Fatal("the connection goes on")
	}
	var ae *quic.ApplicationError
	if err := context.Cause(conn.Context()); !errors.As(err, &ae) || ae.Code != uint64(http3.ClosedCriticalStream) {
		t.Error(err)
	}
}

// A request that is reset before its header, in the one direction of the client, is reset by the server in the
// other: no half of a stream stays behind.
func TestResetBeforeHeader(t *testing.T) {
	url := serve(t, &http3.Server{Handler: http.NotFoundHandler()})
	tc := clientTLS()
	tc.NextProtos = []string{http3.NextProto}
	conn, err := dialQUIC(within(t), t, strings.TrimPrefix(url, "https://"), tc, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := conn.OpenStream(within(t))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Write([]byte("\x01"))
	s.CancelWrite(uint64(http3.RequestCancelled))
	_ = s.SetReadDeadline(time.Now().Add(patience))
	var se *quic.StreamError
	if _, err := s.Read(make([]byte, 1)); !errors.As(err, &se) || se.Code != uint64(http3.RequestCancelled) || !se.Remote {
		t.Error(err)
	}
}

// skipRaceOfQUICGo skips what the race detector finds in quic-go v0.65: a client that opens streams for early data reads
// Conn.peerParams while handleTransportParameters replaces it.
func skipRaceOfQUICGo(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("quic-go opens streams beside the arrival of transport parameters, without a lock")
	}
}

// Early data is served for safe methods only; others wait for the handshake, and a request that comes early
// nevertheless is answered with 425 (RFC 8470).
func TestEarlyData(t *testing.T) {
	skipRaceOfQUICGo(t)
	var early atomic.Int64
	tr := quicTransport(t)
	s := &http3.Server{TLS: serverTLS(), QUIC: &quic.Config{ZeroRTT: true}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.TLS.HandshakeComplete {
			early.Add(1)
			if r.Method != http.MethodGet {
				t.Error("early", r.Method)
			}
		}
		_, _ = io.WriteString(w, r.Method)
	})}
	go func() { _ = s.ServeTransport(tr) }()
	t.Cleanup(func() { _ = s.Close() })
	url := "https://" + tr.LocalAddr().String()
	cache := tls.NewLRUClientSessionCache(10)
	var remembered atomic.Pointer[http3.Settings]
	visit := func(method, url string) (resumed bool) {
		tc := clientTLS()
		tc.ClientSessionCache = cache
		rt := &http3.Transport{TLS: tc, QUIC: &quic.Config{ZeroRTT: true}}
		defer rt.Close()
		req, _ := http.NewRequestWithContext(within(t), method, url, nil)
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || string(b) != method || resp.StatusCode != 200 {
			t.Fatalf("%s: %s %q, %v", method, resp.Status, b, err)
		}
		if all := http3.RememberedSettings(rt); len(all) > 0 {
			remembered.Store(&all[0])
		}
		time.Sleep(20 * time.Millisecond) // for the ticket
		return resp.TLS.DidResume
	}
	visit(http.MethodGet, url)
	for i := 0; early.Load() == 0; i++ {
		if i > 200 {
			t.Fatal("no request came as early data")
		}
		visit(http.MethodGet, url)
	}
	if got := remembered.Load(); got == nil || got.TableCapacity != http3.DefaultTableCapacity {
		t.Errorf("remembered settings: %+v", got)
	}
	visit(http.MethodPost, url)
	visit(http.MethodDelete, url)
	for i := 0; rawEarlyPost(t, tr.LocalAddr().String(), cache) != 425; i++ {
		if i > 200 {
			t.Fatal("no early POST was answered with 425")
		}
	}
	// Another server cannot read the ticket: it rejects early data, and the client sends the request again.
	other := serve(t, &http3.Server{QUIC: &quic.Config{ZeroRTT: true}, Handler: s.Handler})
	visit(http.MethodGet, other)
}

// rawEarlyPost sends a POST as early data, which no client should, and returns the status.
func rawEarlyPost(t *testing.T, addr string, cache tls.ClientSessionCache) int {
	tc := clientTLS()
	tc.NextProtos, tc.ServerName, tc.ClientSessionCache = []string{http3.NextProto}, "127.0.0.1", cache
	conn, err := dialQUIC(within(t), t, addr, tc, &quic.Config{ZeroRTT: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseWithError(uint64(http3.NoError), "")
	s, err := conn.OpenStream(within(t))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Write([]byte("\x01\x10\x00\x00\xd4\xd7\xc1\x50\x09localhost"))
	_ = s.Close()
	b, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // for the ticket
	switch {
	case strings.Contains(string(b), "\x00\x00\xff\x07"): // static entry 70
		return 425
	case strings.Contains(string(b), "\x00\x00\xd9"):
		return 200
	}
	t.Fatalf("response %x", b)
	return 0
}

// A server of HTTP/1.1 refers the client to HTTP/3, and serves again while that is broken.
func TestAltSvc(t *testing.T) {
	h3 := &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Proto+" "+r.Header.Get("Alt-Used"))
	})}
	to, _ := url.Parse(serve(t, h3))
	port, _ := strconv.Atoi(to.Port())
	old := httptest.NewUnstartedServer(http3.AltSvcHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Proto)
	}), port, time.Hour))
	old.TLS = serverTLS()
	old.StartTLS()
	defer old.Close()
	rt := &http3.AltSvcTransport{
		HTTP3:    transport(t, &http3.Transport{QUIC: &quic.Config{HandshakeTimeout: time.Second}}),
		Fallback: &http.Transport{TLSClientConfig: clientTLS()},
	}
	c := &http.Client{Transport: rt, Timeout: patience}
	want := func(proto string) {
		t.Helper()
		resp, err := c.Get(old.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("X-Proto"); got != proto {
			t.Errorf("%q, want %q", got, proto)
		}
	}
	want("HTTP/1.1")
	want("HTTP/3.0 " + to.Host)
	want("HTTP/3.0 " + to.Host)
	_ = h3.Close()
	want("HTTP/1.1")
	want("HTTP/1.1")
}

// A server that has other settings than the one that issued a session takes no early data on it, though both share
// ticket keys and a register: the client would keep to the old settings (RFC 9114 7.2.4.2).
func TestEarlyDataUnderOtherSettings(t *testing.T) {
	skipRaceOfQUICGo(t)
	register := quic.NewStrikeRegister(quic.StrikeConfig{})
	tc := serverTLS()
	cache := tls.NewLRUClientSessionCache(10)
	var early atomic.Int64
	server := func(m http3.MachineOptions) string {
		return serve(t, &http3.Server{TLS: tc, Machine: m, QUIC: &quic.Config{ZeroRTT: true, Replay: register}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !r.TLS.HandshakeComplete {
				early.Add(1)
			}
		})})
	}
	visit := func(url string) (resumed bool) {
		ct := clientTLS()
		ct.ClientSessionCache, ct.ServerName = cache, "test.example" // one session for all ports
		rt := &http3.Transport{TLS: ct, QUIC: &quic.Config{ZeroRTT: true}}
		defer rt.Close()
		req, _ := http.NewRequestWithContext(within(t), http.MethodGet, url, nil)
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		time.Sleep(20 * time.Millisecond) // for the ticket
		return resp.TLS.DidResume
	}
	first, same, other := server(http3.MachineOptions{}), server(http3.MachineOptions{}), server(http3.MachineOptions{TableCapacity: 1000})
	visit(first)
	for i := 0; early.Load() == 0; i++ {
		if visit(same); i > 200 {
			t.Fatal("no early data at a server with the same settings")
		}
	}
	resumed := 0
	for range 10 {
		visit(first)
		before := early.Load()
		if visit(other) {
			resumed++
		}
		if early.Load() != before {
			t.Fatal("early data at a server with other settings")
		}
	}
	if resumed == 0 {
		t.Error("no session was resumed")
	}
}
