package shim

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// closesParts are the arguments of the program of testdata/closes.c.
var closesParts = []string{
	"datagram-again", "stream-again", "listener-again", "datagram-refused", "datagram-sent", "stream-refused", "datagram-duplicated", "stream-duplicated",
	"replaced-refused", "ranged-refused", "copy-refused", "forked-closes", "forked-ends", "datagram-ended", "stream-ended",
}

// TestCloseFreesPorts: when the last close(2) of a socket returns its port is free, as on the kernel's stack: a bind gets it, and a peer is
// refused.
func TestCloseFreesPorts(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "closes")
	for _, part := range closesParts {
		want := oracle(t, "closes", part)
		for _, mode := range oracleModes {
			t.Run(part+"/"+mode.name, func(t *testing.T) {
				t.Parallel()
				env := mode.begin(t, lib)
				if got := oracle(t, "closes", part, env...); !slices.Equal(got, want) {
					t.Errorf("%s\non the kernel's stack:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

// TestRelease: the reply to RELEASE comes when the port is free, and leaves alone what is open by a second descriptor.
func TestRelease(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	release := func(t *testing.T, cookie uint64) {
		t.Helper()
		if r := c.ask(request{op: opRelease, value: order.AppendUint64(nil, cookie)}); r.errno != 0 {
			t.Error(r.errno)
		}
	}
	taken := func(port uint16) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.bound[port]) > 0
	}
	for name, kind := range map[string]int{"stream": unix.SOCK_STREAM, "datagram": unix.SOCK_SEQPACKET} {
		t.Run(name, func(t *testing.T) {
			p := c.socket(kind, false)
			r := p.ask(request{op: opBind, addr: netip.MustParseAddrPort("0.0.0.0:0")}, p.fd)
			cookie, err := cookieOf(p.fd)
			if r.errno != 0 || err != nil {
				t.Fatal(r.errno, err)
			}
			port := r.local.Port()
			second, err := unix.Dup(p.fd)
			if err != nil {
				t.Fatal(err)
			}
			p.close()
			release(t, cookie)
			if !taken(port) {
				t.Fatal("the port of a socket that is open is free")
			}
			unix.Close(second)
			release(t, cookie)
			if taken(port) {
				t.Error("the port is not free")
			}
			release(t, cookie)
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.leaving) > 0 {
				t.Error("it is known still")
			}
		})
	}
	if r := c.ask(request{op: opRelease, value: []byte{1}}); r.errno != syscall.EINVAL {
		t.Error(r.errno)
	}
}

// TestReleaseOfAConnection: bytes that are on their way when the program closes its bound socket arrive.
func TestReleaseOfAConnection(t *testing.T) {
	b := newBed(t, nil)
	got := make(chan string, 1)
	at := b.serve(t, func(c net.Conn) {
		all, _ := io.ReadAll(c)
		got <- string(all)
	})
	c := b.dial(t)
	p := c.socket(unix.SOCK_STREAM, false)
	if r := p.ask(request{op: opBind, addr: netip.MustParseAddrPort(nodeAddr + ":0")}, p.fd); r.errno != 0 {
		t.Fatal(r.errno)
	}
	if err := p.connect(net.JoinHostPort(at[0], at[1])); err != nil {
		t.Fatal(err)
	}
	cookie, _ := cookieOf(p.fd)
	sent := strings.Repeat("x", 100_000)
	if err := p.write([]byte(sent)); err != nil {
		t.Fatal(err)
	}
	p.close()
	if r := c.ask(request{op: opRelease, value: order.AppendUint64(nil, cookie)}); r.errno != 0 {
		t.Fatal(r.errno)
	}
	select {
	case all := <-got:
		if all != sent {
			t.Errorf("%d bytes of %d", len(all), len(sent))
		}
	case <-time.After(limit):
		t.Fatal("the peer waits")
	}
}
