package socket

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/tcp"
)

// budgetTestbed has two stacks whose connections have less memory than they could use.
func budgetTestbed(t *testing.T, loops int, budget int64) *testbed {
	return newTestbed(t, testbedConfig{loops: loops, frames: 8192, backlog: 1024, tcp: tcp.Config{Budget: budget}})
}

// TestEchoBeyondTheBudget sends and echoes on more connections than there is memory for, in both directions at once: every
// call returns, every byte comes back, and all memory is free at the end.
func TestEchoBeyondTheBudget(t *testing.T) {
	for name, loops := range map[string]int{"one loop": 1, "two loops": 2} {
		t.Run(name, func(t *testing.T) {
			x := budgetTestbed(t, loops, 6<<20) // 128 times the least queue of a connection
			const n, size = 400, 100 << 10
			l, err := x.b.Listen("tcp", addrB+":7")
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						_, _ = io.Copy(c, struct{ io.Reader }{c})
						_ = c.Close()
					}()
				}
			}()
			within(t, 60*time.Second, "echo", func() {
				var wg sync.WaitGroup
				for range n {
					c, err := x.a.Dial("tcp", addrB+":7")
					if err != nil {
						t.Error(err)
						break
					}
					wg.Go(func() {
						if k, err := c.Write(make([]byte, size)); k != size || err != nil {
							t.Errorf("%d bytes written, %v", k, err)
						}
						_ = c.(*TCPConn).CloseWrite()
					})
					wg.Go(func() {
						if k, err := io.Copy(io.Discard, c); k != size || err != nil {
							t.Errorf("%d bytes came, %v", k, err)
						}
						_ = c.Close()
					})
				}
				wg.Wait()
			})
			_ = l.Close()
			x.checkEmpty(t)
		})
	}
}

// TestPollerWithoutMemory has a level-triggered Poller watch a connection that the budget has refused: it is reported
// Writable by nothing until there is memory, and then once for each Wait.
func TestPollerWithoutMemory(t *testing.T) {
	const budget = 1 << 20 // so little that it is held long before silent peers count as stalled
	x := budgetTestbed(t, 1, budget)
	c, s := x.pair(t)
	hold, release := holdBudget(t, x, budget)
	defer release()
	if n, err := tryWrite(c, make([]byte, 1000)); n != 0 || err != nil {
		t.Fatalf("%d bytes written without memory, %v", n, err)
	}
	p := x.a.NewPoller()
	defer p.Close()
	if err := p.Add(c, Interest{Events: Writable}); err != nil {
		t.Fatal(err)
	}
	events := make([]Event, 4)
	if n, err := p.Wait(events, 50*time.Millisecond); n != 0 || err != nil {
		t.Errorf("%d events without memory, %v", n, err)
	}
	hold()
	within(t, 5*time.Second, "Writable", func() {
		for range 2 {
			if n, err := p.Wait(events, -1); n != 1 || events[0].Events&Writable == 0 || err != nil {
				t.Errorf("%d events, %v", n, err)
			}
		}
	})
	if n, err := tryWrite(c, make([]byte, 1000)); n != 1000 || err != nil {
		t.Errorf("%d bytes written, %v", n, err)
	}
	within(t, 5*time.Second, "read", func() {
		if _, err := io.ReadFull(s, make([]byte, 1000)); err != nil {
			t.Error(err)
		}
	})
}

// tryWrite writes without blocking.
func tryWrite(c *TCPConn, b []byte) (n int, err error) {
	c.Do(func(in LoopConn) { n, err = in.Write(b) })
	return n, err
}

// holdBudget has connections to the first loop of a hold all of its memory with data that is not read, at either end. read frees it,
// and release closes the connections.
func holdBudget(t *testing.T, x *testbed, budget int64) (read, release func()) {
	t.Helper()
	l, err := x.a.Listen("tcp", addrA+":9")
	if err != nil {
		t.Fatal(err)
	}
	var all []net.Conn
	h := x.a.group.Hosts[0]
	free := func() bool {
		h.Enter()
		defer h.Exit()
		return h.TCP.Stats().Memory <= budget-512
	}
	// What is under way may still free some: there is none left when there is none a little later.
	full := func() bool {
		if free() {
			return false
		}
		time.Sleep(100 * time.Millisecond)
		return !free()
	}
	for len(all) < 8000 && !full() {
		c, err := x.b.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
		_, _ = c.Write(make([]byte, 20_000))
		// Received data gets three quarters at most: what is sent to an end that does not read takes the rest.
		_ = s.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
		_, _ = s.Write(make([]byte, 20_000))
		all = append(all, s, c)
	}
	if free() {
		t.Fatal("there is memory left")
	}
	read = func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
	return read, func() {
		for _, c := range all {
			_ = c.Close()
		}
		_ = l.Close()
	}
}
