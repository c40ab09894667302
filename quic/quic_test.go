package quic_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

func TestStreams(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, echo)
	c := dial(t, client, server.LocalAddr(), clientTLS(), nil)
	data := strings.Repeat("0123456789abcdef", 1<<16)
	if got := ask(t, c, data); got != data {
		t.Errorf("%d bytes of %d came back", len(got), len(data))
	}
	if s := c.State(); s.Version != quic.Version1 || s.TLS.NegotiatedProtocol != alpn || s.Used0RTT || s.Datagrams {
		t.Errorf("%+v", s)
	}
	if s := c.Stats(); s.BytesSent < uint64(len(data)) || s.BytesReceived < uint64(len(data)) || s.SmoothedRTT <= 0 {
		t.Errorf("%+v", s)
	}
	if c.LocalAddr().String() != client.LocalAddr().String() || c.RemoteAddr().String() != server.LocalAddr().String() {
		t.Errorf("%v to %v", c.LocalAddr(), c.RemoteAddr())
	}
}

func TestUnidirectionalStreams(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, func(c *quic.Conn) {
		in, err := c.AcceptUniStream(context.Background())
		if err != nil {
			return
		}
		out, err := c.OpenUniStream(context.Background())
		if err != nil {
			return
		}
		_, _ = io.Copy(out, in)
		_ = out.Close()
	})
	c := dial(t, client, server.LocalAddr(), clientTLS(), nil)
	out, err := c.TryOpenUniStream()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(out, "one way")
	_ = out.Close()
	if _, err := out.Write([]byte("x")); !errors.Is(err, quic.ErrStreamClosed) {
		t.Errorf("write after Close: %v", err)
	}
	if <-out.Context().Done(); !errors.Is(context.Cause(out.Context()), quic.ErrStreamClosed) {
		t.Errorf("context of a closed stream: %v", context.Cause(out.Context()))
	}
	in, err := c.AcceptUniStream(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	peeked := make([]byte, 3)
	if n, err := in.Peek(peeked); n != 3 || err != nil || string(peeked) != "one" {
		t.Errorf("Peek: %q, %v", peeked[:n], err)
	}
	if got, err := io.ReadAll(in); string(got) != "one way" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if in.ID()&3 != 3 || out.ID()&3 != 2 { // RFC 9000 2.1
		t.Errorf("streams %d and %d", in.ID(), out.ID())
	}
}

func TestDatagrams(t *testing.T) {
	on := &quic.Config{Datagrams: true}
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), on, func(c *quic.Conn) {
		for {
			b, err := c.ReceiveDatagram(context.Background())
			if err != nil {
				return
			}
			_ = c.SendDatagram(b)
		}
	})
	c := dial(t, client, server.LocalAddr(), clientTLS(), on)
	if !c.State().Datagrams {
		t.Error("datagrams are not enabled")
	}
	for size := range []int{0, 1, 1000} {
		b := bytes.Repeat([]byte{byte(size)}, size)
		if err := c.SendDatagram(b); err != nil {
			t.Fatal(err)
		}
		if got, err := c.ReceiveDatagram(timeout(t)); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes, %v, want %d", len(got), err, size)
		}
	}
	var large *quic.DatagramTooLargeError
	if err := c.SendDatagram(make([]byte, 2000)); !errors.As(err, &large) || large.Max < 1100 || large.Max > 1500 {
		t.Errorf("2000 bytes: %v", err)
	}
	if err := c.SendDatagram(make([]byte, large.Max)); err != nil {
		t.Errorf("%d bytes: %v", large.Max, err)
	}
	without := dial(t, client, server.LocalAddr(), clientTLS(), nil)
	if err := without.SendDatagram(nil); !errors.Is(err, quic.ErrNoDatagrams) {
		t.Error(err)
	}
	if _, err := without.ReceiveDatagram(timeout(t)); !errors.Is(err, quic.ErrNoDatagrams) {
		t.Error(err)
	}
}

