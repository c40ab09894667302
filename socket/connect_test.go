package socket

import (
	"errors"
	"io"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// waitEvents returns what a Poller reports, and fails after 5 s.
func waitEvents(t *testing.T, p *Poller) Events {
	t.Helper()
	var ev [1]Event
	if n, err := p.Wait(ev[:], 20*time.Second); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	return ev[0].Events
}

// TestStartDial connects without waiting: EALREADY and no readiness before the handshake has ended, then
// Writable, success once and EISCONN after it.
func TestStartDial(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	l, err := x.b.Listen("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := x.a.NewPoller()
	c, err := x.a.StartDial(&Dialer{}, netip.MustParseAddrPort(addrB+":80"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Add(c, Interest{Events: Readable | Writable | PeerClosed, Edge: true}); err != nil {
		t.Fatal(err)
	}
	if ev := waitEvents(t, p); ev != Writable {
		t.Errorf("events %b", ev)
	}
	for _, want := range []error{nil, syscall.EISCONN} {
		if err := c.FinishConnect(); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if err := c.SocketError(); err != nil {
		t.Error(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("x"))
	if n, err := s.Read(make([]byte, 9)); n != 1 || err != nil {
		t.Error(n, err)
	}
	_, _ = c.Close(), s.Close()
	x.checkEmpty(t)
}

// TestStartDialIsNotReady dials an address that nobody has: nothing is ready, calls that must not wait return
// EAGAIN, and Close ends a blocked one.
func TestStartDialIsNotReady(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, err := x.a.StartDial(&Dialer{}, netip.MustParseAddrPort("198.18.0.99:80"))
	if err != nil {
		t.Fatal(err)
	}
	p := x.a.NewPoller()
	if err := p.Add(c, Interest{Events: Readable | Writable | PeerClosed | Priority}); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Wait(make([]Event, 1), 20*time.Millisecond); n != 0 || err != nil {
		t.Error(n, err)
	}
	checkOpError(t, c.FinishConnect(), "connect", syscall.EALREADY)
	_, err = c.WriteWith([]byte("x"), SendDontWait)
	checkOpError(t, err, "write", syscall.EAGAIN)
	_, _, err = c.ReadWith(make([]byte, 1), ReceiveDontWait)
	checkOpError(t, err, "read", syscall.EAGAIN)
	done := make(chan error)
	go func() {
		_, err := c.Write([]byte("x"))
		done <- err
	}()
	time.Sleep(5 * time.Millisecond)
	_ = c.Close()
	if err := <-done; err == nil {
		t.Error("a write returned without an error")
	}
	x.checkEmpty(t)
}

// TestStartDialRefused reports the error once, by SocketError, and the end after it.
func TestStartDialRefused(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, err := x.a.StartDial(&Dialer{}, netip.MustParseAddrPort(addrB+":81"))
	if err != nil {
		t.Fatal(err)
	}
	p := x.a.NewPoller()
	if err := p.Add(c, Interest{Events: Readable | Writable | PeerClosed}); err != nil {
		t.Fatal(err)
	}
	if ev := waitEvents(t, p); ev != Readable|Writable|PeerClosed|Closed|Failed {
		t.Errorf("events %b", ev)
	}
	checkOpError(t, c.SocketError(), "getsockopt", syscall.ECONNREFUSED)
	if err := c.SocketError(); err != nil {
		t.Errorf("the error is reported twice: %v", err)
	}
	if ev := waitEvents(t, p); ev != Readable|Writable|PeerClosed|Closed {
		t.Errorf("events %b", ev)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
	_, err = c.Write([]byte("x"))
	checkOpError(t, err, "write", syscall.EPIPE)
	_ = c.Close()
	x.checkEmpty(t)
}

// TestFreeBind dials from an address that is not the stack's.
func TestFreeBind(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	d := Dialer{Local: netip.MustParseAddrPort("198.18.0.77:5000")}
	_, err := x.a.StartDial(&d, netip.MustParseAddrPort(addrB+":80"))
	checkOpError(t, err, "dial", syscall.EADDRNOTAVAIL)
	d.FreeBind = true
	c, err := x.a.StartDial(&d, netip.MustParseAddrPort(addrB+":80"))
	if err != nil {
		t.Fatal(err)
	}
	if a := c.LocalAddr().String(); a != d.Local.String() {
		t.Error(a)
	}
	_ = c.Close()
	x.checkEmpty(t)
}
