package socket

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestSeveralPollers has two Pollers watch one connection: each has an interest of its own.
func TestSeveralPollers(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	p, q := x.b.NewPoller(), x.b.NewPoller()
	add := func(p *Poller, want Interest) {
		t.Helper()
		if err := p.Add(s, want); err != nil {
			t.Fatal(err)
		}
	}
	add(p, Interest{Events: Readable, Data: "p"})
	add(q, Interest{Events: Readable | Writable, Edge: true, Data: "q"})
	if ev := waitEvents(t, q); ev != Writable {
		t.Errorf("events %b", ev)
	}
	checkOpError(t, p.Add(s, Interest{}), "poll", syscall.EEXIST)
	_, _ = c.Write([]byte("x"))
	if ev := waitEvents(t, p); ev != Readable {
		t.Errorf("events %b", ev)
	}
	if ev := waitEvents(t, q); ev != Readable|Writable { // all that holds when something changes
		t.Errorf("events %b", ev)
	}
	if err := p.Del(s); err != nil {
		t.Fatal(err)
	}
	checkOpError(t, p.Del(s), "poll", syscall.ENOENT)
	checkOpError(t, p.Mod(s, Interest{}), "poll", syscall.ENOENT)
	_, _ = c.Write([]byte("y"))
	if ev := waitEvents(t, q); ev != Readable|Writable {
		t.Errorf("events %b", ev)
	}
	if n, _ := p.Wait(make([]Event, 1), 0); n != 0 {
		t.Error("a Poller without the socket reports it")
	}
	_, _ = c.Close(), s.Close()
	x.checkEmpty(t)
}

// TestOneShot reports a connection and a listener once until Mod, whatever shard has something.
func TestOneShot(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 4})
	l, err := x.b.Listen("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	p := x.b.NewPoller()
	want := Interest{Events: Readable, OneShot: true}
	if err := p.Add(l.(*Listener), want); err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range 40 { // some on each loop
		c, err := x.a.Dial("tcp", addrB+":80")
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for round := range 3 {
		total := 0
		for range 3 {
			n, err := p.Wait(make([]Event, 8), 10*time.Millisecond)
			if total += n; err != nil {
				t.Fatal(err)
			}
		}
		if total != 1 {
			t.Errorf("round %d: %d events", round, total)
		}
		if err := p.Mod(l.(*Listener), want); err != nil {
			t.Fatal(err)
		}
	}
	_ = l.Close()
	for _, c := range conns {
		_ = c.Close()
	}
	checkOpError(t, x.a.NewPoller().Add(conns[0].(*TCPConn), Interest{}), "poll", net.ErrClosed)
	x.checkEmpty(t)
}

// TestExclusive has four goroutines wait for one connection each in their own Poller: each burst wakes one of
// them, in turn.
func TestExclusive(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	const pollers = 4
	var woken [pollers]atomic.Int32
	var wg sync.WaitGroup
	var all []*Poller
	for i := range pollers {
		p := x.b.NewPoller()
		all = append(all, p)
		if err := p.Add(s, Interest{Events: Readable, Exclusive: true, Edge: true}); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for {
				n, err := p.Wait(make([]Event, 1), -1)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				woken[i].Add(int32(n))
			}
		})
	}
	total := func() (n int) {
		for i := range woken {
			n += int(woken[i].Load())
		}
		return n
	}
	const bursts = 20
	for i := range bursts {
		eventually(t, "no goroutine waits", func() bool {
			for _, p := range all {
				if !p.sleeping.Load() {
					return false
				}
			}
			return true
		})
		if n := total(); n != i {
			t.Fatalf("%d wakeups by %d bursts", n, i)
		}
		_, _ = c.Write([]byte("x"))
		eventually(t, "nobody was woken", func() bool { return total() > i })
	}
	for i := range woken {
		if n := woken[i].Load(); n != bursts/pollers {
			t.Errorf("Poller %d was woken %d times by %d bursts", i, n, bursts)
		}
	}
	checkOpError(t, all[0].Mod(s, Interest{Events: Readable}), "poll", syscall.EINVAL)
	checkOpError(t, x.b.NewPoller().Add(s, Interest{Exclusive: true, OneShot: true}), "poll", syscall.EINVAL)
	for _, p := range all {
		_ = p.Close()
	}
	wg.Wait()
	_, _ = c.Close(), s.Close()
	x.checkEmpty(t)
}

// TestPeerClosed tells the peer's FIN, with data before it, from the end of both directions.
func TestPeerClosed(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	p := x.b.NewPoller()
	if err := p.Add(s, Interest{Events: PeerClosed, Edge: true}); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("x"))
	if n, _ := p.Wait(make([]Event, 1), 20*time.Millisecond); n != 0 {
		t.Error("data is reported to one that wants only the end")
	}
	_ = c.CloseWrite()
	if ev := waitEvents(t, p); ev != PeerClosed {
		t.Errorf("events %b", ev)
	}
	_ = s.CloseWrite()
	if err := p.Mod(s, Interest{Events: Readable | Writable}); err != nil {
		t.Fatal(err)
	}
	if ev := waitEvents(t, p); ev != Readable|Writable|Closed {
		t.Errorf("events %b", ev)
	}
	_, _ = c.Close(), s.Close()
	x.checkEmpty(t)
}