// TestCloseCodes: each end gets the code of the other, as the errors of all calls.
func TestCloseCodes(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	accepted := make(chan *quic.Conn, 1)
	serve(t, server, serverTLS(), nil, func(c *quic.Conn) { accepted <- c })
	c := dial(t, client, server.LocalAddr(), clientTLS(), nil)
	s := <-accepted
	out, err := c.OpenStream(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CloseWithError(0x1234, "enough"); err != nil {
		t.Fatal(err)
	}
	<-c.Context().Done()
	_, errRead := out.Read(make([]byte, 1))
	_, errOpen := c.OpenStream(timeout(t))
	_, errAccept := c.AcceptUniStream(timeout(t))
	for _, err := range []error{context.Cause(c.Context()), errRead, errOpen, errAccept} {
		var app *quic.ApplicationError
		if !errors.As(err, &app) || app.Code != 0x1234 || app.Reason != "enough" || !app.Remote || !errors.Is(err, net.ErrClosed) {
			t.Errorf("at the client: %v", err)
		}
	}
	if cause := context.Cause(s.Context()); !errors.Is(cause, &quic.ApplicationError{Code: 0x1234}) {
		t.Errorf("at the server: %v", cause)
	}
	eventually(t, "counters", func() bool {
		return server.Stats().ClosedLocal == 1 && client.Stats().ClosedRemote == 1 && client.Stats().Conns == 0
	})
}

// TestCauseIsKnownAfterClose: when CloseWithError returns, Context says why.
func TestCauseIsKnownAfterClose(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, echo)
	for range 50 {
		c := dial(t, client, server.LocalAddr(), clientTLS(), nil)
		_ = c.CloseWithError(1, "")
		if cause := context.Cause(c.Context()); !errors.Is(cause, &quic.ApplicationError{Code: 1}) {
			t.Fatalf("%v", cause)
		}
	}
}

// What lies before the reliable boundary arrives although the stream is reset, where both ends have enabled that.
func TestReliableBoundary(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
		got := make(chan error, 1)
		serve(t, server, serverTLS(), &quic.Config{ResetAt: true}, func(c *quic.Conn) {
			s, err := c.AcceptUniStream(context.Background())
			if err != nil {
				return
			}
			b, err := io.ReadAll(s)
			if !errors.Is(err, &quic.StreamError{Stream: s.ID(), Code: 9, Remote: true}) || enabled && !strings.HasPrefix(string(b), "header") {
				err = fmt.Errorf("%q, %w", b, err)
			} else {
				err = nil
			}
			got <- err
		})
		c := dial(t, client, server.LocalAddr(), clientTLS(), &quic.Config{ResetAt: enabled})
		if c.State().ResetAt != enabled {
			t.Errorf("enabled %v: %+v", enabled, c.State())
		}
		s, err := c.OpenUniStream(timeout(t))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Write([]byte("header"))
		s.SetReliableBoundary()
		_, _ = s.Write([]byte("content"))
		s.CancelWrite(9)
		select {
		case err := <-got:
			if err != nil {
				t.Errorf("enabled %v: %v", enabled, err)
			}
		case <-timeout(t).Done():
			t.Fatal("the stream does not arrive")
		}
	}
}

func TestStreamCodesAndDeadlines(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), &quic.Config{MaxStreams: 1}, func(c *quic.Conn) {
		s, err := c.AcceptStream(context.Background())
		if err != nil {
			return
		}
		_, _ = s.Read(make([]byte, 1))
		s.CancelRead(7)
		s.CancelWrite(8)
	})
	c := dial(t, client, server.LocalAddr(), clientTLS(), nil)
	s, err := c.OpenStream(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.TryOpenStream(); !errors.Is(err, quic.ErrStreamLimit) {
		t.Errorf("second stream: %v", err)
	}
	_ = s.SetReadDeadline(time.Now())
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read after its deadline: %v", err)
	}
	_ = s.SetReadDeadline(time.Time{})
	_, _ = s.Write([]byte("x"))
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, &quic.StreamError{Stream: s.ID(), Code: 8, Remote: true}) {
		t.Errorf("read: %v", err)
	}
	<-s.Context().Done()
	if _, err := s.Write([]byte("x")); !errors.Is(err, &quic.StreamError{Stream: s.ID(), Code: 7, Remote: true}) {
		t.Errorf("write: %v", err)
	}
}
