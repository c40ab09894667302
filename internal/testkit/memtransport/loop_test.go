package memtransport

import (
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/transport"
)

var addr = netip.MustParseAddrPort("192.0.2.1:80")

// echo sends back what it reads, as far as there is room, and then its end.
type echo struct{ held []byte }

func (e *echo) Ready(c transport.Conn, _ transport.Events) {
	buf := make([]byte, 100)
	for {
		if len(e.held) > 0 {
			n, err := c.Write(e.held)
			if e.held = e.held[n:]; err != nil || len(e.held) > 0 {
				return
			}
		}
		n, err := c.Read(buf)
		if errors.Is(err, io.EOF) {
			c.Close()
			return
		}
		if err != nil {
			return
		}
		e.held = append(e.held, buf[:n]...)
	}
}

func TestEcho(t *testing.T) {
	l := New()
	l.Cut = func(n int) int { return n / 3 }
	if _, err := l.Listen(addr, func(transport.Conn) transport.Handler { return &echo{} }); err != nil {
		t.Fatal(err)
	}
	p, err := l.Connect(addr)
	if err != nil {
		t.Fatal(err)
	}
	p.Window = 10
	p.Write([]byte("more than the window has room for"))
	p.CloseWrite()
	got := ""
	for range 10 {
		if err := l.Run(); err != nil {
			t.Fatal(err)
		}
		b := p.Take()
		if got += string(b); len(b) > 10 {
			t.Errorf("%d bytes at once", len(b))
		}
	}
	if got != "more than the window has room for" || !p.Ended || p.Reset || l.Open() != 0 {
		t.Errorf("%q, ended %v, reset %v, %d open", got, p.Ended, p.Reset, l.Open())
	}
}

// dialer notes what becomes of a connection.
type dialer struct{ events []transport.Events }

func (d *dialer) Ready(_ transport.Conn, ev transport.Events) { d.events = append(d.events, ev) }

func TestDial(t *testing.T) {
	l := New()
	var refused, silent, open dialer
	c, _ := l.Dial(addr, &refused)
	l.Dialed = func(netip.AddrPort) (func(*Peer), error) { return nil, nil }
	_, _ = l.Dial(addr, &silent)
	var peer *Peer
	l.Dialed = func(netip.AddrPort) (func(*Peer), error) { return func(p *Peer) { peer = p }, nil }
	established, _ := l.Dial(addr, &open)
	if err := l.Run(); err != nil {
		t.Fatal(err)
	}
	if len(refused.events) != 1 || refused.events[0] != transport.Failed || !errors.Is(c.Err(), unix.ECONNREFUSED) || len(silent.events) != 0 || len(open.events) != 1 {
		t.Errorf("%v %v %v", refused.events, silent.events, open.events)
	}
	peer.Close()
	_, first := established.Write([]byte("a"))
	_, second := established.Write([]byte("b"))
	if first != nil || !errors.Is(second, unix.ECONNRESET) {
		t.Errorf("%v, %v: the second write to a closed connection fails", first, second)
	}
}

func TestAdvance(t *testing.T) {
	l := New()
	begin := l.Now()
	var at []clock.Time
	l.SetTick(func(now clock.Time) clock.Time {
		at = append(at, now)
		return begin.Add(time.Duration(len(at)) * time.Second)
	})
	if err := l.Advance(2500 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if l.Now() != begin.Add(2500*time.Millisecond) || len(at) < 3 {
		t.Errorf("now %v, ticks at %v", l.Now()-begin, at)
	}
}
