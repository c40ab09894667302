package http3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/http3/qpack"
	"github.com/millrace/millrace/quic"
)

// sessions serves sessions with f.
func sessions(t *testing.T, m http3.MachineOptions, f func(*http3.Session)) string {
	return serve(t, &http3.Server{Machine: m, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s, err := http3.AcceptSession(w, r, nil); err == nil {
			f(s)
			<-s.Context().Done()
		}
	})})
}

// echoStreams returns what comes on each stream.
func echoStreams(s *http3.Session) {
	for {
		st, err := s.AcceptStream(context.Background())
		if err != nil {
			return
		}
		_, _ = io.Copy(st, st)
		_ = st.Close()
	}
}

// Streams and data pass in both directions though each end gives credit for little at a time, also after streams
// that were reset with data under way.
func TestSessionCredit(t *testing.T) {
	limits := http3.SessionLimits{Streams: 2, UniStreams: 1, Data: 1000}
	url := sessions(t, http3.MachineOptions{WebTransport: 2, Session: limits}, echoStreams)
	tr := transport(t, &http3.Transport{Machine: http3.MachineOptions{WebTransport: 1, Session: limits}})
	ctx := within(t)
	s, _, err := tr.DialSession(ctx, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 12 {
		st, err := s.OpenStream(ctx)
		if err != nil {
			t.Fatal(i, err)
		}
		if i%4 == 3 {
			_, _ = st.Write(make([]byte, 300))
			st.CancelWrite(1)
			st.CancelRead(1)
			continue
		}
		all.Go(func() {
			content := bytes.Repeat([]byte{byte(i)}, 5000)
			go func() {
				if n, err := st.Write(content); n != len(content) || err != nil {
					t.Errorf("stream %d: %d bytes, %v", i, n, err)
				}
				_ = st.Close()
			}()
			if got, err := io.ReadAll(st); !bytes.Equal(got, content) {
				t.Errorf("stream %d: %d bytes, %v", i, len(got), err)
			}
		})
		all.Wait()
	}
}

// An end without credit waits, and no longer than its context, its stream or the session.
func TestSessionWithoutCredit(t *testing.T) {
	proceed := make(chan struct{})
	url := sessions(t, http3.MachineOptions{WebTransport: 2, Session: http3.SessionLimits{Streams: 1, Data: 10}}, func(s *http3.Session) {
		<-proceed
		echoStreams(s)
	})
	tr := transport(t, &http3.Transport{Machine: http3.MachineOptions{WebTransport: 2}})
	ctx := within(t)
	s, _, err := tr.DialSession(ctx, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := s.OpenUniStream(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stream of a kind that is not permitted: %v", err)
	}
	st, err := s.OpenStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.OpenStream(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second stream: %v", err)
	}
	written := make(chan int, 1)
	go func() {
		n, _ := st.Write(make([]byte, 25))
		written <- n
	}()
	select {
	case n := <-written:
		t.Errorf("%d bytes with credit for 10", n)
	case <-time.After(50 * time.Millisecond):
	}
	close(proceed)
	if n := <-written; n != 25 {
		t.Errorf("%d bytes of 25", n)
	}
	_ = st.Close()
	if b, err := io.ReadAll(st); len(b) != 25 || err != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	second, err := s.OpenStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := second.Write(make([]byte, 1<<20))
		if err == nil {
			t.Error("all was written")
		}
		written <- 0
	}()
	_ = s.CloseWithError(0, "")
	select {
	case <-written:
	case <-ctx.Done():
		t.Error("a write outlives its session")
	}
}

// Credit comes back for streams that the peer's backlog rejects, and for those that QUIC does not permit in time.
func TestSessionCreditComesBack(t *testing.T) {
	ctx := within(t)
	full := sessions(t, http3.MachineOptions{WebTransport: 2, Session: http3.SessionLimits{Streams: 70, Data: 1000}}, func(*http3.Session) {})
	tr := transport(t, &http3.Transport{Machine: http3.MachineOptions{WebTransport: 2}})
	s, _, err := tr.DialSession(ctx, full, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 71 { // 64 wait, the others are rejected
		st, err := s.OpenStream(ctx)
		if err != nil {
			t.Fatal(i, err)
		}
		_, _ = st.Write([]byte("x"))
	}
	proceed := make(chan struct{})
	narrow := serve(t, &http3.Server{
		Machine: http3.MachineOptions{WebTransport: 2, Session: http3.SessionLimits{Streams: 2, Data: 1000}}, QUIC: &quic.Config{MaxStreams: 2},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s, err := http3.AcceptSession(w, r, nil); err == nil {
				<-proceed
				echoStreams(s)
			}
		}),
	})
	if s, _, err = tr.DialSession(ctx, narrow, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		if st, err := s.OpenStream(short); err == nil {
			_ = st.Close()
		} else if i == 0 {
			t.Fatal(err)
		}
		cancel()
	}
	close(proceed)
	for i := range 5 {
		st, err := s.OpenStream(ctx)
		if err != nil {
			t.Fatal(i, err)
		}
		_ = st.Close()
		_, _ = io.ReadAll(st)
	}
}

