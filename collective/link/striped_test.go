package link

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// limited is a connection that fails after a number of bytes were written, in the middle of a fragment.
type limited struct {
	net.Conn
	left atomic.Int64
}

func (c *limited) Write(p []byte) (int, error) {
	if c.left.Add(-int64(len(p))) < 0 {
		_, _ = c.Conn.Write(p[:len(p)/2])
		_ = c.Conn.Close()
		return len(p) / 2, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// stripes returns both ends of a link of n rails. Rail i fails after limits[i] bytes of the first end.
func stripes(t testing.TB, n int, limits ...int64) (a, b *Striped) {
	t.Helper()
	var as, bs []net.Conn
	for i := range n {
		x, y := tcp(t)
		if i < len(limits) {
			l := &limited{Conn: x}
			l.left.Store(limits[i])
			x = l
		}
		as, bs = append(as, x), append(bs, y)
	}
	return NewStriped(as), NewStriped(bs)
}

func TestStripedMessagesArriveWhole(t *testing.T) {
	for rails := 1; rails <= 4; rails++ {
		a, b := stripes(t, rails)
		exchange(t, a, b, []int{0, 1, 8, inline, inline + 1, fragment, fragment + 5, 1 << 20, 3, 10})
		a.Flush(time.Hour) // a wake-up that is lost shows
		if a.pending() {
			t.Error("something is pending after Flush")
		}
		a.Close(errors.New("closed"))
		b.Close(errors.New("closed"))
	}
}

// counted sums bytes, so that a fragment that is stored twice, or half, is seen.
type counted struct {
	mu sync.Mutex
	b  []byte
	n  int
}

func (*counted) Direct(int, int) []byte { return nil }

func (c *counted) Store(off int, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, v := range b {
		c.b[off+i] += v
	}
	c.n += len(b)
}

// TestARailFailsInTheMiddle breaks rails at many places: every fragment is reduced once.
func TestARailFailsInTheMiddle(t *testing.T) {
	const size = 700_077
	failed := 0
	for i := range 12 {
		a, b := stripes(t, 3, int64(i*20_001), int64(i*9_013))
		var p Pending
		want := pattern(size, i)
		for k := range uint32(2) {
			a.Send(header(k, size), [][]byte{want[:1000], want[1000:]}, &p)
			a.Send(header(100+k, 5), [][]byte{want[:5]}, &p)
		}
		for k := range uint32(2) {
			c := &counted{b: make([]byte, size)}
			if err := b.Recv(header(k, size), c); err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			if c.n != size || !bytes.Equal(c.b, want) {
				t.Fatalf("%d: %d bytes were stored of %d, or others", i, c.n, size)
			}
			small := &counted{b: make([]byte, 5)}
			if err := b.Recv(header(100+k, 5), small); err != nil || small.n != 5 {
				t.Fatalf("%d: %d bytes, %v", i, small.n, err)
			}
		}
		if err := p.Wait(); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		failed += 3 - a.Alive()
		a.Close(net.ErrClosed)
		b.Close(net.ErrClosed)
	}
	if failed < 4 {
		t.Errorf("only %d rails have failed", failed)
	}
}

func TestAllRailsFail(t *testing.T) {
	a, b := stripes(t, 2, 100_000, 300_000)
	var p Pending
	a.Send(header(0, 1<<20), [][]byte{make([]byte, 1<<20)}, &p)
	if err := b.Recv(header(0, 1<<20), &memory{b: make([]byte, 1<<20)}); !errors.Is(err, ErrNoRail) {
		t.Error(err)
	}
	if err := p.Wait(); !errors.Is(err, ErrNoRail) {
		t.Error(err)
	}
	a.Send(header(1, 1), [][]byte{{1}}, &p)
	if err := p.Wait(); !errors.Is(err, ErrNoRail) {
		t.Error(err)
	}
	a.Send(header(1, 1<<20), [][]byte{make([]byte, 1<<20)}, &p)
	if err := p.Wait(); !errors.Is(err, ErrNoRail) {
		t.Error(err)
	}
}

func TestStripedLinksFindOtherCalls(t *testing.T) {
	a, b := stripes(t, 2)
	var p Pending
	a.Send(header(0, 1), [][]byte{{1}}, &p)
	want := header(0, 1)
	want.Fingerprint++
	if err := b.Recv(want, &memory{}); !errors.Is(err, ErrMismatch) {
		t.Error(err)
	}
	x, y := tcp(t)
	l := NewStriped([]net.Conn{x})
	_, _ = y.Write(make([]byte, HeaderSize))
	if err := l.Recv(header(0, 1), &memory{}); !errors.Is(err, ErrHeader) {
		t.Error(err)
	}
}
