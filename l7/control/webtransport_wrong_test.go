package control

import (
	"bytes"
	"context"
	ctls "crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// rawClient is a client whose streams the test writes by itself, over a machine of HTTP/3.
type rawClient struct {
	t   *testing.T
	q   *quic.Conn
	m   *http3.Machine
	ctx context.Context
}

func (g *sessionGateway) raw(t *testing.T, o http3.MachineOptions) *rawClient {
	t.Helper()
	r := g.rawLate(t, o)
	r.begin()
	return r
}

// rawLate is raw for a client that has not sent its SETTINGS: see begin.
func (g *sessionGateway) rawLate(t *testing.T, o http3.MachineOptions) *rawClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tr, err := quic.NewTransport(pc, quic.TransportConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	q, err := tr.Dial(ctx, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(g.address)), &ctls.Config{RootCAs: g.roots, ServerName: "proxy.example", NextProtos: []string{http3.NextProto}}, &quic.Config{Datagrams: true, ResetAt: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.CloseWithError(uint64(http3.NoError), "") })
	o.TableCapacity = -1 // the streams of QPACK are not read
	return &rawClient{t, q, http3.NewMachine(http3.RoleClient, o), ctx}
}

// begin opens the streams of HTTP/3, with SETTINGS.
func (r *rawClient) begin() {
	r.t.Helper()
	for _, b := range [][]byte{r.m.AppendControl(nil), r.m.AppendEncoder(nil), r.m.AppendDecoder(nil)} {
		s, err := r.q.OpenUniStream(r.ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		_, _ = s.Write(b)
	}
}

// stream opens a bidirectional stream.
func (r *rawClient) stream() *quic.Stream {
	r.t.Helper()
	s, err := r.q.OpenStream(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// of opens a bidirectional stream that belongs to a session.
func (r *rawClient) of(session uint64) *quic.Stream {
	s := r.stream()
	_, _ = s.Write(append(http3.AppendWebTransport(nil, session, false), "hi"...))
	return s
}

// connect asks for a session on a stream.
func (r *rawClient) connect(s *quic.Stream, path string) {
	_, _ = s.Write(r.m.AppendRequest(nil, uint64(s.ID()), &semantics.Message{
		Method: "CONNECT", Protocol: "webtransport-h3", Scheme: "https", Authority: "proxy.example", Path: path, ContentLength: -1,
	}))
}

// status returns that of the response on a stream.
func (r *rawClient) status(s *quic.Stream) int {
	r.t.Helper()
	h, err := r.m.Open(uint64(s.ID()))
	if err != nil {
		r.t.Fatal(err)
	}
	h.ExpectTunnel()
	for b := make([]byte, 1); ; {
		n, err := s.Read(b)
		ev, _, failed := r.m.Input(h, b[:n], false)
		if ev.Kind == http3.Headers {
			return h.Message.Status
		}
		if err != nil || failed != nil {
			r.t.Errorf("%v, %v", err, failed)
			return 0
		}
	}
}

// data sends content on a stream of CONNECT.
func data(s *quic.Stream, p []byte) {
	_, _ = s.Write(append(http3.AppendDataHeader(nil, len(p)), p...))
}

// resetBy reads a stream until it is reset, and returns the code; 0 is another end.
func resetBy(s io.Reader) http3.ErrorCode {
	_, err := io.Copy(io.Discard, s)
	var e *quic.StreamError
	if errors.As(err, &e) {
		return http3.ErrorCode(e.Code)
	}
	return 0
}

// What clients of drafts do not do ends the session alone, by the code of the draft, and counts.
func TestSessionsOfClientsThatAreWrong(t *testing.T) {
	closing := http3.AppendCloseSession(nil, 1, "x")
	for name, c := range map[string]struct {
		send []byte
		end  bool
		want http3.ErrorCode
	}{
		"data after the close":     {append(bytes.Clone(closing), 0, 0), false, http3.MessageError},
		"a close that is short":    {http3.AppendCapsule(nil, http3.CapsuleCloseSession, []byte("abc")), false, http3.MessageError},
		"a close that is long":     {http3.AppendCapsule(nil, http3.CapsuleCloseSession, make([]byte, 4+http3.MaxCloseText+1)), false, http3.MessageError},
		"a close without UTF-8":    {http3.AppendCapsule(nil, http3.CapsuleCloseSession, []byte{0, 0, 0, 1, 0xff}), false, http3.MessageError},
		"a capsule that is long":   {http3.AppendCapsule(nil, 0x4242, make([]byte, http3.DefaultCapsule+1))[:100], false, http3.MessageError},
		"an end within a capsule":  {closing[:5], true, http3.MessageError},
		"credit without a number":  {http3.AppendCapsule(nil, 0x190b4d3d, nil), false, http3.MessageError},
		"credit of two numbers":    {http3.AppendCapsule(nil, 0x190b4d3d, []byte{1, 2}), false, http3.MessageError},
		"less credit than before":  {http3.AppendCapsule(nil, 0x190b4d3d, []byte{1}), false, http3.WTFlowControlError},
		"credit of a stream":       {http3.AppendCapsule(nil, 0x190b4d3e, []byte{1}), false, http3.WTFlowControlError},
		"2^60 streams are too few": {http3.AppendCapsule(nil, 0x190b4d3f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), false, http3.WTFlowControlError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ends := make(chan error, 1)
			g := gatewayOfSessions(t, "", http3.MachineOptions{WebTransport: 4}, func(s *http3.Session, _ *http.Request) {
				<-s.Context().Done()
				ends <- context.Cause(s.Context())
			})
			r := g.raw(t, http3.MachineOptions{WebTransport: 2})
			s := r.stream()
			r.connect(s, "/wt")
			if got := r.status(s); got != 200 {
				t.Fatal(got)
			}
			data(s, c.send)
			if c.end {
				_ = s.Close()
			}
			if got := resetBy(s); got != c.want {
				t.Errorf("reset by %v, want %v", got, c.want)
			}
			<-ends
			eventually(t, "it is counted", func() bool {
				return g.counted(t, "sessions_total", "broken") == "1" && g.counted(t, "sessions", "r/wt") == "0"
			})
			other := r.stream() // the connection goes on
			r.connect(other, "/wt")
			if got := r.status(other); got != 200 {
				t.Errorf("after that: %d", got)
			}
		})
	}
}

// The same of backends: their sessions end, and the clients' by a reset.
func TestSessionsOfBackendsThatAreWrong(t *testing.T) {
	for name, send := range map[string][]byte{
		"data after the close":   append(http3.AppendCloseSession(nil, 1, "x"), 0, 0),
		"a capsule that is long": http3.AppendCapsule(nil, 0x4242, make([]byte, http3.DefaultCapsule+1))[:100],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gatewayOfTunnels(t, func(tunnel *http3.Tunnel) {
				_, _ = tunnel.Write(send)
				_, _ = io.Copy(io.Discard, tunnelReader{tunnel})
			})
			s, _, err := g.transport(t, http3.MachineOptions{WebTransport: 1}).DialSession(t.Context(), g.url("/wt"), nil)
			if err == nil { // otherwise the reset was quicker than the response
				_ = ending(t, s)
			}
			eventually(t, "it is counted", func() bool { return g.counted(t, "sessions_total", "broken") == "1" })
		})
	}
}

