package socket

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/tcp"
)

// pollServer serves every connection of a listener from the goroutine that calls run.
type pollServer struct {
	t      *testing.T
	p      *Poller
	l      *Listener
	closed int
	edge   bool
}

// run answers what comes with the same until n connections have been closed.
func (s *pollServer) run(n int) {
	events := make([]Event, 64)
	for s.closed < n {
		k, err := s.p.Wait(events, 5*time.Second)
		if err != nil || k == 0 {
			s.t.Errorf("%d events, %v, after %d of %d connections", k, err, s.closed, n)
			return
		}
		for _, e := range events[:k] {
			if c, ok := e.Data.(*TCPConn); ok {
				s.echo(c)
			} else {
				s.accept()
			}
		}
	}
}

func (s *pollServer) accept() {
	c, err := s.l.AcceptTCP()
	if err == nil {
		err = s.p.Add(c, Interest{Events: Readable, Edge: s.edge, Data: c})
	}
	if err != nil {
		s.t.Error(err)
	}
}

// echo sends back what there is. It does not block, because the clients send less than the send buffer holds.
func (s *pollServer) echo(c *TCPConn) {
	c.Do(func(in LoopConn) {
		var b [512]byte
		for {
			n, err := in.Read(b[:])
			if err != nil {
				if errors.Is(err, io.EOF) {
					s.closed++
				}
				_ = in.Close()
				return
			}
			if n == 0 {
				return
			}
			if k, err := in.Write(b[:n]); k != n || err != nil {
				s.t.Errorf("%d of %d bytes, %v", k, n, err)
			}
			if !s.edge {
				return
			}
		}
	})
}

// TestPoller serves a thousand connections from one goroutine.
func TestPoller(t *testing.T) {
	const conns = 1000
	for _, edge := range []bool{false, true} {
		t.Run(fmt.Sprintf("edge %v", edge), func(t *testing.T) {
			x := newTestbed(t, testbedConfig{loops: 2, backlog: conns})
			l, err := x.b.Listen("tcp", addrB+":80")
			if err != nil {
				t.Fatal(err)
			}
			p := x.b.NewPoller()
			if err := p.Add(l.(*Listener), Interest{Events: Readable}); err != nil {
				t.Fatal(err)
			}
			before := runtime.NumGoroutine()
			go func() {
				for i := range conns {
					if err := pollClient(x.a, i); err != nil {
						t.Error(err)
					}
				}
			}()
			s := &pollServer{t: t, p: p, l: l.(*Listener), edge: edge}
			within(t, 30*time.Second, "poller", func() { s.run(conns) })
			if n := runtime.NumGoroutine(); n > before+4 {
				t.Errorf("%d goroutines, %d before", n, before)
			}
			_ = p.Close()
			_, err = p.Wait(make([]Event, 1), 0)
			if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			_ = l.Close()
			x.checkEmpty(t)
		})
	}
}

// pollClient sends bytes and reads them back. Every tenth waits before it sends, so that many connections are
// open at once.
func pollClient(s *Stack, i int) error {
	c, err := s.Dial("tcp", addrB+":80")
	if err != nil {
		return err
	}
	exchange := func() error {
		defer c.Close()
		b := make([]byte, 100+i%1000)
		if _, err := c.Write(b); err != nil {
			return err
		}
		_, err := io.ReadFull(c, b)
		return err
	}
	if i%10 != 0 {
		return exchange()
	}
	time.AfterFunc(50*time.Millisecond, func() {
		if err := exchange(); err != nil {
			panic(err)
		}
	})
	return nil
}

