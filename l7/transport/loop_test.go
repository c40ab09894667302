package transport

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/socket"
)

// TestDo: functions of a goroutine run in their order, one at a time, and may bring others.
func TestDo(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		const goroutines, each = 8, 2000
		l := w.servers[0]
		count, last := 0, [goroutines]int{}
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() {
				for i := range each {
					if !l.Do(func() {
						if last[g] != i {
							t.Errorf("function %d comes after %d", i, last[g])
						}
						last[g] = i + 1
						count++
					}) {
						t.Error("refused")
						return
					}
				}
			})
		}
		all.Wait()
		nested := make(chan int, 1)
		l.Do(func() { l.Do(func() { nested <- count }) })
		if n := next(w, nested, "a function that a function brings"); n != goroutines*each {
			t.Errorf("%d functions have run", n)
		}
	})
}

// TestTick: it is called after each batch of events, and at the time that it has returned.
func TestTick(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		at, _ := w.listen(func(Conn) Handler { return newEcho(100) })
		for _, l := range w.servers {
			fired := make(chan clock.Time, 1)
			var due clock.Time
			w.on(l, func() {
				l.SetTick(func(now clock.Time) clock.Time {
					if now != l.Now() {
						t.Errorf("tick at %d, Now is %d", now, l.Now())
					}
					if due == 0 {
						due = now.Add(20 * time.Millisecond)
					}
					if now < due {
						return due
					}
					select {
					case fired <- now:
					default:
					}
					return clock.Never
				})
			})
			if now := next(w, fired, "a tick"); now < due {
				t.Errorf("called %v early", due.Sub(now))
			}
			var ticks atomic.Int64
			w.on(l, func() {
				l.SetTick(func(clock.Time) clock.Time {
					ticks.Add(1)
					return clock.Never
				})
			})
			w.eventually("no tick after the function that set it", func() bool { return ticks.Load() > 0 })
		}
		var ticks atomic.Int64
		for _, l := range w.servers {
			w.on(l, func() { l.SetTick(func(clock.Time) clock.Time { ticks.Add(1); return clock.Never }) })
		}
		time.Sleep(20 * time.Millisecond)
		before := ticks.Load()
		c := w.connect(at)
		_, _ = c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		w.eventually("no tick after events", func() bool { return ticks.Load() > before })
		time.Sleep(20 * time.Millisecond)
		idle := ticks.Load()
		if time.Sleep(50 * time.Millisecond); ticks.Load() > idle+2 {
			t.Errorf("%d ticks of idle loops", ticks.Load()-idle)
		}
	})
}

// TestFirstTick: a tick that is set before the loop runs is called without an event.
func TestFirstTick(t *testing.T) {
	l, err := NewEpollLoop()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	ticks := 0
	l.SetTick(func(now clock.Time) clock.Time {
		if ticks++; ticks == 3 {
			stop()
		}
		return now.Add(time.Millisecond)
	})
	if err := l.Run(ctx); err != nil || ticks < 3 {
		t.Errorf("%d ticks, %v", ticks, err)
	}
}

// TestOutputOfTick: what a tick writes leaves, though nothing else happens.
func TestOutputOfTick(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		conns := map[Loop]Conn{} // accepted, for the ticks of their loops
		at, _ := w.listen(func(c Conn) Handler {
			mu.Lock()
			defer mu.Unlock()
			conns[loopOf(c)] = c
			return nil
		})
		for _, l := range w.servers {
			var due clock.Time
			w.on(l, func() {
				l.SetTick(func(now clock.Time) clock.Time {
					mu.Lock()
					defer mu.Unlock()
					c := conns[l]
					switch {
					case c == nil:
						return clock.Never
					case due == 0:
						due = now.Add(20 * time.Millisecond)
					case now >= due:
						_, _ = c.Write([]byte("tick"))
						delete(conns, l)
						return clock.Never
					}
					return due
				})
			})
		}
		b := make([]byte, 4)
		if _, err := io.ReadFull(w.connect(at), b); err != nil || string(b) != "tick" {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// TestEnd: with its loop, all connections and listeners end, what Do has accepted has run, and Do accepts no more.
func TestEnd(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		at, _ := w.listen(func(Conn) Handler {
			return handlerFunc(func(c Conn, ev Events) { _, _ = c.Read(make([]byte, 10)) })
		})
		c := w.connect(at)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		var ran, accepted atomic.Int64
		var all sync.WaitGroup
		for _, l := range w.servers {
			w.on(l, func() {})
			for range 4 {
				all.Go(func() {
					for l.Do(func() { ran.Add(1) }) {
						accepted.Add(1)
					}
				})
			}
			if err := l.(io.Closer).Close(); err != nil {
				t.Error(err)
			}
		}
		all.Wait()
		if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want the end", err)
		}
		if _, ours := w.servers[0].(*StackLoop); ours {
			if _, err := w.servers[0].Dial(at, nil); err != ErrClosed {
				t.Errorf("Dial after Close: %v", err)
			}
			if _, err := w.servers[0].Listen(at, nil); err != ErrClosed {
				t.Errorf("Listen after Close: %v", err)
			}
		}
		w.eventually("accepted functions have not run", func() bool { return ran.Load() == accepted.Load() })
		w.eventually("something listens", func() bool {
			_, err := w.peer.Dial("tcp", at.String())
			return errors.Is(err, syscall.ECONNREFUSED)
		})
	})
}

