package shim

import (
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Tests that one user's sockets do not make the requests of others long. They count the sockets that requests look at; what the
// tables of UDP and TCP do is bounded by their own tests.

// manySockets is more than any request may look at.
const manySockets = 5 * mostLooked

// mostTries is how often a bind is tried again until closeTime is over, at most: 0.2 + 0.4 + ... ms.
const mostTries = 11

// TestBindBesideManySockets closes as many sockets of a port, those first that were opened first, with a bind(2) of others between.
func TestBindBesideManySockets(t *testing.T) {
	for _, kind := range []int{unix.SOCK_SEQPACKET, unix.SOCK_STREAM} {
		for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
			b := newBed(t, nil)
			c, other := b.dial(t), b.dial(t)
			at := netip.MustParseAddrPort(nodeAddr + ":7005")
			var all []*program
			for range manySockets {
				p := c.socket(kind, false)
				if err := p.setInt(unix.SOL_SOCKET, option, 1); err != nil {
					t.Fatal(err)
				}
				if r := p.ask(request{op: opBind, addr: at}, p.fd); r.errno != 0 {
					t.Fatal(r.errno)
				}
				all = append(all, p)
			}
			bind := func() syscall.Errno {
				before := b.stats.looked.Load()
				p := other.socket(kind, false)
				defer p.close()
				r := p.ask(request{op: opBind, addr: at}, p.fd)
				if n := b.stats.looked.Load() - before; n > mostTries*mostLooked {
					t.Errorf("a bind looks at %d sockets", n)
				}
				return r.errno
			}
			for i, p := range all {
				if i%mostLooked == 0 {
					if errno := bind(); errno != syscall.EADDRINUSE {
						t.Errorf("%d are closed: %v", i, errno)
					}
				}
				p.close()
			}
			until(t, "the port is free", func() bool { return bind() == 0 })
		}
	}
}

// TestConnectToManyListeners connects to a port with as many listeners, of which some are closed.
func TestConnectToManyListeners(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	at := nodeAddr + ":7006"
	for i := range manySockets {
		p := c.socket(unix.SOCK_STREAM, false)
		if err := p.setInt(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := p.listen(at, 5); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			p.close()
		}
	}
	before := b.stats.looked.Load()
	p := b.dial(t).socket(unix.SOCK_STREAM, false)
	if err := p.connect(at); err != nil && err != syscall.ECONNREFUSED && err != syscall.ECONNRESET {
		t.Error(err)
	}
	if n := b.stats.looked.Load() - before; n == 0 || n > mostLooked {
		t.Errorf("connect looks at %d sockets", n)
	}
}
