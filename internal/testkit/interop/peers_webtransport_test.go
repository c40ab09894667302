package interop

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
)

// webTransportPeers use streams of both kinds from both ends, and datagrams, of one session.
func webTransportPeers() []peer {
	return []peer{
		{"WebTransport", "webtransport-go", asClient, overUDP, never, webTransportGoCallsUs},
		{"WebTransport", "webtransport-go", asServer, overUDP, never, weCallWebTransportGo},
	}
}

// sessionLimits are below what one session moves in all: the credit has to be renewed.
var sessionLimits = http3.SessionLimits{Streams: 3, UniStreams: 2, Data: 100_000}

const greeting = "from the server"

// serveSession opens a stream with a greeting, echoes bidirectional streams and datagrams, and answers a unidirectional stream by
// another with its bytes in upper case. It returns when the session has ended.
func serveSession(s *http3.Session) {
	ctx := s.Context()
	go func() {
		if own, err := s.OpenStream(ctx); err == nil {
			_, _ = own.Write([]byte(greeting))
			_ = own.Close()
		}
	}()
	go func() {
		for {
			p, err := s.ReceiveDatagram(ctx)
			if err != nil {
				return
			}
			_ = s.SendDatagram(p)
		}
	}()
	go func() {
		for {
			in, err := s.AcceptUniStream(ctx)
			if err != nil {
				return
			}
			b, err := io.ReadAll(in)
			if err != nil {
				continue
			}
			if out, err := s.OpenUniStream(ctx); err == nil {
				_, _ = out.Write(bytes.ToUpper(b))
				_ = out.Close()
			}
		}
	}()
	for {
		st, err := s.AcceptStream(ctx)
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(st, st)
			_ = st.Close()
		}()
	}
}

// driveSession is the other end of serveSession.
func driveSession(t *testing.T, ctx context.Context, s *http3.Session) {
	t.Helper()
	own, err := s.AcceptStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(own); err != nil || string(b) != greeting {
		t.Errorf("%q, %v", b, err)
	}
	for i := range 5 {
		st, err := s.OpenStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sent := bytes.Repeat([]byte{byte('0' + i), 'x'}, 30_000)
		go func() {
			_, _ = st.Write(sent)
			_ = st.Close()
		}()
		if got, err := io.ReadAll(st); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes of %d come back, %v", len(got), len(sent), err)
		}
	}
	uni, err := s.OpenUniStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = uni.Write([]byte("shout"))
	_ = uni.Close()
	back, err := s.AcceptUniStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(back); err != nil || string(b) != "SHOUT" {
		t.Errorf("%q, %v", b, err)
	}
	echoDatagrams(t, ctx, s)
}

// echoDatagrams sends until one comes back: they may be lost.
func echoDatagrams(t *testing.T, ctx context.Context, s *http3.Session) {
	t.Helper()
	for range 50 {
		if err := s.SendDatagram([]byte("datagram")); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		p, err := s.ReceiveDatagram(short)
		cancel()
		if err == nil && string(p) == "datagram" {
			return
		}
	}
	t.Error("no datagram comes back")
}

func webTransportGoCallsUs(t *testing.T, b *testbed) {
	program := built(t, "webtransport-peer")
	tc, _ := certificate(t, "h3")
	ended := make(chan error, 1)
	host, port, _ := net.SplitHostPort(http3Server(t, b, tc, sessionHandler(ended)))
	out, err := b.program(t, "", program, "client", port, host)
	if err != nil || !strings.HasSuffix(out, "ok\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	wantSessionClosed(t, ended)
}

// sessionHandler serves sessions by serveSession.
func sessionHandler(ended chan error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, err := http3.AcceptSession(w, r, nil)
		if err != nil {
			ended <- err
			return
		}
		serveSession(s)
		ended <- context.Cause(s.Context())
	}
}

func weCallWebTransportGo(t *testing.T, b *testbed) {
	program := built(t, "webtransport-peer")
	tc, client := certificate(t, "h3")
	cert, key := writePEM(t, tc)
	p := b.serve(t, program, "server", cert, key, linuxAddr)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, _, err := http3Client(t, b, client).DialSession(ctx, "https://"+net.JoinHostPort(linuxAddr, p.line(t))+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	driveSession(t, ctx, s)
	if err := s.CloseWithError(77, "bye"); err != nil {
		t.Error(err)
	}
	if line := p.line(t); line != "closed 77 bye" {
		t.Errorf("the server prints %q", line)
	}
}

// wantSessionClosed waits for the close of a client's.
func wantSessionClosed(t *testing.T, ended chan error) {
	t.Helper()
	select {
	case err := <-ended:
		var se *http3.SessionError
		if !errors.As(err, &se) || se.Code != 77 || se.Text != "bye" || !se.Remote {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the session does not end")
	}
}
