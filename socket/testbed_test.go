package socket

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
)

// Two stacks of this process, a and b, with a memory link for each loop, in real time.
const (
	addrA  = "198.18.0.1"
	addrB  = "198.18.0.2"
	addrA6 = "2001:db8::a"
	addrB6 = "2001:db8::b"
)

// testbed is the two stacks. Its cleanup checks that all frames are back in their pools.
type testbed struct {
	t      testing.TB
	a, b   *Stack
	arena  *ring.Arena
	pools  []*ring.Pool
	wires  []*pmd.Memory
	frames int
}

// testbedConfig has the parameters of a testbed.
type testbedConfig struct {
	loops   int
	mtu     int
	frames  int // of each loop
	backlog int
	tcp     tcp.Config
	udp     udp.Config

	keepAlive time.Duration
}

func newTestbed(t testing.TB, w testbedConfig) *testbed {
	t.Helper()
	if w.loops == 0 {
		w.loops = 1
	}
	if w.frames == 0 {
		w.frames = 4096
	}
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 2 * w.loops * w.frames, FrameSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	x := &testbed{t: t, arena: arena, frames: w.frames}
	for range 2 * w.loops {
		p, err := arena.Cut(w.frames)
		if err != nil {
			t.Fatal(err)
		}
		x.pools = append(x.pools, p)
	}
	var ca, cb []stack.Config
	for i := range w.loops {
		pa, pb := x.pools[2*i], x.pools[2*i+1]
		ma, mb, err := pmd.NewMemory(pmd.MemoryConfig{A: pa, B: pb, MTU: w.mtu})
		if err != nil {
			t.Fatal(err)
		}
		x.wires = append(x.wires, ma, mb)
		ca = append(ca, loopConfig(ma, pa))
		cb = append(cb, loopConfig(mb, pb))
	}
	x.a = x.stack(w, ca, addrA, addrA6)
	x.b = x.stack(w, cb, addrB, addrB6)
	t.Cleanup(x.close)
	return x
}

func loopConfig(d pmd.Driver, p *ring.Pool) stack.Config {
	return stack.Config{Devices: []pmd.Driver{d}, Pool: p, Engine: gpukern.NewCPU(gpukern.Config{})}
}

func (x *testbed) stack(w testbedConfig, loops []stack.Config, v4, v6 string) *Stack {
	x.t.Helper()
	s, err := New(Config{
		Loops: loops, Host: host.Config{TCP: w.tcp, UDP: w.udp},
		Addrs: []Address{
			{Prefix: netip.MustParsePrefix(v4 + "/24")},
			{Prefix: netip.MustParsePrefix(v6 + "/64")},
		},
		Backlog:   w.backlog,
		KeepAlive: w.keepAlive,
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

// close closes both stacks and counts the free frames.
func (x *testbed) close() {
	err := errors.Join(x.a.Close(), x.b.Close())
	for _, w := range x.wires {
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		x.t.Error(err)
	}
	for i, p := range x.pools {
		if p.Free() != x.frames {
			x.t.Errorf("pool %d: %d of %d frames are free", i, p.Free(), x.frames)
		}
	}
	if err := x.arena.Close(); err != nil {
		x.t.Error(err)
	}
}

// within fails the test if f takes longer than d.
func within(t testing.TB, d time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(d):
		buf := make([]byte, 1<<20)
		t.Fatalf("%s takes longer than %v\n%s", what, d, buf[:runtime.Stack(buf, true)])
	}
}

// eventually waits until f holds.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if f() {
			return
		}
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// checkOpError checks that err is a *net.OpError of the operation name and wraps target.
func checkOpError(t *testing.T, err error, name string, target error) {
	t.Helper()
	var e *net.OpError
	if !errors.As(err, &e) || e.Op != name || !errors.Is(err, target) {
		t.Errorf("%#v (%v), want a net.OpError of %s that is %v", err, err, name, target)
	}
}

// usage returns the sockets and the bytes of buffers of both stacks.
func (x *testbed) usage() (conns, memory int) {
	for _, s := range []*Stack{x.a, x.b} {
		_ = s.group.Each(func(_ clock.Time, h *host.Host) error {
			st, u := h.TCP.Stats(), h.UDP.Stats()
			conns += st.Conns + st.HalfOpen + u.Sockets
			memory += int(st.Memory) + int(u.Memory)
			return nil
		})
	}
	return conns, memory
}

// checkEmpty waits until no socket and no buffer is left.
func (x *testbed) checkEmpty(t *testing.T) {
	t.Helper()
	eventually(t, "connections or memory are left", func() bool {
		conns, memory := x.usage()
		return conns == 0 && memory == 0
	})
}

// pair returns the two ends of a connection from a to b.
func (x *testbed) pair(t testing.TB) (client, server *TCPConn) {
	t.Helper()
	l, err := x.b.Listen("tcp", net.JoinHostPort(addrB, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := x.a.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*TCPConn), s.(*TCPConn)
}
