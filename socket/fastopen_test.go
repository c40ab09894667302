package socket

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/tcp"
)

// fastOpenServer listens with Fast Open on b and returns a Dialer for it, to which b has given a cookie.
func fastOpenServer(t *testing.T, x *testbed) (*Listener, *Dialer) {
	t.Helper()
	cfg := &ListenConfig{TCPOptions: func(o *TCPOptions) { o.FastOpen = true }}
	l, err := x.b.ListenWith(context.Background(), cfg, "tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	d := &Dialer{FastOpen: true}
	c, err := x.a.DialWith(context.Background(), d, "tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	if st := c.(*TCPConn).tcpState(); st != tcp.StateEstablished {
		t.Errorf("without a cookie the dial returns in %v", st)
	}
	s, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Close(), s.Close()
	return l, d
}

// fastOpenPair dials, writes and accepts.
func fastOpenPair(t *testing.T, x *testbed, l *Listener, d *Dialer, first string) (c net.Conn, s *TCPConn) {
	t.Helper()
	c, err := x.a.DialWith(context.Background(), d, "tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Write([]byte(first)); n != len(first) || err != nil {
		t.Fatal(n, err)
	}
	within(t, 5*time.Second, "Accept", func() { s, err = l.AcceptTCP() })
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// tcpState returns the state of the connection, for tests.
func (c *TCPConn) tcpState() tcp.State {
	c.h.Enter()
	defer c.h.Exit()
	return c.c.State()
}

// TestFirstWriteInTheSYN is RFC 7413 4.2.1: with a cookie DialWith returns at once, and the first Write, up to the
// server's MSS, is in the SYN. What follows it, and the answer, arrive as on any connection.
func TestFirstWriteInTheSYN(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	l, d := fastOpenServer(t, x)
	request := strings.Repeat("request ", 4000)
	c, s := fastOpenPair(t, x, l, d, request)
	if i, err := s.Info(); err != nil || !i.FastOpen {
		t.Errorf("no data came with the SYN (%v)", err)
	}
	got := make([]byte, len(request))
	if _, err := io.ReadFull(s, got); err != nil || string(got) != request {
		t.Fatal("the request did not arrive", err)
	}
	if _, err := s.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(got); err != nil || string(got[:n]) != "answer" {
		t.Error(n, err)
	}
	if i, err := c.(*TCPConn).Info(); err != nil || !i.FastOpen || i.Retransmits != 0 {
		t.Errorf("%+v, %v", i, err)
	}
	_, _ = c.Close(), s.Close()
	x.checkEmpty(t)
}

// TestFastOpenDialThatReads: a server that speaks first is connected to by the first Read.
func TestFastOpenDialThatReads(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	l, d := fastOpenServer(t, x)
	c, err := x.a.DialWith(context.Background(), d, "tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	if st := c.(*TCPConn).tcpState(); st != tcp.StateSynSent {
		t.Errorf("%v before anything is written or read", st)
	}
	go func() {
		if s, err := l.Accept(); err == nil {
			_, _ = s.Write([]byte("hello"))
			_ = s.Close()
		}
	}()
	within(t, 5*time.Second, "ReadAll", func() {
		if b, err := io.ReadAll(c); string(b) != "hello" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	})
	_ = c.Close()
}

// TestFastOpenWriteThenClose: what was written to a connection that Dial returned arrives, though Close follows at
// once, and a connection that nothing was written to leaves nothing.
func TestFastOpenWriteThenClose(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	l, d := fastOpenServer(t, x)
	c, err := x.a.DialWith(context.Background(), d, "tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("last words"))
	_ = c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(s); string(b) != "last words" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	_ = s.Close()
	if c, err = x.a.DialWith(context.Background(), d, "tcp", addrB+":80"); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	x.checkEmpty(t)
}

// TestFastOpenRefused: the error that the dial could not return is that of the next call.
func TestFastOpenRefused(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	l, d := fastOpenServer(t, x)
	_ = l.Close()
	c, err := x.a.DialWith(context.Background(), d, "tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Write([]byte("request")); n != 7 || err != nil {
		t.Error(n, err)
	}
	if _, err := c.Read(make([]byte, 9)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want ECONNREFUSED", err)
	}
	_ = c.Close()
	x.checkEmpty(t)
}

// TestFastOpenStartDial: for a Poller the connection is Writable at once, as with TCP_FASTOPEN_CONNECT.
func TestFastOpenStartDial(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	l, d := fastOpenServer(t, x)
	c, err := x.a.StartDial(d, netip.MustParseAddrPort(addrB+":80"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.FinishConnect(); err != nil {
		t.Error(err)
	}
	p := x.a.NewPoller()
	if err := p.Add(c, Interest{Events: Readable | Writable}); err != nil {
		t.Fatal(err)
	}
	if ev := waitEvents(t, p); ev != Writable {
		t.Errorf("events %b", ev)
	}
	if n, err := c.WriteWith([]byte("request"), SendDontWait); n != 7 || err != nil {
		t.Error(n, err)
	}
	s, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	if i, err := s.Info(); err != nil || !i.FastOpen {
		t.Errorf("no data came with the SYN (%v)", err)
	}
	_, _ = c.Close(), s.Close()
}

// TestResetOfFastOpenChild: the client resets a connection that the server has accepted with the data of its SYN.
// The server reads the data, and then ECONNRESET, not ECONNREFUSED.
func TestResetOfFastOpenChild(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	l, d := fastOpenServer(t, x)
	c, s := fastOpenPair(t, x, l, d, "request")
	_ = c.(*TCPConn).SetLinger(0)
	_ = c.Close()
	b, err := io.ReadAll(s)
	if string(b) != "request" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q, %v; want the request and ECONNRESET", b, err)
	}
	_ = s.Close()
}
