package proxy

import (
	"context"
	ctls "crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/h3side"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// silent is a backend that accepts connections and sends nothing.
func silent(p *memtransport.Peer) {
	p.Handler = func(p *memtransport.Peer) {
		if p.Take(); p.Ended {
			p.Close()
		}
	}
}

// answerHTTP2 returns a backend with HTTP/2 that answers each request by 204.
func answerHTTP2(o http2.Options) func(p *memtransport.Peer) {
	return func(p *memtransport.Peer) {
		serveHTTP2(p, o, func(m *http2.Machine, ev http2.Event) {
			if ev.Kind == http2.End {
				out, _ := m.AppendResponse(m.AppendControl(nil), ev.Stream, &semantics.Message{Status: 204, ContentLength: -1}, true)
				m.Release(ev.Stream)
				p.Write(out)
			}
		})
	}
}

// limitedStreams is a connection to a backend with a limit of streams, of which nothing else is called.
type limitedStreams struct {
	side.Backend
	streams int
	known   bool
}

func (l limitedStreams) Limit() (int, bool) { return l.streams, l.known }

// TestNoStreamsGranted distinguishes a connection that never permits a request from one whose streams are all in use, or whose
// backend has lowered its limit after requests.
func TestNoStreamsGranted(t *testing.T) {
	for _, c := range []struct {
		state backConnState
		uses  int
		limit limitedStreams
		want  bool
	}{
		{inUse, 0, limitedStreams{streams: 0, known: true}, true},
		{inUse, 0, limitedStreams{streams: 0}, false}, // before the settings
		{inUse, 0, limitedStreams{streams: 1, known: true}, false},
		{inUse, 1, limitedStreams{streams: 0, known: true}, false},
		{retiring, 0, limitedStreams{streams: 1, known: true}, true},
		{retiring, 1, limitedStreams{streams: 1, known: true}, false},
		{detached, 0, limitedStreams{streams: 1, known: true}, true},
	} {
		s := &backConn{state: c.state, uses: c.uses, conn: c.limit}
		if got := s.noStreamsGranted(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestSettingsWithoutStreamsOpenNoConnections checks that requests fail whose connection permits none. Each would otherwise open
// another connection, to the same end, until its time is over.
func TestSettingsWithoutStreamsOpenNoConnections(t *testing.T) {
	r := newMemRig(t, func(r *memRig, _ *Tree) { r.to.Protocol = HTTP2 })
	r.backend = func(p *memtransport.Peer) {
		if silent(p); len(r.backs) <= maxStale {
			p.Write([]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0}) // SETTINGS_MAX_CONCURRENT_STREAMS = 0 (RFC 9113 6.5.2)
		}
	}
	client := r.connect(memHTTP1)
	client.Write([]byte(first1))
	r.run()
	if got := string(client.Take()); !strings.HasPrefix(got, "HTTP/1.1 503") {
		t.Errorf("answered %q", got)
	}
	if len(r.backs) > maxStale {
		t.Errorf("%d connections for a request", len(r.backs))
	}
	r.nothingLeft(client)
}

// TestLeaveKeepsDetached checks that a connection that was removed is not removed again by what comes after: the pool would
// count one connection too few, and the backend get one more than its limit.
func TestLeaveKeepsDetached(t *testing.T) {
	r := newMemRig(t, func(r *memRig, _ *Tree) { r.to.Protocol = HTTP2; r.limit(pool.Limits{Connections: 2}) })
	r.backend = answerHTTP2(http2.Options{})
	client := r.ask2(0, 1)
	conns := func() int { return r.to.Status(r.worker.Now).Backends[0].Conns }
	var s *backConn
	for _, bs := range r.worker.backs {
		s = bs.shared[0]
	}
	s.Handle(&side.Event{Kind: side.Closed})
	for _, kind := range []side.Kind{side.Leaving, side.Closed} {
		if s.Handle(&side.Event{Kind: kind}); s.state != detached || conns() != 0 {
			t.Errorf("state %d, %d connections", s.state, conns())
		}
	}
	r.backs[0].Close()
	r.nothingLeft(client)
}

// TestEndBeforeSettings checks that requests fail at once whose connection ends while they wait for its settings.
func TestEndBeforeSettings(t *testing.T) {
	r := newMemRig(t, func(r *memRig, _ *Tree) { r.to.Protocol = HTTP2 })
	r.backend = silent
	client := r.connect(memHTTP1)
	client.Write([]byte(first1))
	r.run()
	r.backs[0].Close()
	r.run()
	if got := string(client.Take()); !strings.HasPrefix(got, "HTTP/1.1 502") {
		t.Errorf("answered %q", got)
	}
	r.nothingLeft(client)
}

// TestRetriesLeaveAnEndingConnection checks that requests that fail with their connection are not sent again on it.
func TestRetriesLeaveAnEndingConnection(t *testing.T) {
	r := newMemRig(t, func(r *memRig, _ *Tree) { r.to.Protocol, r.rule.Attempts = HTTP2, 2 })
	r.backend = func(p *memtransport.Peer) { serveHTTP2(p, http2.Options{}, func(*http2.Machine, http2.Event) {}) }
	client := r.ask2(0, 3)
	r.backend = answerHTTP2(http2.Options{})
	r.backs[0].Close()
	r.run()
	if s := r.worker.Stats(); s.Status[2] != 3 || s.Retries != 3 || len(r.backs) != 2 {
		t.Errorf("%d requests were answered after %d retries, on %d connections", s.Status[2], s.Retries, len(r.backs))
	}
	r.nothingLeft(client)
}

// TestWebSocketAtTheEndOfHTTP3 checks that a request that waits for the settings of a connection with HTTP/3 fails with it.
func TestWebSocketAtTheEndOfHTTP3(t *testing.T) {
	cert, roots := testcert.SelfSigned("backend.test")
	at := quicSocket(t)
	l, err := at.Listen(&ctls.Config{Certificates: []ctls.Certificate{cert}, NextProtos: []string{http3.NextProto}}, nil)
	must(t, err)
	r := http3Rig(t, at.LocalAddr().String(), func(r *rig) { r.over3(roots) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := over.dial(ctx, "tcp", r.addr)
	must(t, err)
	defer func() { _ = c.Close() }()
	must(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, socketRequest)
	must(t, err)
	for range maxStale { // it was not processed, and so may be sent again
		conn, err := l.Accept(ctx)
		must(t, err)
		r.eventually("a request that waits for settings", func() bool { // which do not come
			for _, bs := range r.worker.backs {
				if len(bs.shared) == 1 && len(bs.shared[0].waiting) == 1 {
					return true
				}
			}
			return false
		})
		_ = conn.CloseWithError(uint64(http3.InternalError), "")
	}
	var got [12]byte
	if _, err = io.ReadFull(c, got[:]); err != nil || string(got[:9]) != "HTTP/1.1 " || got[9] != '5' {
		t.Errorf("%q, %v", got, err)
	}
	r.settled()
}

// TestWaitersAreBounded checks that no more requests wait for a connection than it may have streams, by the limit of the gateway
// or that of the backend's last connection: the others open further ones, before and after it is established.
func TestWaitersAreBounded(t *testing.T) {
	waiters := func(r *memRig) string {
		var n []int
		for _, bs := range r.worker.backs {
			for _, s := range append(bs.opening, bs.shared...) {
				n = append(n, len(s.waiting))
			}
		}
		return fmt.Sprint(n)
	}
	t.Run("opening", func(t *testing.T) {
		r := newMemRig(t, func(r *memRig, _ *Tree) { r.to.Protocol = HTTP2 })
		r.loop.Dialed = func(netip.AddrPort) (func(p *memtransport.Peer), error) { return nil, nil }
		client := r.ask2(0, maxWaiting+10)
		if got := waiters(r); got != fmt.Sprintf("[%d 10]", maxWaiting) {
			t.Errorf("%s wait", got)
		}
		r.nothingLeft(client)
	})
	t.Run("established", func(t *testing.T) {
		r := newMemRig(t, func(r *memRig, _ *Tree) { r.to.Protocol = HTTP2 })
		r.backend = silent
		first := r.ask2(0, 1)
		second := r.ask2(1, maxWaiting+10)
		if got := waiters(r); got != fmt.Sprintf("[%d 10]", maxWaiting) {
			t.Errorf("%s wait", got)
		}
		r.nothingLeft(first, second)
	})
	t.Run("learned", func(t *testing.T) {
		r := newMemRig(t, func(r *memRig, _ *Tree) { r.to.Protocol = HTTP2 })
		r.backend = answerHTTP2(http2.Options{MaxStreams: 3})
		first := r.ask2(0, 1)
		r.backs[0].Close()
		r.run()
		r.backend = silent
		second := r.ask2(1, 6)
		if got := waiters(r); got != "[3 2]" {
			t.Errorf("%s wait", got)
		}
		r.nothingLeft(first, second)
	})
}

// TestClientLeavesWhileABackendIsConnected checks that a connection that is being opened outlives the request for which it is.
func TestClientLeavesWhileABackendIsConnected(t *testing.T) {
	r := newMemRig(t, nil)
	r.loop.Dialed = func(netip.AddrPort) (func(p *memtransport.Peer), error) { return nil, nil }
	client := r.connect(memHTTP1)
	client.Write([]byte(first1))
	r.run()
	client.Abort()
	r.run()
	for _, bs := range r.worker.backs {
		if len(bs.opening) != 1 || len(bs.opening[0].waiting) != 0 {
			t.Errorf("%d connections are being opened", len(bs.opening))
		}
	}
	r.nothingLeft()
}

// TestCanceledRequestOfHTTP3KeepsItsEnd checks that a request over HTTP/3 whose end has been sent is not reset when its client leaves: the
// backend could not tell that it was complete (RFC 9000 3.1).
func TestCanceledRequestOfHTTP3KeepsItsEnd(t *testing.T) {
	cert, roots := testcert.SelfSigned("backend.test")
	at := quicSocket(t)
	arrived, goOn, got := make(chan bool, 1), make(chan bool), make(chan error, 1)
	const size = 20_000 // more than the backend permits before it reads, so that the end waits in the gateway
	s := &http3.Server{
		TLS: &ctls.Config{Certificates: []ctls.Certificate{cert}}, QUIC: &quic.Config{StreamWindow: 1000, MaxStreamWindow: 1000},
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			arrived <- true
			<-goOn
			n, err := io.Copy(io.Discard, req.Body)
			if err == nil && n != size {
				err = fmt.Errorf("%d bytes", n)
			}
			got <- err
		}),
	}
	go func() { _ = s.ServeTransport(at) }()
	t.Cleanup(func() { _ = s.Close() })
	r := http3Rig(t, at.LocalAddr().String(), func(r *rig) { r.over3(roots) })
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", "https://"+r.secure, strings.NewReader(strings.Repeat("x", size)))
	must(t, err)
	left := make(chan error, 1)
	go func() {
		_, err := r.client(true).Do(req) //nolint:bodyclose // there is no response
		left <- err
	}()
	<-arrived
	r.eventually("the end of the request", func() (sent bool) {
		for _, bs := range r.worker.backs {
			for _, s := range bs.shared {
				s.conn.(*h3side.Back).Each(func(user any) { sent = user.(*exchange).phase == awaiting })
			}
		}
		return sent
	})
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.settled()
	close(goOn)
	if err := <-got; err != nil {
		t.Errorf("the backend got %v", err)
	}
}