type tunnelReader struct{ *http3.Tunnel }

// gatewayOfTunnels is gatewayOfSessions with a backend that writes capsules by itself.
func gatewayOfTunnels(t *testing.T, each func(*http3.Tunnel)) *sessionGateway {
	g := gatewayOfSessions(t, "", http3.MachineOptions{WebTransport: 4}, func(*http3.Session, *http.Request) {})
	g.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tunnel, err := http3.AcceptTunnel(w, r); err == nil {
			each(tunnel)
		}
	})
	return g
}

// Capsules of unknown types pass as they are, in both directions.
func TestUnknownCapsulesPass(t *testing.T) {
	sent := http3.AppendCapsule(nil, 0x4242, bytes.Repeat([]byte("x"), 1000))
	g := gatewayOfTunnels(t, func(tunnel *http3.Tunnel) {
		b := make([]byte, len(sent))
		if _, err := io.ReadFull(tunnelReader{tunnel}, b); err == nil && bytes.Equal(b, sent) {
			_, _ = tunnel.Write(b)
			_ = tunnel.CloseWrite()
		}
	})
	r := g.raw(t, http3.MachineOptions{WebTransport: 1})
	s := r.stream()
	r.connect(s, "/wt")
	data(s, sent)
	_ = s.Close()
	b, err := io.ReadAll(s)
	if err != nil || !bytes.Contains(b, sent) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Streams before the request of their session, and its response, wait, up to a number; those of a session that is refused are reset.
func TestStreamsBeforeTheirSession(t *testing.T) {
	accept := make(chan struct{})
	var log sessionLog
	g := gatewayOfSessions(t, "", http3.MachineOptions{WebTransport: 4}, func(s *http3.Session, _ *http.Request) { serveEchoes(s, &log) })
	g.server.Handler = held{g.server.Handler, accept}
	r := g.raw(t, http3.MachineOptions{WebTransport: 2})
	s := r.stream()
	var early []*quic.Stream
	for range 20 {
		st := r.of(uint64(s.ID()))
		_ = st.Close()
		early = append(early, st)
	}
	r.connect(s, "/wt")
	data(s, http3.AppendCapsule(nil, http3.CapsuleDrainSession, nil)) // and capsules
	results := make(chan error, len(early))
	for _, st := range early {
		go func() {
			b, err := io.ReadAll(st)
			if err == nil && string(b) != "hi" {
				err = fmt.Errorf("%q", b)
			}
			results <- err
		}()
	}
	for i := range early { // those beyond the bound are reset before the response, the others answered after it
		err := <-results
		if e := new(quic.StreamError); i < 4 && (!errors.As(err, &e) || http3.ErrorCode(e.Code) != http3.WTBufferedStreamRejected) || i >= 4 && err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if i == 3 {
			close(accept)
		}
	}
	denied := r.stream()
	waits := r.of(uint64(denied.ID()))
	r.connect(denied, "/other")
	if got := r.status(denied); got != 405 {
		t.Errorf("status %d", got)
	}
	if got := resetBy(waits); got != http3.WTSessionGone && got != http3.WTBufferedStreamRejected {
		t.Errorf("a stream of a session that was refused: %v", got)
	}
}

// held is a handler that waits.
type held struct {
	http.Handler
	until chan struct{}
}

func (h held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	<-h.until
	h.Handler.ServeHTTP(w, r)
}

// Streams of a session that has ended are refused at once, those of IDs that are none of a request end the connection.
func TestStreamsOfUnknownSessions(t *testing.T) {
	g := gatewayOfSessions(t, "", http3.MachineOptions{WebTransport: 4}, func(*http3.Session, *http.Request) {})
	r := g.raw(t, http3.MachineOptions{WebTransport: 2})
	s := r.stream()
	r.connect(s, "/wt")
	if got := r.status(s); got != 200 {
		t.Fatal(got)
	}
	open := r.of(uint64(s.ID()))
	data(s, http3.AppendCloseSession(nil, 1, "x"))
	_ = s.Close()
	if got := resetBy(open); got != http3.WTSessionGone {
		t.Errorf("an open stream of a session that is closed: %v", got)
	}
	eventually(t, "the session has ended", func() bool { return g.counted(t, "sessions", "r/wt") == "0" })
	if got := resetBy(r.of(uint64(s.ID()))); got != http3.WTSessionGone {
		t.Errorf("a new one: %v", got)
	}
	r.of(3)
	<-r.q.Context().Done()
	if e := new(quic.ApplicationError); !errors.As(context.Cause(r.q.Context()), &e) || http3.ErrorCode(e.Code) != http3.IDError {
		t.Errorf("%v", context.Cause(r.q.Context()))
	}
}

// A client without flow control may have as many streams open as the rule says: others are reset. One with it that opens more ends its session.
func TestStreamsAboveTheLimit(t *testing.T) {
	g := gatewayOfSessions(t, "streams: 3", http3.MachineOptions{WebTransport: 4}, func(*http3.Session, *http.Request) {})
	r := g.raw(t, http3.MachineOptions{WebTransport: 1})
	s := r.stream()
	r.connect(s, "/wt")
	if got := r.status(s); got != 200 {
		t.Fatal(got)
	}
	var list []*quic.Stream
	for range 4 {
		list = append(list, r.of(uint64(s.ID())))
		eventually(t, "it is there", func() bool {
			return g.counted(t, "streams_total", "client") == string(rune('0'+min(len(list), 3)))
		})
	}
	if got := resetBy(list[3]); got != http3.WTBufferedStreamRejected {
		t.Errorf("the fourth: %v", got)
	}
	if got := g.counted(t, "refused_streams_total", "r/wt"); got != "1" {
		t.Errorf("refused %s", got)
	}
	list[0].CancelWrite(0)
	list[0].CancelRead(0)
	eventually(t, "a place", func() bool {
		r.of(uint64(s.ID()))
		return g.counted(t, "streams_total", "client") == "4"
	})

	r = g.raw(t, http3.MachineOptions{WebTransport: 2})
	s = r.stream()
	r.connect(s, "/wt")
	if got := r.status(s); got != 200 {
		t.Fatal(got)
	}
	for range 4 {
		r.of(uint64(s.ID()))
	}
	if got := resetBy(s); got != http3.WTFlowControlError {
		t.Errorf("more streams than credit: %v", got)
	}
}

// A flood of streams that are reset at once leaves the session as it is, and nothing behind.
func TestFloodsOfStreams(t *testing.T) {
	var log sessionLog
	g := gatewayOfSessions(t, "", http3.MachineOptions{WebTransport: 4}, func(s *http3.Session, _ *http.Request) { serveEchoes(s, &log) })
	s, status := g.dial(t, g.transport(t, http3.MachineOptions{WebTransport: 2}), "/wt")
	if s == nil {
		t.Fatal(status)
	}
	for i := range 1000 {
		st, err := s.OpenStream(t.Context())
		if err != nil {
			t.Fatal(i, err)
		}
		st.CancelWrite(1)
		st.CancelRead(1)
	}
	echoed(t, s, []byte(strings.Repeat("x", 1000)))
	if got := g.counted(t, "streams_total", "client"); got != "1001" { // each is the session's, though nothing but its beginning has come
		t.Errorf("%s streams", got)
	}
	_ = s.CloseWithError(0, "")
	eventually(t, "the session has ended", func() bool { return g.counted(t, "sessions", "r/wt") == "0" })
}

// A client that closes its session may stop the stream of CONNECT in the same breath, as webtransport-go does: the backend gets the close.
func TestClientsThatStopWithTheirClose(t *testing.T) {
	ends := make(chan error, 1)
	g := gatewayOfSessions(t, "", http3.MachineOptions{WebTransport: 4}, func(s *http3.Session, _ *http.Request) {
		<-s.Context().Done()
		ends <- context.Cause(s.Context())
	})
	r := g.raw(t, http3.MachineOptions{WebTransport: 2})
	s := r.stream()
	r.connect(s, "/wt")
	if got := r.status(s); got != 200 {
		t.Fatal(got)
	}
	s.CancelRead(uint64(http3.WTSessionGone))
	time.Sleep(20 * time.Millisecond) // the stop comes first
	data(s, http3.AppendCloseSession(nil, 77, "bye"))
	_ = s.Close()
	if err := <-ends; resetCode(err) != 77 {
		t.Error(err)
	}
	eventually(t, "the session has ended", func() bool { return g.counted(t, "sessions", "r/wt") == "0" })
}
