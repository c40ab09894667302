package transport

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func cpuTime(who int) time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(who, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// copier relays by Read and Write through a buffer.
type copier struct {
	src, dst  Conn
	buf, held []byte
}

func (m *copier) move() {
	for {
		if len(m.held) > 0 {
			n, _ := m.dst.Write(m.held)
			if m.held = m.held[n:]; len(m.held) > 0 {
				return
			}
		}
		n, err := m.src.Read(m.buf)
		if err != nil {
			return
		}
		if m.held = m.buf[:n]; n < len(m.buf) {
			n, _ := m.dst.Write(m.held)
			m.held = m.held[n:]
			return
		}
	}
}

// BenchmarkRelay relays bodies on 4 connections, by Relay and by buffers of several sizes. One unit is a body. "all"
// is the CPU time of the process, with both ends of the connections; "loop", of the kernel's, that of the loop alone.
//
//	go test -bench Relay -count 7 ./l7/transport
func BenchmarkRelay(b *testing.B) {
	for _, x := range []int{0, 2} {
		for _, body := range []int{16 << 10, 64 << 10, 256 << 10, 1 << 20} {
			for _, buf := range []int{0, 32 << 10, 64 << 10, 256 << 10} {
				how := "Relay"
				if buf > 0 {
					how = fmt.Sprintf("buffer=%dK", buf>>10)
				}
				b.Run(fmt.Sprintf("%s/body=%dK/%s", worlds[x].name, body>>10, how), func(b *testing.B) {
					benchmarkRelay(b, worlds[x].open(b), body, buf)
				})
			}
		}
	}
}

const relayPairs = 4

func benchmarkRelay(b *testing.B, w *world, body, buf int) {
	src, err := w.peer.Listen("tcp", w.local.String())
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	go serveBodies(src, body)
	to := netip.MustParseAddrPort(src.Addr().String())
	at, _ := w.listen(func(front Conn) Handler { return startRelay(b, front, to, buf) })
	var conns []net.Conn
	for range relayPairs {
		c, err := w.peer.Dial("tcp", at.String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		fetch(b, c, body)
		conns = append(conns, c)
	}
	_, kernel := w.servers[0].(*EpollLoop)
	var loop [2]time.Duration
	w.on(w.servers[0], func() { loop[0] = cpuTime(unix.RUSAGE_THREAD) })
	all := cpuTime(unix.RUSAGE_SELF)
	b.SetBytes(int64(body))
	b.ResetTimer()
	done := make(chan bool)
	for i, c := range conns {
		go func() {
			for n := i; n < b.N; n += relayPairs {
				fetch(b, c, body)
			}
			done <- true
		}()
	}
	for range conns {
		<-done
	}
	b.StopTimer()
	mib := float64(b.N) * float64(body) / (1 << 20)
	b.ReportMetric(float64((cpuTime(unix.RUSAGE_SELF)-all).Microseconds())/mib, "all-us/MiB")
	w.on(w.servers[0], func() { loop[1] = cpuTime(unix.RUSAGE_THREAD) })
	if kernel {
		b.ReportMetric(float64((loop[1]-loop[0]).Microseconds())/mib, "loop-us/MiB")
	}
}

// startRelay dials the source and returns the handler of front: bytes of it ask for bodies.
func startRelay(b *testing.B, front Conn, to netip.AddrPort, buf int) Handler {
	up, err := loopOf(front).Dial(to, nil)
	if err != nil {
		b.Error(err)
		return nil
	}
	m := &copier{src: up, dst: front, buf: make([]byte, buf)}
	move := m.move
	if buf == 0 {
		move = func() {
			for in, out := error(nil), error(nil); in == nil && out == nil; {
				_, in, out = up.Relay(front, 256<<10)
			}
		}
	}
	up.SetHandler(handlerFunc(func(Conn, Events) { move() }))
	one := make([]byte, 1)
	return handlerFunc(func(_ Conn, ev Events) {
		if ev&Readable != 0 {
			if n, _ := front.Read(one); n == 1 {
				_, _ = up.Write(one)
			}
		}
		if ev&Writable != 0 {
			move()
		}
	})
}

// serveBodies answers each byte with a body.
func serveBodies(l net.Listener, size int) {
	body := make([]byte, size)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for b := make([]byte, 1); ; {
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				if _, err := c.Write(body); err != nil {
					return
				}
			}
		}()
	}
}

func fetch(b *testing.B, c net.Conn, size int) {
	if _, err := c.Write([]byte{1}); err != nil {
		b.Error(err)
	}
	buf := make([]byte, 256<<10)
	for left := size; left > 0; {
		n, err := c.Read(buf[:min(left, len(buf))])
		if left -= n; err != nil {
			b.Error(err)
			return
		}
	}
}
