package control

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
)

// Streams wait for a backend whose QUIC permits few at a time, in order and without loss; one that is reset meanwhile gives its place.
func TestStreamsWaitForTheBackend(t *testing.T) {
	var log sessionLog
	g := gatewayOfQUIC(t, "", &quic.Config{ResetAt: true, MaxStreams: 3, MaxUniStreams: 4}, http3.MachineOptions{WebTransport: 4}, func(s *http3.Session, _ *http.Request) { serveEchoes(s, &log) })
	s, status := g.dial(t, g.transport(t, http3.MachineOptions{WebTransport: 2}), "/wt")
	if s == nil {
		t.Fatal(status)
	}
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() { echoed(t, s, bytes.Repeat([]byte{byte('a' + i)}, 30_000)) })
		if i%3 == 0 {
			if st, err := s.OpenStream(t.Context()); err == nil {
				st.CancelWrite(1)
				st.CancelRead(1)
			}
		}
		all.Go(func() {
			out, err := s.OpenUniStream(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = out.Write([]byte("shout"))
			_ = out.Close()
		})
		all.Go(func() {
			if in, err := s.AcceptUniStream(t.Context()); err != nil {
				t.Error(err)
			} else if b, err := io.ReadAll(in); string(b) != "SHOUT" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	all.Wait()
}

// A session waits for the client's SETTINGS, without which its limits are not known.
func TestSessionsWaitForSettings(t *testing.T) {
	g := gatewayOfSessions(t, "", http3.MachineOptions{WebTransport: 4}, func(*http3.Session, *http.Request) {})
	r := g.rawLate(t, http3.MachineOptions{WebTransport: 2})
	s := r.stream()
	r.connect(s, "/wt")
	time.Sleep(50 * time.Millisecond) // the request comes first
	if got := g.counted(t, "sessions_total", "opened"); got != "0" {
		t.Errorf("opened %s", got)
	}
	r.begin()
	if got := r.status(s); got != 200 {
		t.Error(got)
	}
}

// The close of one end resets the streams of the other, which may not see the close for a while.
func TestClosesResetStreams(t *testing.T) {
	g := gatewayOfSessions(t, "", http3.MachineOptions{WebTransport: 4}, func(s *http3.Session, _ *http.Request) {
		if _, err := s.AcceptStream(s.Context()); err == nil {
			_ = s.CloseWithError(1, "")
		}
	})
	r := g.raw(t, http3.MachineOptions{WebTransport: 2})
	s := r.stream()
	r.connect(s, "/wt")
	if got := r.status(s); got != 200 {
		t.Fatal(got)
	}
	if got := resetBy(r.of(uint64(s.ID()))); got != http3.WTSessionGone || g.counted(t, "sessions", "r/wt") != "1" { // which this end has not ended
		t.Errorf("%v", got)
	}
}