// TestCommandsOfCommands: what a command brings at the end runs, too.
func TestCommandsOfCommands(t *testing.T) {
	var q commandList
	ran := 0
	q.do(func() { ran++; q.do(func() { ran++ }) })
	if q.end(); ran != 2 {
		t.Errorf("%d commands have run", ran)
	}
	if q.do(func() {}) {
		t.Error("accepted after the end")
	}
}

// TestStackEnds: a loop over a stack that ends by itself accepts no more functions.
func TestStackEnds(t *testing.T) {
	a, b, err := socket.Pair(netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.2/24"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	l := NewStackLoop(a.Group().Hosts[0])
	w := &world{t: t}
	w.on(l, func() {})
	var ran, accepted atomic.Int64
	done := make(chan struct{})
	go func() {
		for l.Do(func() { ran.Add(1) }) {
			accepted.Add(1)
		}
		close(done)
	}()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	w.await(done, "the end of Do")
	if ran.Load() != accepted.Load() {
		t.Errorf("%d of %d functions have run", ran.Load(), accepted.Load())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestErrorsOfListenAndDial are those of the kernel.
func TestErrorsOfListenAndDial(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		taken, err := w.peer.Listen("tcp", w.local.String())
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		for _, x := range []struct {
			name, listen string
			want         error
		}{
			{"no address", "", syscall.EINVAL},
			{"foreign address", "192.0.2.1:0", syscall.EADDRNOTAVAIL},
			{"taken", taken.Addr().String(), syscall.EADDRINUSE},
		} {
			var a netip.AddrPort
			if x.listen != "" {
				a = netip.MustParseAddrPort(x.listen)
			}
			w.on(w.client, func() {
				if li, err := w.client.Listen(a, nil); !errors.Is(err, x.want) {
					t.Errorf("%s: %v, %v, want %v", x.name, li, err, x.want)
				}
			})
		}
		w.on(w.client, func() {
			if _, err := w.client.Dial(netip.AddrPort{}, nil); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("dial to no address: %v", err)
			}
			if _, ours := w.client.(*StackLoop); ours {
				if _, err := w.client.Dial(netip.MustParseAddrPort("192.0.2.1:80"), nil); !errors.Is(err, syscall.ENETUNREACH) {
					t.Errorf("dial without a route: %v", err)
				}
			}
		})
	})
}

// TestDialOnEachLoop: the packets of a connection come back to the loop that has dialed it.
func TestDialOnEachLoop(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		li, err := w.peer.Listen("tcp", w.local.String())
		if err != nil {
			t.Fatal(err)
		}
		defer li.Close()
		go func() {
			for {
				c, err := li.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_, _ = io.Copy(c, c)
				}()
			}
		}()
		to := netip.MustParseAddrPort(li.Addr().String())
		const each = 40
		done := make(chan struct{}, each*len(w.servers))
		for _, l := range w.servers {
			w.on(l, func() {
				for range each {
					if _, err := l.Dial(to, handlerFunc(func(c Conn, ev Events) {
						if ev&Writable != 0 {
							_, _ = c.Write([]byte("x"))
						}
						if n, _ := c.Read(make([]byte, 2)); n == 1 {
							c.Close()
							done <- struct{}{}
						}
					})); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range each * len(w.servers) {
			next(w, done, "an echo")
		}
	})
}
