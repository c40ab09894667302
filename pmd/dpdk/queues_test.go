package dpdk_test

import (
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/dpdk"
	"github.com/millrace/millrace/ring"
)

// reflect sends each datagram back on the queue that it came on.
func reflect(q *dpdk.Queue, arena *ring.Arena, pool *ring.Pool, stop *atomic.Bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b, now := packet.NewBatch(arena.View(), 64), clock.Time(1)
	for !stop.Load() {
		now = now.Add(100 * time.Microsecond)
		if n, err := q.Rx(now, b); err != nil {
			return err
		} else if n == 0 {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		kept := b.D[:0]
		for i := range b.D {
			p := b.Bytes(i)
			if len(p) < 42 || p[12] != 8 || p[13] != 0 || p[23] != 17 {
				pool.Put(b.D[i].Off) // ARP, IPv6
				continue
			}
			swap(p[:6], p[6:12])
			swap(p[26:30], p[30:34])
			swap(p[34:36], p[36:38]) // the checksums stay right: they are sums
			kept = append(kept, b.D[i])
		}
		b.D = kept
		n, err := q.Tx(now, b)
		if err != nil {
			return err
		}
		b.Consume(n)
		pool.PutBatch(b)
	}
	return nil
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

// TestTwoQueuesOverTwoThreads has Linux send flows to a TAP device with two queues, which two threads poll: all are answered, both
// queues get some, and Linux keeps a flow on the queue that answers it.
func TestTwoQueuesOverTwoThreads(t *testing.T) {
	need(t)
	ns := testnet.For(t, "mr-dpdk-queues").Namespace("box")
	arena, pools := memory(t, 2, 1024, 2048)
	var d *dpdk.Device
	err := ns.Do(func() (err error) {
		d, err = dpdk.Open(dpdk.Config{Name: "net_tap0,iface=mrq0", Pools: pools})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	done := make(chan error, 2)
	for i, q := range d.Queues {
		go func() { done <- reflect(q, arena, pools[i], &stop) }()
	}
	t.Cleanup(func() {
		stop.Store(true)
		if err := errors.Join(<-done, <-done, d.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := ns.Up("mrq0", "198.18.0.1/24"); err != nil {
		t.Fatal(err)
	}
	if _, err := ns.Run("ip", "neigh", "replace", "198.18.0.9", "lladdr", "02:00:00:00:00:09", "dev", "mrq0", "nud", "permanent"); err != nil {
		t.Fatal(err)
	}
	rx := func() (n [2]uint64) {
		for i, q := range d.Queues {
			n[i] = q.Info().Stats.RxPackets
		}
		return n
	}
	const flows, rounds = 32, 20
	err = ns.Do(func() error {
		for range flows {
			c, err := net.Dial("udp4", "198.18.0.9:7")
			if err != nil {
				return err
			}
			defer c.Close()
			var before [2]uint64
			for round := range rounds {
				if round == 2 { // Linux knows by now which queue answers
					before = rx()
				}
				if err := echo(c); err != nil {
					return err
				}
			}
			after := rx()
			if after[0] > before[0]+2 && after[1] > before[1]+2 { // IPv6 may send on its own
				t.Errorf("a flow came on both queues: %v to %v", before, after)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := rx(); n[0] < rounds || n[1] < rounds || n[0]+n[1] < flows*rounds {
		t.Errorf("the queues have %v packets", n)
	}
}

// echo sends a datagram and waits for it, several times: a slow machine may lose one.
func echo(c net.Conn) (err error) {
	buf := make([]byte, 64)
	for range 5 {
		if _, err = c.Write([]byte("echo")); err != nil {
			return err
		}
		if err = c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		if n, err := c.Read(buf); err == nil && string(buf[:n]) == "echo" {
			return nil
		}
	}
	return errors.Join(errors.New("no answer"), err)
}

// TestDeviceIsRemovedUnderTraffic deletes the interface of a device that receives and sends: the queues return ErrGone, another
// device goes on, and the frames return.
func TestDeviceIsRemovedUnderTraffic(t *testing.T) {
	need(t)
	ns := testnet.For(t, "mr-dpdk-removed").Namespace("box")
	arena, pools := memory(t, 2, 4096, 4096)
	other := open(t, dpdk.Config{Name: "net_null0", Pools: pools[1:]}).Queues[0]
	var d *dpdk.Device
	if _, err := ns.Run("ip", "link", "add", "va", "type", "veth", "peer", "name", "vb"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ns.Up("va"), ns.Up("vb")); err != nil {
		t.Fatal(err)
	}
	err := ns.Do(func() (err error) {
		d, err = dpdk.Open(dpdk.Config{Name: "net_af_xdp0,iface=va", Pools: pools[:1]})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	q, b, now := d.Queues[0], packet.NewBatch(arena.View(), 64), clock.Time(1)
	step := func() error {
		now = now.Add(time.Millisecond)
		for range 8 {
			off, ok := pools[0].Get()
			if !ok {
				break
			}
			b.Append(packet.Desc{Off: off + 256, Len: 60})
		}
		n, err := q.Tx(now, b)
		b.Consume(n)
		pools[0].PutBatch(b)
		if err != nil {
			return err
		}
		_, err = q.Rx(now, b)
		pools[0].PutBatch(b)
		return err
	}
	for range 100 {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ns.Run("ip", "link", "del", "dev", "va"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if err = step(); err != nil || time.Now().After(end) {
			break
		}
	}
	var op *pmd.OpError
	if !errors.Is(err, pmd.ErrGone) || !errors.As(err, &op) || op.Device != "net_af_xdp0,iface=va" {
		t.Errorf("%v", err)
	}
	if n, err := other.Rx(1, b); n == 0 || err != nil {
		t.Errorf("the other device: %d, %v", n, err)
	}
	pools[1].PutBatch(b)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// runningLoop uses a pool all the time, as the loop of another device does, and runs functions between two uses. A pool has no lock:
// only the race detector, or lost frames, show that another goroutine uses it.
type runningLoop struct {
	pool     *ring.Pool
	commands chan func()
	uses     int // of the pool by commands
}

func (l *runningLoop) run() {
	for f := range l.commands {
		before := l.pool.Free()
		f()
		if l.pool.Free() != before {
			l.uses++
		}
		for range 100 {
			if off, ok := l.pool.Get(); ok {
				l.pool.Put(off)
			}
		}
	}
}

// do is Config.OnLoop.
func (l *runningLoop) do(_ int, f func()) bool {
	done := make(chan struct{})
	l.commands <- func() { f(); close(done) }
	<-done
	return true
}

// TestOpenBesideARunningLoop opens a device, or fails to, while its pool belongs to a loop that runs: Open touches the pool in the
// loop alone.
func TestOpenBesideARunningLoop(t *testing.T) {
	need(t)
	_, pools := memory(t, 1, 512, 2048)
	l := &runningLoop{pool: pools[0], commands: make(chan func())}
	ended := make(chan struct{})
	go func() { l.run(); close(ended) }()
	defer func() { close(l.commands); <-ended }()
	inLoop := 0
	cfg := dpdk.Config{Name: "net_null0", Pools: pools, OnLoop: func(i int, f func()) bool {
		inLoop++
		return l.do(i, f)
	}}
	d, err := dpdk.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if l.uses == 0 || inLoop < 2 {
		t.Errorf("%d functions for the loop, %d used its pool", inLoop, l.uses)
	}
	taken := pools[0].Size()
	l.do(0, func() { taken -= pools[0].Free() })
	if taken == 0 {
		t.Error("the device has no frames")
	}
	uses := l.uses
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if l.do(0, func() {}); l.uses == uses {
		t.Error("Close returns the frames, and not in the loop")
	}
	cfg.Name, cfg.MTU = "net_null1", 9000 // too long for the frames
	if _, err := dpdk.Open(cfg); !errors.Is(err, dpdk.ErrFrames) {
		t.Error(err)
	}
	// Loops that have ended do nothing more: the caller has the pools again.
	cfg.Name, cfg.MTU, cfg.OnLoop = "net_null2", 0, func(int, func()) bool { return false }
	if _, err := dpdk.Open(cfg); !errors.Is(err, pmd.ErrClosed) {
		t.Error(err)
	}
}

// TestFramesFreedByAnotherThreadReturn sends packets to a queue that another thread polls. It copies them and frees the sender's
// frames, which must all return: many more packets pass than there are frames.
func TestFramesFreedByAnotherThreadReturn(t *testing.T) {
	need(t)
	arena, pools := memory(t, 2, 256, 2048)
	near, far, err := dpdk.RingWire(64, dpdk.Config{Pools: pools[:1]}, dpdk.Config{Pools: pools[1:]})
	if err != nil {
		t.Fatal(err)
	}
	const packets = 20_000
	received := make(chan error, 1)
	var stop atomic.Bool
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		b, n := packet.NewBatch(arena.View(), 64), 0
		for n < packets && !stop.Load() {
			got, err := far.Queues[0].Rx(1, b)
			if err != nil {
				received <- err
				return
			}
			n += got
			pools[1].PutBatch(b)
			if got == 0 {
				runtime.Gosched()
			}
		}
		received <- nil
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	q, b := near.Queues[0], packet.NewBatch(arena.View(), 32)
	in := packet.NewBatch(arena.View(), 32)
	sent, end := 0, time.Now().Add(30*time.Second)
	for sent < packets && time.Now().Before(end) {
		for b.Room() > 0 {
			off, ok := pools[0].Get()
			if !ok {
				break
			}
			b.Append(packet.Desc{Off: off, Len: 60})
		}
		n, err := q.Tx(1, b)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		b.Consume(n)
		if _, err := q.Rx(1, in); err != nil { // which takes in what others have freed
			t.Fatal(err)
		}
	}
	pools[0].PutBatch(b)
	if sent < packets {
		t.Errorf("%d of %d packets are sent, and then no frame is left", sent, packets)
		stop.Store(true)
	}
	if err := errors.Join(<-received, near.Close(), far.Close()); err != nil {
		t.Error(err)
	}
}
