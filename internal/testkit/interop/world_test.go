package interop

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

const (
	addrA, addrA6 = "198.18.0.1", "2001:db8::a"
	addrB, addrB6 = "198.18.0.2", "2001:db8::b"

	framesPerHost = 4096 // of each loop
)

// world is two hosts of this process, joined by a wire in memory for each loop, in real time.
type world struct {
	t     testing.TB
	a, b  *socket.Stack
	arena *ring.Arena
	pools []*ring.Pool
	wires []pmd.Driver
}

func newWorld(t testing.TB, loops int) *world { return newImpairedWorld(t, loops, pmd.Profile{}) }

// newImpairedWorld has the profile on what a sends and receives.
func newImpairedWorld(t testing.TB, loops int, profile pmd.Profile) *world {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 2 * loops * framesPerHost, FrameSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	x := &world{t: t, arena: arena}
	var a, b []stack.Config
	for range loops {
		pa, pb := x.pool(), x.pool()
		ma, mb, err := pmd.NewMemory(pmd.MemoryConfig{A: pa, B: pb})
		if err != nil {
			t.Fatal(err)
		}
		da := pmd.Driver(ma)
		if profile != (pmd.Profile{}) {
			if da, err = pmd.NewImpair(ma, pmd.ImpairConfig{Profile: profile, Pool: pa}); err != nil {
				t.Fatal(err)
			}
		}
		x.wires = append(x.wires, da, mb)
		a, b = append(a, loopConfig(da, pa)), append(b, loopConfig(mb, pb))
	}
	x.a, x.b = x.stack(a, addrA, addrA6), x.stack(b, addrB, addrB6)
	t.Cleanup(x.close)
	return x
}

func (x *world) pool() *ring.Pool {
	x.t.Helper()
	p, err := x.arena.Cut(framesPerHost)
	if err != nil {
		x.t.Fatal(err)
	}
	x.pools = append(x.pools, p)
	return p
}

func loopConfig(d pmd.Driver, p *ring.Pool) stack.Config {
	return stack.Config{Devices: []pmd.Driver{d}, Pool: p, Engine: gpukern.NewCPU(gpukern.Config{})}
}

func (x *world) stack(loops []stack.Config, v4, v6 string) *socket.Stack {
	x.t.Helper()
	s, err := socket.New(socket.Config{
		Loops: loops,
		Addrs: []socket.Address{{Prefix: netip.MustParsePrefix(v4 + "/24")}, {Prefix: netip.MustParsePrefix(v6 + "/64")}},
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

// close ends both hosts and checks that every frame is back in its pool.
func (x *world) close() {
	err := errors.Join(x.a.Close(), x.b.Close())
	for _, w := range x.wires {
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		x.t.Error(err)
	}
	for i, p := range x.pools {
		if p.Free() != framesPerHost {
			x.t.Errorf("pool %d: %d of %d frames are free", i, p.Free(), framesPerHost)
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

// certificate returns a TLS configuration of a server named "b", and one of clients that trust it.
func certificate(t *testing.T, protos ...string) (server, client *tls.Config) {
	t.Helper()
	cert, roots := testcert.SelfSigned("b")
	return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protos}, &tls.Config{RootCAs: roots, ServerName: "b", NextProtos: protos}
}
