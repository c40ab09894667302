package socket

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
)

// dispatcher is a loop's handler that passes every packet to a host, as a dispatcher over several
// handlers does with those that are the host's.
type dispatcher struct {
	h       *host.Host
	handled int
}

func (d *dispatcher) Handle(now clock.Time, b *packet.Batch) {
	d.handled += len(b.D)
	d.h.Handle(now, b)
}

func (d *dispatcher) Tick(now clock.Time) clock.Time { return d.h.Tick(now) }

// TestAttachLeavesTheLoopsToTheirOwner attaches a Stack to a host of two dispatched loops that the test
// runs, talks over it and closes it. The loops go on, and another Stack talks over them.
func TestAttachLeavesTheLoopsToTheirOwner(t *testing.T) {
	const frames, loops = 2048, 2
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 2 * loops * frames})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	var near, far []stack.Config
	var pools []*ring.Pool
	var wires []*pmd.Memory
	for range loops {
		pa, _ := arena.Cut(frames)
		pb, _ := arena.Cut(frames)
		a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: pa, B: pb})
		if err != nil {
			t.Fatal(err)
		}
		wires = append(wires, a, b)
		pools = append(pools, pa, pb)
		near = append(near, stack.Config{Devices: []pmd.Driver{a}, Pool: pa, Engine: gpukern.NewCPU(gpukern.Config{})})
		far = append(far, stack.Config{Devices: []pmd.Driver{b}, Pool: pb, Engine: gpukern.NewCPU(gpukern.Config{})})
	}
	peer, err := New(Config{Loops: far, Addrs: []Address{{Prefix: netip.MustParsePrefix(addrB + "/24")}}})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	serveEcho(t, peer)

	own, err := stack.NewLoops(near...)
	if err != nil {
		t.Fatal(err)
	}
	group, err := host.New(host.Config{Loops: own, Dispatched: true})
	if err != nil {
		t.Fatal(err)
	}
	var handlers []*dispatcher
	for i, l := range own {
		d := &dispatcher{h: group.Hosts[i]}
		handlers = append(handlers, d)
		l.SetHandler(d)
	}
	if err := group.AddAddr(0, netip.MustParsePrefix(addrA+"/24"), ip.Static, true); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var runErr error
	go func() {
		defer close(ended)
		runErr = stack.ServeAll(ctx, own...)
	}()

	if err := group.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		released := 0
		s := Attach(group, AttachConfig{Done: ended, Release: func() error { released++; return nil }})
		talk(t, s)
		left, err := s.Dial("tcp", addrB+":7")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil || released != 1 {
			t.Errorf("%v; released %d times, want once", err, released)
		}
		if _, err := left.Read(make([]byte, 1)); err == nil {
			t.Error("a connection of a closed Stack reads")
		}
		select {
		case <-s.Done():
			t.Error("Close ended the loops of another owner")
		default:
		}
		if s.Loops() != nil {
			t.Error("an attached Stack has loops")
		}
	}
	stop()
	<-ended
	if err := errors.Join(runErr, stack.CloseAll(own...)); err != nil {
		t.Error(err)
	}
	for i, d := range handlers {
		if d.handled == 0 {
			t.Errorf("loop %d: its dispatcher got no packet", i)
		}
	}
	err = peer.Close()
	for _, w := range wires { // frames on the wire go back
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		t.Error(err)
	}
	for i, p := range pools {
		if p.Free() != frames {
			t.Errorf("pool %d: %d of %d frames are free", i, p.Free(), frames)
		}
	}
}

// serveEcho makes s return what arrives on port 7.
func serveEcho(t *testing.T, s *Stack) {
	t.Helper()
	l, err := s.Listen("tcp", ":7")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
}

// talk sends and receives over eight connections, so that both loops have some.
func talk(t *testing.T, s *Stack) {
	t.Helper()
	for range 8 {
		c, err := s.Dial("tcp", addrB+":7")
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write([]byte("ping")); err != nil {
			t.Error(err)
		}
		var got [4]byte
		if _, err := io.ReadFull(c, got[:]); err != nil || string(got[:]) != "ping" {
			t.Errorf("%q, %v", got, err)
		}
		_ = c.Close()
	}
}