func TestPollerLevelAndEdge(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	p := x.b.NewPoller()
	events := make([]Event, 8)
	wait := func(want Events, what string) {
		t.Helper()
		var got Events
		n, err := p.Wait(events, 100*time.Millisecond)
		for _, e := range events[:n] {
			got |= e.Events
		}
		if got != want || err != nil {
			t.Errorf("%s: events %b, %v, want %b", what, got, err, want)
		}
	}
	c, s := x.pair(t)
	_, _ = c.Write([]byte("ab"))
	eventually(t, "nothing came", func() bool { i, _ := s.Info(); return i.ReceiveQueue == 2 })

	if err := p.Add(s, Interest{Events: Readable}); err != nil {
		t.Fatal(err)
	}
	wait(Readable, "data was there before Add")
	wait(Readable, "level: still there")
	_, _ = s.Read(make([]byte, 1))
	wait(Readable, "level: a byte is left")
	_, _ = s.Read(make([]byte, 1))
	wait(0, "level: nothing is left")
	_, _ = c.Write([]byte("c"))
	wait(Readable, "level: new data")

	if err := p.Mod(s, Interest{Events: Readable, Edge: true}); err != nil {
		t.Fatal(err)
	}
	wait(Readable, "edge: what is there at first")
	wait(0, "edge: told once")
	_, _ = c.Write([]byte("d"))
	wait(Readable, "edge: new data")
	if err := p.Mod(s, Interest{Events: Readable | Writable}); err != nil {
		t.Fatal(err)
	}
	wait(Readable|Writable, "both ways")
	if err := p.Del(s); err != nil {
		t.Fatal(err)
	}
	wait(0, "deleted")
	if err := p.Add(s, Interest{Events: Readable}); err != nil {
		t.Fatal(err)
	}
	wait(Readable, "again")
	_ = c.Abort()
	eventually(t, "no reset", func() bool { i, err := s.Info(); return err != nil || i.State == tcp.StateClosed })
	wait(Readable|Closed|Failed, "reset")
	_ = s.Close()
	wait(0, "closed by the program")
	checkOpError(t, p.Add(s, Interest{}), "poll", net.ErrClosed)
}

func TestPollerTimeouts(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	p := x.a.NewPoller()
	if n, err := p.Wait(make([]Event, 1), 0); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	due := time.Now().Add(10 * time.Millisecond)
	if n, err := p.Wait(make([]Event, 1), 10*time.Millisecond); n != 0 || err != nil || time.Now().Before(due) {
		t.Errorf("%d, %v at %v, which is due at %v", n, err, time.Now(), due)
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = p.Close() })
	within(t, 5*time.Second, "close", func() {
		if _, err := p.Wait(make([]Event, 1), -1); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestPollerAlwaysReportsClosed requests no event, and receives Closed.
func TestPollerAlwaysReportsClosed(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	p := x.a.NewPoller()
	defer p.Close()
	if err := p.Add(c, Interest{Edge: true, Data: "c"}); err != nil {
		t.Fatal(err)
	}
	_ = s.Abort()
	var events [4]Event
	n, err := p.Wait(events[:], 10*time.Second)
	if n != 1 || err != nil || events[0].Events != Closed|Failed || events[0].Data != "c" {
		t.Errorf("%v, %v", events[:n], err)
	}
}

// TestDatagramPoller waits for two sockets.
func TestDatagramPoller(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	p := x.b.NewPoller()
	var c [2]*UDPConn
	for i := range c {
		c[i] = x.listenPacket(t, x.b, "udp", fmt.Sprint(":", i+1), nil)
		if err := p.Add(c[i], Interest{Events: Readable, Data: i}); err != nil {
			t.Fatal(err)
		}
	}
	a := x.listenPacket(t, x.a, "udp", ":0", nil)
	for i := range 10 {
		to := i % 2
		_, _ = a.WriteToUDPAddrPort([]byte("x"), netip.MustParseAddrPort(fmt.Sprint(addrB, ":", to+1)))
		ev := make([]Event, 4)
		n, err := p.Wait(ev, 5*time.Second)
		if n != 1 || err != nil || ev[0].Data != to {
			t.Fatal(n, err, ev[0])
		}
		if n, _, err := c[to].ReadFrom(make([]byte, 10)); n != 1 || err != nil {
			t.Error(n, err)
		}
	}
	if n, err := p.Wait(make([]Event, 1), 0); n != 0 || err != nil {
		t.Error(n, err)
	}
}
