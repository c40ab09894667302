package cuda

import (
	gocontext "context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// judge is a handler that compares what the engine found in live packets with what the CPU finds in
// them, before a bridge sends them on.
type judge struct {
	stack.Bridge
	oracle *gpukern.CPU
	ref    packet.Batch
	done   [1]*packet.Batch

	place   func([]packet.Desc) Ptr
	packets int
	routed  int
	copied  int // batches whose descriptors the engine copied
	wrong   []packet.Desc
}

func (j *judge) Handle(now clock.Time, b *packet.Batch) {
	j.ref = packet.Batch{Arena: b.Arena, D: append(j.ref.D[:0], b.D...)}
	_ = j.oracle.Submit(&j.ref)
	j.oracle.Poll(j.done[:])
	for i := range b.D {
		if b.D[i] != j.ref.D[i] && len(j.wrong) < 4 {
			j.wrong = append(j.wrong, b.D[i], j.ref.D[i])
		}
		if b.D[i].NextHop != 0 {
			j.routed++
		}
	}
	if j.place(b.D) == 0 {
		j.copied++
	}
	j.packets += len(b.D)
	j.Bridge.Handle(now, b)
}

// TestLivePackets has a bump in the wire between two kernels that speak TCP. AF_XDP fills the arena that the
// device has registered, the persistent kernel classifies each packet there, and the loop sends it on:
//
//	client eth0 198.18.0.1 -- a [middle: AF_XDP, loop, engine] b -- eth0 198.18.0.2 server
func TestLivePackets(t *testing.T) { onBoth(t, testLivePackets) }

func testLivePackets(t *testing.T, on opener) {
	n := testnet.For(t, "mr-kern-live")
	client, middle, server := n.Namespace("client"), n.Namespace("middle"), n.Namespace("server")
	for _, err := range []error{
		n.Link(client, "eth0", middle, "a"), n.Link(server, "eth0", middle, "b"),
		client.Up("eth0", "198.18.0.1/24"), server.Up("eth0", "198.18.0.2/24"), middle.Up("a"), middle.Up("b"),
		client.NoOffload("eth0"), server.NoOffload("eth0"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dev, drv := on(t)
	size, cfg := int64(256<<10), Config{Slots: 2, threads: 32}
	if drv == nil {
		size, cfg = 256<<20, Config{}
	}
	cfg.Config = gpukern.Config{Tables: someTables(t, 1)}
	var arena *ring.Arena
	var pools []*ring.Pool
	var ends [2]*device.Device
	if err := middle.Do(func() (err error) {
		if arena, pools, err = device.NewArena(1, device.Config{Name: "a"}, device.Config{Name: "b"}); err != nil {
			return err
		}
		for i, name := range []string{"a", "b"} {
			if ends[i], err = device.Open(device.Config{Name: name, Driver: device.AFXDP, Pools: pools, All: true}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	cfg.Arena = arena.View()
	e, err := NewEngine(dev, cfg)
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{oracle: gpukern.NewCPU(cfg.Config), place: e.shared.place}
	loop, err := stack.NewLoop(stack.Config{
		Devices: []pmd.Driver{ends[0].Queues[0], ends[1].Queues[0]}, Pool: pools[0], Engine: e, Handler: j,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := gocontext.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	transfer(t, client, server, size)
	stop()
	for _, err := range []error{<-ended, e.Close(), loop.Close(), ends[0].Close(), ends[1].Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	s := loop.Stats()
	t.Logf("%d packets, %d of them routed; %+v", j.packets, j.routed, e.Info())
	if f := e.Info().Fault; f != "" || len(j.wrong) > 0 {
		t.Errorf("fault %q; found, and what the CPU finds:\n%+v", f, j.wrong)
	}
	if j.copied != 0 || j.routed < int(size/1500) || s.Received < uint64(size/1500) || s.Received != uint64(j.packets) {
		t.Errorf("%d packets received, %d judged, %d routed, %d batches copied", s.Received, j.packets, j.routed, j.copied)
	}
}

// transfer sends n bytes by TCP from one namespace to another and compares hashes.
func transfer(t *testing.T, from, to *testnet.Namespace, n int64) {
	t.Helper()
	var l net.Listener
	if err := to.Do(func() (err error) {
		l, err = net.Listen("tcp", "198.18.0.2:5001")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan []byte, 1)
	go func() {
		h := sha256.New()
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(h, c)
			c.Close()
		}
		got <- h.Sum(nil)
	}()
	h := sha256.New()
	start := time.Now()
	if err := from.Do(func() error {
		c, err := net.DialTimeout("tcp", "198.18.0.2:5001", 20*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = io.CopyN(io.MultiWriter(h, c), rand.NewChaCha8([32]byte{1}), n)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case sum := <-got:
		if !slices.Equal(sum, h.Sum(nil)) {
			t.Errorf("%d bytes came changed", n)
		}
		t.Logf("%d bytes in %v", n, time.Since(start))
	case <-time.After(2 * time.Minute):
		t.Fatal("the bytes do not arrive")
	}
}
