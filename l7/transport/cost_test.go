package transport

import (
	"os"
	"runtime"
	"testing"
	"unsafe"
)

// TestSizes: a proxy has many idle connections.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(epollConn{}); n > 112 {
		t.Errorf("epollConn takes %d bytes", n)
	}
	if n := unsafe.Sizeof(stackConn{}); n > 80 {
		t.Errorf("stackConn takes %d bytes", n)
	}
}

// pinger sends a byte and waits for it.
type pinger struct {
	c    Conn
	loop Loop
	b    [16]byte
	got  chan struct{}
}

func (p *pinger) Ready(c Conn, ev Events) {
	if ev&Readable == 0 {
		p.got <- struct{}{} // connected
		return
	}
	if n, _ := c.Read(p.b[:]); n > 0 {
		p.got <- struct{}{}
	}
}

func (p *pinger) ping() { _, _ = p.c.Write(p.b[:1]) }

// TestRoundTripsDoNotAllocate: neither events, nor reads, writes and functions for Do.
func TestRoundTripsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		return // the race detector allocates
	}
	inEachWorld(t, func(t *testing.T, w *world) {
		at, _ := w.listen(func(Conn) Handler { return newEcho(100) })
		p := &pinger{loop: w.client, got: make(chan struct{}, 1)}
		p.c = w.dial(at, p)
		next(w, p.got, "the connection")
		ping := p.ping
		trip := func() {
			w.client.Do(ping)
			<-p.got
		}
		w.client.Do(ping)
		next(w, p.got, "a round trip that waits for no timer")
		for range 100 {
			trip()
		}
		if n := testing.AllocsPerRun(300, trip); n != 0 {
			t.Errorf("%v allocations for a round trip", n)
		}
	})
}

// TestManyConnections opens, uses and closes many at a time. The kernel's idle connections take at most 200 bytes.
func TestManyConnections(t *testing.T) {
	conns := 1500
	if os.Getenv("MILLRACE_SOAK") != "" {
		conns = 9000 // of 20000 descriptors
	}
	if raceEnabled {
		conns = 200
	}
	inEachWorld(t, func(t *testing.T, w *world) {
		e := newEcho(100)
		at, _ := w.listen(func(Conn) Handler { return e.clone() })
		p := make([]pinger, conns)
		got := make(chan struct{}, conns)
		list := make([]Conn, 0, conns)
		before := heap()
		for i := range p {
			p[i].got = got
			if p[i].c = w.dial(at, &p[i]); i%100 == 99 { // the backlog is bounded
				for range 100 {
					next(w, got, "a connection")
				}
			}
			list = append(list, p[i].c)
		}
		for i := range p {
			w.client.Do(p[i].ping)
		}
		for range p {
			next(w, got, "an echo")
		}
		if _, kernel := w.client.(*EpollLoop); kernel && !raceEnabled {
			// Both ends, and the handlers of this test: an echo and its part of a slice.
			if each := (heap() - before) / (2 * conns); each > 200+int(unsafe.Sizeof(echo{}))/2 {
				t.Errorf("an idle connection takes %d bytes", each)
			} else {
				t.Logf("%d bytes", each)
			}
		}
		w.on(w.client, func() {
			for _, c := range list {
				c.Close()
			}
		})
		w.eventually("connections are left", func() bool { return w.open() == 0 })
	})
}

// heap returns the bytes in use.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// open counts the connections of all loops.
func (w *world) open() (n int) {
	for _, l := range append([]Loop{w.client}, w.servers...) {
		w.on(l, func() {
			conns := func(list, free int) { n += list - free }
			switch l := l.(type) {
			case *EpollLoop:
				conns(len(l.conns.list), len(l.conns.free))
			case *StackLoop:
				conns(len(l.conns.list), len(l.conns.free))
			}
		})
	}
	return n
}

// sharedBuffer is that of all echoes of a loop.
func (e *echo) clone() *echo { return &echo{buf: e.buf} }
