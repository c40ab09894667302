package virtio_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/internal/testkit/testpmd"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio"
	"github.com/millrace/millrace/ring"
)

// startTestpmd starts DPDK's forwarder with one device, which sends back what it receives with the link addresses exchanged.
func startTestpmd(t *testing.T, vdev string, queues int) *testnet.Log {
	t.Helper()
	args := []string{"--forward-mode=macswap", "--port-topology=loop", fmt.Sprintf("--rxq=%d", queues), fmt.Sprintf("--txq=%d", queues)}
	if strings.HasPrefix(vdev, "net_virtio_user") {
		args = append(args, "--tx-offloads=0x0", "--rx-offloads=0x0")
	}
	return testpmd.Start(t, []string{vdev}, args...).Out
}

// echo sends packets of many lengths to a queue and compares what comes back: the same with the link addresses exchanged.
func echo(t *testing.T, arena *ring.Arena, pool *ring.Pool, q pmd.Driver, longest int) {
	t.Helper()
	b, in := packet.NewBatch(arena.View(), 64), packet.NewBatch(arena.View(), 64)
	const total = 2000
	number, got := 0, 0
	greet(t, arena, pool, q)
	make := func(i int) []byte {
		p := bytes.Repeat([]byte{byte(i)}, 60+i*331%(longest-59))
		copy(p, []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5, byte(i >> 8), byte(i)})
		return p
	}
	for end := time.Now().Add(15 * time.Second); got < total; {
		for number < total && number-got < 32 && b.Room() > 8 && pool.Free() > 16 {
			appendPacket(b, pool, make(number))
			number++
		}
		n, err := q.Tx(1, b)
		if err != nil && !errors.Is(err, pmd.ErrDown) {
			t.Fatal(err)
		}
		b.Consume(n)
		if _, err := q.Rx(1, in); err != nil && !errors.Is(err, pmd.ErrDown) {
			t.Fatal(err)
		}
		for d := in.D; len(d) > 0; {
			k := packet.Chain(d)
			p := arena.Gather(nil, d[:k], 1<<20)
			d = d[k:]
			if len(p) < 16 || p[12] != 0x88 || p[13] != 0xb5 || p[14] == 0xff {
				continue // a greeting, or one of the guest's own
			}
			i := int(p[14])<<8 | int(p[15])
			want := make(i)
			copy(want, []byte{2, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0, 9})
			if i != got || !bytes.Equal(p, want) {
				t.Fatalf("packet %d of %d bytes came back where %d was due: %x", i, len(p), got, p[:20])
			}
			got++
		}
		pool.PutBatch(in)
		if time.Now().After(end) {
			t.Fatalf("%d of %d came back: %+v", got, total, q.Info())
		}
		time.Sleep(20 * time.Microsecond)
	}
	pool.PutBatch(b)
}

// greet sends packets until one comes back: a program that starts may reset its rings, with the packets in them.
func greet(t *testing.T, arena *ring.Arena, pool *ring.Pool, q pmd.Driver) {
	t.Helper()
	hello := make([]byte, 60)
	copy(hello, []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5, 0xff})
	b := packet.NewBatch(arena.View(), 64)
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		appendPacket(b, pool, hello)
		n, _ := q.Tx(1, b)
		b.Consume(n)
		pool.PutBatch(b)
		_, _ = q.Rx(1, b)
		came := b.Len() > 0
		pool.PutBatch(b)
		if came {
			return
		}
	}
	t.Fatalf("nothing comes back: %+v", q.Info())
}

// appendPacket puts a packet into frames of the pool.
func appendPacket(b *packet.Batch, pool *ring.Pool, data []byte) {
	for rest, room := data, 128; len(rest) > 0; room = 0 {
		off, _ := pool.Get()
		d := packet.Desc{Off: off + uint32(room), Len: uint16(min(len(rest), 2048-room))}
		copy(b.Arena.Bytes(&d), rest)
		if rest = rest[d.Len:]; len(rest) > 0 {
			d.Flags = packet.FlagMore
		}
		b.Append(d)
	}
}

