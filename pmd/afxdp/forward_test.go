package afxdp

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// TestTwoDevicesForwardOnOnePool is a bump in the wire between two kernels that exchange TCP:
//
//	peer eth0 198.18.0.2 ---- xdp0 (host) xdp1 ---- eth1 198.18.0.3 far
func TestTwoDevicesForwardOnOnePool(t *testing.T) {
	for _, mode := range []Mode{ModeNative, ModeGeneric} {
		w := newNetwork(t, 1, 1500)
		far := w.Namespace("far")
		must(t, w.Link(far, "eth1", w.host, "xdp1"))
		must(t, far.Up("eth1", "198.18.0.3/24"))
		must(t, w.host.Up("xdp1"))
		must(t, w.peer.Do(func() error { return TxChecksumOff(peerDev) }))
		must(t, far.Do(func() error { return TxChecksumOff("eth1") }))

		pool := cut(t, newArena(t, 2048, 2048), 0)
		a := w.open(t, Config{All: true, Mode: mode, Pools: []*ring.Pool{pool}})
		b := &rig{arena: a.arena, pools: a.pools}
		must(t, w.host.Do(func() (err error) {
			b.Device, err = Open(Config{Interface: "xdp1", All: true, Mode: mode, Pools: a.pools})
			return err
		}))
		stop, stopped := make(chan bool), make(chan error, 1)
		go func() { stopped <- bump(a.Queues[0], b.Queues[0], pool, stop) }()
		w.transfer(t, far, "198.18.0.3:5001", 16<<20)
		close(stop)
		must(t, <-stopped)
		if err := ring.Audit(a.arena, pool, a.Queues[0], b.Queues[0]); err != nil {
			t.Error(err)
		}
		must(t, b.Close()) // and a's Close finds the pool whole again
	}
}

// transfer sends n bytes by TCP from the peer to a listener at addr in another namespace, and
// compares hashes.
func (w *network) transfer(t testing.TB, far *testnet.Namespace, addr string, n int64) {
	t.Helper()
	var l net.Listener
	must(t, far.Do(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	}))
	defer l.Close()
	got := make(chan [32]byte, 1)
	go func() {
		var sum [32]byte
		if c, err := l.Accept(); err == nil {
			h := sha256.New()
			_, _ = io.Copy(h, c)
			c.Close()
			sum = [32]byte(h.Sum(nil))
		}
		got <- sum
	}()
	h := sha256.New()
	must(t, w.peer.Do(func() error {
		c, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = io.CopyN(io.MultiWriter(h, c), rand.NewChaCha8([32]byte{1}), n)
		return err
	}))
	if sum := <-got; sum != [32]byte(h.Sum(nil)) {
		t.Errorf("%d bytes came changed", n)
	}
}

// bump forwards between two queues until stop is closed.
func bump(a, b *Queue, pool *ring.Pool, stop <-chan bool) error {
	batch := packet.NewBatch(pool.Arena().View(), 64)
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		for _, way := range [][2]*Queue{{a, b}, {b, a}} {
			now := clock.Time(time.Now().UnixNano())
			if _, err := way[0].Rx(now, batch); err != nil {
				return err
			}
			n, err := way[1].Tx(now, batch)
			if err != nil {
				return err
			}
			batch.Consume(n)
			pool.PutBatch(batch)
		}
		time.Sleep(50 * time.Microsecond)
	}
}