// rawSession opens a session by hand, and returns its stream.
func rawSession(t *testing.T, url string, m http3.MachineOptions) (*quic.Conn, *quic.Stream) {
	t.Helper()
	tc := clientTLS()
	tc.NextProtos = []string{http3.NextProto}
	c, err := dialQUIC(within(t), t, strings.TrimPrefix(url, "https://"), tc, &quic.Config{Datagrams: true, ResetAt: true})
	if err != nil {
		t.Fatal(err)
	}
	machine := http3.NewMachine(http3.RoleClient, m)
	control, err := c.OpenUniStream(within(t))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = control.Write(machine.AppendControl(nil))
	s := rawConnect(t, c, machine)
	return c, s
}

func rawConnect(t *testing.T, c *quic.Conn, m *http3.Machine) *quic.Stream {
	t.Helper()
	s, err := c.OpenStream(within(t))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Write(m.AppendHeaders(nil, uint64(s.ID()), []qpack.Field{
		{Name: ":method", Value: "CONNECT"},
		{Name: ":protocol", Value: "webtransport-h3"},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "test.example"},
		{Name: ":path", Value: "/"},
	}))
	_ = s.SetReadDeadline(time.Now().Add(patience))
	return s
}

// Attack: a peer that exceeds the limits of a session, or sends capsules that the draft forbids, loses the session, and
// the connection works on.
func TestSessionLimitsAreEnforced(t *testing.T) {
	limits := http3.SessionLimits{Streams: 2, UniStreams: 1, Data: 100}
	url := sessions(t, http3.MachineOptions{WebTransport: 2, Session: limits}, func(s *http3.Session) {
		time.Sleep(20 * time.Millisecond) // no credit for more streams meanwhile
		echoStreams(s)
	})
	stream := func(c *quic.Conn, n int) {
		if st, err := c.OpenStream(within(t)); err == nil {
			_, _ = st.Write(append(http3.AppendWebTransport(nil, 0, false), make([]byte, n)...))
		}
	}
	capsule := func(kind uint64, value string) func(*quic.Conn, *quic.Stream) {
		return func(_ *quic.Conn, s *quic.Stream) {
			b := http3.AppendCapsule(nil, kind, []byte(value))
			_, _ = s.Write(append(http3.AppendDataHeader(nil, len(b)), b...))
		}
	}
	for what, tc := range map[string]struct {
		f    func(*quic.Conn, *quic.Stream)
		code http3.ErrorCode
	}{
		"streams": {func(c *quic.Conn, _ *quic.Stream) {
			for range 3 {
				stream(c, 1)
			}
		}, http3.WTFlowControlError},
		"data":                {func(c *quic.Conn, _ *quic.Stream) { stream(c, 300) }, http3.WTFlowControlError},
		"less data":           {capsule(0x190b4d3d, "\x00"), http3.WTFlowControlError},
		"a limit of a stream": {capsule(0x190b4d3e, "\x01"), http3.WTFlowControlError},
		"no number":           {capsule(0x190b4d3d, ""), http3.MessageError},
		"two numbers":         {capsule(0x190b4d3f, "\x3f\x3f"), http3.MessageError},
	} {
		c, s := rawSession(t, url, http3.MachineOptions{WebTransport: 1, Session: limits})
		tc.f(c, s)
		_, err := io.Copy(io.Discard, s)
		var se *quic.StreamError
		if !errors.As(err, &se) || http3.ErrorCode(se.Code) != tc.code {
			t.Errorf("%s: %v, want %v", what, err, tc.code)
		}
		if c.Context().Err() != nil {
			t.Errorf("%s: the connection ended: %v", what, context.Cause(c.Context()))
		}
	}
}

