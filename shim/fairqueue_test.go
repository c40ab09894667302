package shim

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// another makes a user beside that of the process, and returns a token for its channels.
func (b *bed) another(uid uint32) (*user, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := &user{uid: uid}
	b.users[uid] = u
	return u, b.tokenOf(uid)
}

// as opens a channel of another user.
func (b *bed) as(t testing.TB, token string) *client {
	t.Helper()
	c := &client{t: t, fd: rawSocket(t, unix.SOCK_SEQPACKET)}
	if err := unix.Connect(c.fd, &unix.SockaddrUnix{Name: b.cfg.Path}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(c.fd) })
	if r := c.ask(request{op: opHello, arg: requestSize, value: append([]byte("test\x00"), token...)}, -1); r.errno != 0 {
		t.Fatal(r.errno)
	}
	return c
}

// flood keeps requests waiting in a channel, and counts the replies, until stop.
func (c *client) flood(q request, fd int, stop *atomic.Bool, done *atomic.Uint64, work *sync.WaitGroup) {
	var out [requestSize]byte
	q.encode(out[:])
	work.Go(func() {
		for waiting := uint64(0); !stop.Load(); {
			// What does not read its replies is closed.
			if waiting > 20 || unix.Sendmsg(c.fd, out[:], unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT) != nil {
				time.Sleep(100 * time.Microsecond)
			} else {
				waiting++
			}
			n := c.replies()
			waiting -= n
			done.Add(n)
		}
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	})
}

// replies reads the replies that have come.
func (c *client) replies() (n uint64) {
	var in [replySize + 1]byte
	for {
		if m, _, err := unix.Recvfrom(c.fd, in[:], unix.MSG_DONTWAIT); err != nil || m == 0 {
			return n
		}
		n++
	}
}

// TestFloodOfRequests: the requests of one user, on however many channels, do not keep those of another waiting. Both have
// requests waiting at all times, so that the counts do not depend on how fast the machine is.
func TestFloodOfRequests(t *testing.T) {
	const channels, wanted = 128, 400
	for name, q := range map[string]request{
		"loop":      {op: opNames},
		"goroutine": {op: opBind, addr: netip.MustParseAddrPort("192.0.2.99:5000")}, // EADDRNOTAVAIL
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, nil)
			_, hostile := b.another(70001)
			_, fair := b.another(70002)
			var stop atomic.Bool
			var work sync.WaitGroup
			var floods, served atomic.Uint64
			defer work.Wait()
			defer stop.Store(true)
			for range channels {
				c := b.as(t, hostile)
				c.flood(q, c.socket(unix.SOCK_STREAM, false).fd, &stop, &floods, &work)
			}
			until(t, "the flood flows", func() bool { return floods.Load() > 2*channels })
			c := b.as(t, fair)
			p := c.socket(unix.SOCK_STREAM, false)
			c.flood(request{op: opNames}, p.fd, &stop, &served, &work)
			least := math.Inf(1)
			for range 5 { // other processes may keep the user's thread from the CPU for a while
				flood, own := floods.Load(), served.Load()
				until(t, "the other user's requests are done", func() bool { return served.Load() >= own+wanted/5 })
				least = min(least, float64(floods.Load()-flood)/float64(served.Load()-own))
			}
			if t.Logf("%.1f requests of the flood for each of the other user", least); least > channels/4 {
				t.Error("the flood keeps the other user waiting")
			}
			if name == "loop" && b.Stats().Waited == 0 {
				t.Error("no request has waited")
			}
		})
	}
}

// TestRequestsOfOneUserAreServedFairly: of one user's channels none waits for ever behind those that flood.
func TestRequestsOfOneUserAreServedFairly(t *testing.T) {
	b := newBed(t, nil)
	var stop atomic.Bool
	var work sync.WaitGroup
	var floods atomic.Uint64
	defer work.Wait()
	defer stop.Store(true)
	for range 100 {
		c := b.dial(t)
		c.flood(request{op: opNames}, c.socket(unix.SOCK_STREAM, false).fd, &stop, &floods, &work)
	}
	c := b.dial(t)
	p := c.socket(unix.SOCK_STREAM, false)
	for range 50 {
		if r := c.ask(request{op: opNames}, p.fd); r.errno != 0 {
			t.Fatal(r.errno)
		}
	}
	leaving := b.dial(t) // a process that ends while its request waits
	var out [requestSize]byte
	q := request{op: opNames, id: 1}
	q.encode(out[:])
	if err := unix.Sendmsg(leaving.fd, out[:], unix.UnixRights(p.fd), nil, 0); err != nil {
		t.Fatal(err)
	}
	_ = unix.Shutdown(leaving.fd, unix.SHUT_RDWR)
	until(t, "its channel is gone", func() bool { return b.Stats().Channels == 101 })
	if err := p.setInt(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil && err != syscall.EINVAL {
		t.Error(err)
	}
}