// awaitLink polls a queue until the other program has connected.
func awaitLink(t *testing.T, arena *ring.Arena, pool *ring.Pool, q pmd.Driver, out *testnet.Log) {
	t.Helper()
	b := packet.NewBatch(arena.View(), 64)
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := q.Rx(1, b)
		pool.PutBatch(b)
		if err == nil {
			return
		}
		if !errors.Is(err, pmd.ErrDown) || time.Now().After(end) {
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
}

// TestTestpmdAsGuest serves DPDK's virtio-user driver, in all forms of its rings.
func TestTestpmdAsGuest(t *testing.T) {
	testpmd.Need(t)
	for _, c := range []struct {
		args   string
		server bool
		queues int
		modes  string
	}{
		{"", true, 1, "split ring"},
		{",mrg_rxbuf=0", true, 1, "split ring, event_idx"},
		{",packed_vq=1", true, 1, "packed ring"},
		{",packed_vq=1,mrg_rxbuf=0,in_order=0", true, 1, "packed ring"},
		{",server=1", false, 1, "split ring"},
		{",queues=2", true, 2, "split ring"},
	} {
		t.Run("net_virtio_user"+c.args, func(t *testing.T) {
			arena, pools := memory(t, c.queues, 1024)
			path := socketPath(t)
			back, err := virtio.OpenBackend(virtio.Config{Path: path, Server: c.server, Pools: pools})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { back.Close() })
			out := startTestpmd(t, "net_virtio_user0,path="+path+c.args, c.queues)
			for i, q := range back.Queues {
				awaitLink(t, arena, pools[i], q, out)
				if got := q.Info().Negotiated; !strings.Contains(got, strings.Split(c.modes, ",")[0]) || strings.Contains(got, "mergeable") == strings.Contains(c.args, "mrg_rxbuf=0") {
					t.Errorf("%s", got)
				}
				t.Log(q.Info().Negotiated)
				echo(t, arena, pools[i], q, 1514)
			}
		})
	}
}

// TestTestpmdAsBackend drives a device of DPDK's vhost library.
func TestTestpmdAsBackend(t *testing.T) {
	testpmd.Need(t)
	for _, c := range []struct {
		args   string
		server bool
		queues int
		packed bool
	}{
		{"", false, 1, false},
		{"", false, 1, true},
		{",client=1", true, 1, false},
		{",queues=2", false, 2, false},
	} {
		t.Run(fmt.Sprintf("net_vhost%s,packed=%v", c.args, c.packed), func(t *testing.T) {
			arena, pools := memory(t, c.queues, 1024)
			path := socketPath(t)
			front, err := virtio.OpenFrontend(virtio.Config{Path: path, Server: c.server, Pools: pools, Packed: c.packed})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { front.Close() })
			out := startTestpmd(t, "net_vhost0,iface="+path+c.args, c.queues)
			for i, q := range front.Queues {
				awaitLink(t, arena, pools[i], q, out)
				if got := q.Info().Negotiated; strings.Contains(got, "packed ring") != c.packed {
					t.Errorf("%s", got)
				}
				t.Log(q.Info().Negotiated)
				echo(t, arena, pools[i], q, 1514)
			}
		})
	}
}

// TestBackEndRestarts closes the back end of a guest that runs, and opens another: DPDK's driver hands it the rings again, and
// packets pass in order as before. No packet is under way in a closed back end: it copies, and returns each buffer in the call that
// takes it.
func TestBackEndRestarts(t *testing.T) {
	testpmd.Need(t)
	for _, args := range []string{"", ",packed_vq=1"} {
		arena, pools := memory(t, 1, 1024)
		path := socketPath(t)
		var out *testnet.Log
		for range 3 {
			back, err := virtio.OpenBackend(virtio.Config{Path: path, Pools: pools})
			if err != nil {
				t.Fatal(err)
			}
			if out == nil {
				out = startTestpmd(t, "net_virtio_user0,server=1,path="+path+args, 1)
			}
			awaitLink(t, arena, pools[0], back.Queues[0], out)
			echo(t, arena, pools[0], back.Queues[0], 1514)
			if err := back.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