// TestPriority reports an urgent byte until it is read.
func TestPriority(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	if err := s.SetOptions(func(o *TCPOptions) { o.UrgentOutOfBand = true }); err != nil {
		t.Fatal(err)
	}
	p := x.b.NewPoller()
	if err := p.Add(s, Interest{Events: Readable | Priority}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.WriteWith([]byte("ab!"), SendOutOfBand); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if ev := waitEvents(t, p); ev != Readable|Priority {
		t.Errorf("events %b", ev)
	}
	_, _ = c.Write([]byte("cd"))
	var b [8]byte
	if n, _, err := s.ReadWith(b[:], ReceiveOutOfBand); n != 1 || b[0] != '!' || err != nil {
		t.Error(n, b, err)
	}
	if ev := waitEvents(t, p); ev != Readable {
		t.Errorf("events %b", ev)
	}
	eventually(t, "no data", func() bool { i, _ := s.Info(); return i.ReceiveQueue == 4 })
	for _, want := range []string{"ab", "cd"} {
		if n, err := s.Read(b[:]); string(b[:n]) != want || err != nil {
			t.Errorf("%q, %v, want %q", b[:n], err, want)
		}
	}
	_, _, err := s.ReadWith(b[:], ReceiveOutOfBand)
	checkOpError(t, err, "read", syscall.EINVAL)
	_, _ = c.Close(), s.Close()
	x.checkEmpty(t)
}

// TestWritableWithoutAFailedWrite fills the send buffer exactly: a Poller that is asked then must report when
// there is room.
func TestWritableWithoutAFailedWrite(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	if err := c.SetWriteBuffer(8 << 10); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		i, _ := c.Info()
		room := i.SendBuffer - i.SendQueue
		if room == 0 && i.InFlight == 0 || room == 0 && i.SendWindow == 0 {
			break
		}
		if room > 0 {
			_, _ = c.Write(buf[:min(room, len(buf))])
		}
		if i.SendWindow == 0 && room == 0 {
			break
		}
	}
	p := x.a.NewPoller()
	if err := p.Add(c, Interest{Events: Writable}); err != nil {
		t.Fatal(err)
	}
	if n, _ := p.Wait(make([]Event, 1), 0); n != 0 {
		t.Error("no room is reported as room")
	}
	go func() {
		for {
			if _, err := s.Read(buf); err != nil {
				return
			}
		}
	}()
	if ev := waitEvents(t, p); ev != Writable {
		t.Errorf("events %b", ev)
	}
	_ = c.Close()
}

// TestPollersUnderRaces adds, changes, removes and waits from many goroutines while connections are busy and
// close.
func TestPollersUnderRaces(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	pollers := []*Poller{x.b.NewPoller(), x.b.NewPoller(), x.b.NewPoller()}
	stop := make(chan struct{})
	var waits, work sync.WaitGroup
	for _, p := range pollers {
		waits.Go(func() {
			ev := make([]Event, 4)
			for {
				n, err := p.Wait(ev, time.Millisecond)
				if err != nil {
					return
				}
				for _, e := range ev[:n] {
					s := e.Data.(*TCPConn)
					_, _, _ = s.ReadWith(make([]byte, 100), ReceiveDontWait)
					if e.Events&Closed != 0 {
						_ = p.Del(s)
					}
				}
			}
		})
	}
	for g := range 4 {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, s := x.pair(t)
				for i, p := range pollers {
					_ = p.Add(s, Interest{Events: Readable | PeerClosed, Edge: i == 1, OneShot: i == 2, Exclusive: i == 0, Data: s})
				}
				for range 20 {
					_, _ = c.Write(make([]byte, 50))
					_ = pollers[2].Mod(s, Interest{Events: Readable, OneShot: true, Data: s})
				}
				if g%2 == 0 {
					_ = pollers[1].Del(s)
				}
				_, _ = c.Close(), s.Close()
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	close(stop)
	work.Wait()
	for _, p := range pollers {
		_ = p.Close()
	}
	waits.Wait()
	x.checkEmpty(t)
}

// TestSocketsOfAnotherStack adds them to a Poller, whose queues their loops do not guard.
func TestSocketsOfAnotherStack(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, _ := x.pair(t)
	l, err := x.a.Listen("tcp", addrA+":80")
	if err != nil {
		t.Fatal(err)
	}
	u, err := x.a.ListenPacket("udp", addrA+":80")
	if err != nil {
		t.Fatal(err)
	}
	p := x.b.NewPoller()
	for _, s := range []Pollable{c, l.(*Listener), u.(*UDPConn)} {
		checkOpError(t, p.Add(s, Interest{Events: Readable | Writable}), "poll", syscall.EINVAL)
		checkOpError(t, p.Mod(s, Interest{}), "poll", syscall.ENOENT)
		checkOpError(t, p.Del(s), "poll", syscall.ENOENT)
	}
	if n, _ := p.Wait(make([]Event, 1), 0); n != 0 {
		t.Error("a socket of another Stack is reported")
	}
}
