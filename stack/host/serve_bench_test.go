package host_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

func cpu() float64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano() + u.Stime.Nano())
}

// pair returns two stacks with sockets, in real time.
func pair(t testing.TB) (a, b *socket.Stack) {
	t.Helper()
	a, b, err := socket.Pair(netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.2/24"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	return a, b
}

// echo serves echo (RFC 862) on port 7 and discard (RFC 863) on port 9 of b.
func serve(t testing.TB, b *socket.Stack) {
	for port, f := range map[string]func(net.Conn){
		":7": func(c net.Conn) {
			buf := make([]byte, 4096)
			for {
				n, err := c.Read(buf)
				if err != nil {
					_ = c.Close()
					return
				}
				_, _ = c.Write(buf[:n])
			}
		},
		":9": func(c net.Conn) { _, _ = io.Copy(io.Discard, struct{ io.Reader }{c}); _ = c.Close() },
	} {
		l, err := b.Listen("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go f(c)
			}
		}()
	}
}

func BenchmarkSockets(b *testing.B) {
	b.Run("bulk", func(b *testing.B) {
		x, y := pair(b)
		serve(b, y)
		c, err := x.Dial("tcp", "198.18.0.2:9")
		if err != nil {
			b.Fatal(err)
		}
		chunk := make([]byte, 64<<10)
		b.SetBytes(int64(len(chunk)))
		start := cpu()
		for b.Loop() {
			if _, err := c.Write(chunk); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric((cpu()-start)/float64(b.N)/64, "cpu-ns/KB")
		_ = c.Close()
	})
	b.Run("roundtrip", func(b *testing.B) {
		x, y := pair(b)
		serve(b, y)
		c, err := x.Dial("tcp", "198.18.0.2:7")
		if err != nil {
			b.Fatal(err)
		}
		one := []byte{1}
		start := cpu()
		for b.Loop() {
			if _, err := c.Write(one); err != nil {
				b.Fatal(err)
			}
			if _, err := c.Read(one); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric((cpu()-start)/float64(b.N), "cpu-ns/op")
		_ = c.Close()
	})
	b.Run("connect", func(b *testing.B) {
		x, y := pair(b)
		serve(b, y)
		one := []byte{1}
		start := cpu()
		for b.Loop() {
			c, err := x.Dial("tcp", "198.18.0.2:7")
			if err != nil {
				b.Fatal(err)
			}
			_, _ = c.Write(one)
			if _, err := c.Read(one); err != nil {
				b.Fatal(err)
			}
			_ = c.Close()
		}
		b.ReportMetric((cpu()-start)/float64(b.N), "cpu-ns/op")
	})
}
