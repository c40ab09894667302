package host

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/tcp"
)

// cpu returns the CPU time of the process in nanoseconds: on a machine that others use it is more reliable than
// the time that passes.
func cpu() float64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano() + u.Stime.Nano())
}

// pump is a connection over which one end sends as fast as the other reads, both on one goroutine.
func pump(b *testing.B, s setting, from, to netip.Prefix) {
	w := newWorld(b, s)
	sinks := w.listen(w.b, 9, false)
	c := w.dial(w.a, 0, from, to, 9)
	c.send = nil
	chunk := make([]byte, 64<<10)
	if !w.run(1e9, func() bool { return len(*sinks) == 1 }) {
		b.Fatal("no connection")
	}
	in := (*sinks)[0]
	total, got := 0, 0
	in.c.SetOwner(reader{in, &got})
	c.c.SetOwner(noOwner{})
	b.SetBytes(1 << 20)
	start := cpu()
	for b.Loop() {
		want := got + 1<<20
		for got < want {
			now := c.h.Enter()
			total += c.c.Write(now, chunk)
			c.h.Exit()
			w.poll()
			w.now += 20_000
		}
	}
	b.ReportMetric((cpu()-start)/float64(got>>10), "cpu-ns/KB")
}

type noOwner struct{}

func (noOwner) Ready(tcp.Events) {}

type reader struct {
	s *sock
	n *int
}

func (r reader) Ready(tcp.Events) {
	for _, p := range r.s.c.Peek() {
		if len(p) > 0 {
			*r.n += len(p)
			r.s.c.Discard(r.s.w.now, len(p))
		}
	}
}

func BenchmarkBulk(b *testing.B) {
	b.Run("ipv4", func(b *testing.B) { pump(b, setting{}, addrA4, addrB4) })
	b.Run("ipv6", func(b *testing.B) { pump(b, setting{}, addrA6, addrB6) })
	b.Run("jumbo", func(b *testing.B) { pump(b, setting{mtu: 9000, frameSize: 16384}, addrA4, addrB4) })
}

// BenchmarkRoundTrip is one byte there and back, both on one goroutine.
func BenchmarkRoundTrip(b *testing.B) {
	w := newWorld(b, setting{})
	w.listen(w.b, 7, true)
	c := w.dial(w.a, 0, addrA4, addrB4, 7)
	one := []byte{1}
	start := cpu()
	for b.Loop() {
		c.got = c.got[:0]
		now := c.h.Enter()
		c.c.Write(now, one)
		c.h.Exit()
		for len(c.got) == 0 {
			w.poll()
			w.now += 1000
		}
	}
	b.ReportMetric((cpu()-start)/float64(b.N), "cpu-ns/op")
}

// BenchmarkConnect is a connection, one byte there and back, and its end.
func BenchmarkConnect(b *testing.B) {
	w := newWorld(b, setting{})
	w.listen(w.b, 7, true)
	start := cpu()
	for b.Loop() {
		c := w.dial(w.a, 0, addrA4, addrB4, 7)
		c.send, c.shut = []byte{1}, true
		for !c.fin {
			w.poll()
			w.now += 20_000 // so that ports can be used again (RFC 6191)
		}
		now := c.h.Enter()
		c.c.Close(now)
		c.h.Exit()
	}
	b.ReportMetric((cpu()-start)/float64(b.N), "cpu-ns/op")
}