// Without flow control of the client a session shares its connection with no other (draft 5.1).
func TestOneSessionWithoutFlowControl(t *testing.T) {
	url := sessions(t, http3.MachineOptions{WebTransport: 5}, echoStreams)
	for limits, want := range map[http3.SessionLimits]int{{}: 429, {Data: 1000}: 200} {
		c, first := rawSession(t, url, http3.MachineOptions{WebTransport: 1, Session: limits, TableCapacity: -1})
		if status := rawStatus(t, first); status != 200 {
			t.Fatalf("%+v: status %d", limits, status)
		}
		second := rawConnect(t, c, http3.NewMachine(http3.RoleClient, http3.MachineOptions{}))
		if status := rawStatus(t, second); status != want {
			t.Errorf("%+v: status %d, want %d", limits, status, want)
		}
	}
}

// rawStatus reads the status of a response.
func rawStatus(t *testing.T, s *quic.Stream) int {
	t.Helper()
	m := http3.NewMachine(http3.RoleClient, http3.MachineOptions{})
	in, err := m.Open(uint64(s.ID()))
	if err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1); ; {
		if _, err := s.Read(b); err != nil {
			t.Fatal(err)
		}
		ev, _, err := m.Input(in, b, false)
		if err == nil && ev.Kind == http3.NeedInput {
			ev, _, err = m.Input(in, nil, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == http3.Headers {
			return in.Message.Status
		}
	}
}

// Attack: streams of sessions that never begin. A few wait, the others are reset (draft 4.5).
func TestStreamsWithoutASession(t *testing.T) {
	url := sessions(t, http3.MachineOptions{WebTransport: 2}, echoStreams)
	c, first := rawSession(t, url, http3.MachineOptions{WebTransport: 1, TableCapacity: -1})
	if rawStatus(t, first) != 200 {
		t.Fatal("no session")
	}
	reset, waiting := 0, 0
	for range 30 {
		st, err := c.OpenStream(within(t))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = st.Write(append(http3.AppendWebTransport(nil, 400, false), "data"...))
		_ = st.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		var se *quic.StreamError
		switch _, err := st.Read(make([]byte, 1)); {
		case errors.As(err, &se) && http3.ErrorCode(se.Code) == http3.WTBufferedStreamRejected:
			reset++
		case errors.Is(err, os.ErrDeadlineExceeded):
			waiting++
		default:
			t.Fatal(err)
		}
	}
	if waiting != 16 || reset != 14 {
		t.Errorf("%d streams wait, %d were reset", waiting, reset)
	}
}

// Attack: datagrams that the application does not receive, and datagrams for other streams. 64 wait, and nothing else happens.
func TestFloodOfDatagrams(t *testing.T) {
	received := make(chan int, 1)
	flooded := make(chan struct{})
	url := sessions(t, http3.MachineOptions{WebTransport: 2}, func(s *http3.Session) {
		<-flooded
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		n := 0
		for {
			if _, err := s.ReceiveDatagram(ctx); err != nil {
				break
			}
			n++
		}
		received <- n
	})
	c, first := rawSession(t, url, http3.MachineOptions{WebTransport: 1, TableCapacity: -1})
	if rawStatus(t, first) != 200 {
		t.Fatal("no session")
	}
	for i := range 2000 {
		_ = c.SendDatagram(http3.AppendDatagram(nil, uint64(i%2)*4000, []byte("x")))
	}
	time.Sleep(100 * time.Millisecond)
	close(flooded)
	if n := <-received; n == 0 || n > 64 {
		t.Errorf("%d datagrams waited", n)
	}
	if c.Context().Err() != nil {
		t.Error(context.Cause(c.Context()))
	}
}

// Two requests on one connection of a client without flow control: one gets the only place, however they meet.
func TestOneOfTwoSessionsAtOnce(t *testing.T) {
	url := sessions(t, http3.MachineOptions{WebTransport: 5}, echoStreams)
	for range 20 {
		c, first := rawSession(t, url, http3.MachineOptions{WebTransport: 1, TableCapacity: -1})
		second := rawConnect(t, c, http3.NewMachine(http3.RoleClient, http3.MachineOptions{}))
		if a, b := rawStatus(t, first), rawStatus(t, second); a+b != 200+429 {
			t.Fatalf("status %d and %d, want 200 and 429", a, b)
		}
	}
}
