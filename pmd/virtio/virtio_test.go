package virtio_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio"
	"github.com/millrace/millrace/ring"
)

// pair is a front end and a back end that are connected.
type pair struct {
	t     testing.TB
	arena *ring.Arena
	pools []*ring.Pool // of the queues of the front end, then of the back end
	front *virtio.Frontend
	back  *virtio.Backend
}

// memory makes shared memory with pools, whose frames are all free at the end.
func memory(t testing.TB, pools, frames int) (*ring.Arena, []*ring.Pool) {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: pools * frames, Huge: ring.HugeOff, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	list := make([]*ring.Pool, pools)
	for i := range list {
		if list[i], err = arena.Cut(frames); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if p := list[i]; p.Free() != p.Size() {
				t.Errorf("pool %d has %d of %d frames at the end", i, p.Free(), p.Size())
			}
		})
	}
	return arena, list
}

// socketPath returns a path in a folder of its own: that of t may be too long for a socket.
func socketPath(t testing.TB) string {
	dir, err := os.MkdirTemp("", "mr-virtio")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func newPair(t testing.TB, queues int, front, back virtio.Config) *pair {
	t.Helper()
	p := &pair{t: t}
	p.arena, p.pools = memory(t, 2*queues, 1024)
	path := socketPath(t)
	front.Path, front.Pools, front.Server = path, p.pools[:queues], !back.Server
	back.Path, back.Pools = path, p.pools[queues:]
	var err error
	if p.back, err = virtio.OpenBackend(back); err != nil {
		t.Fatal(err)
	}
	if p.front, err = virtio.OpenFrontend(front); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.front.Close(), p.back.Close()); err != nil {
			t.Error(err)
		}
	})
	for i := range p.front.Queues {
		p.awaitUp(p.front.Queues[i], p.back.Queues[i])
	}
	return p
}

// awaitUp polls until queues have the other end.
func (p *pair) awaitUp(queues ...pmd.Driver) {
	p.t.Helper()
	b := packet.NewBatch(p.arena.View(), 1)
	for _, q := range queues {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			n, err := q.Rx(clock.Time(1), b)
			if err == nil && n == 0 {
				break
			}
			if !errors.Is(err, pmd.ErrDown) || time.Now().After(end) {
				p.t.Fatalf("%d, %v", n, err)
			}
		}
	}
}

// send sends one packet in frames of the pool.
func (p *pair) send(q pmd.Driver, pool *ring.Pool, data []byte, o *packet.Offload) {
	p.t.Helper()
	b := packet.NewBatch(p.arena.View(), 64)
	const headroom = 256
	room := headroom
	for rest := data; len(rest) > 0; room = 0 {
		off, ok := pool.Get()
		if !ok {
			p.t.Fatal("no frame")
		}
		d := packet.Desc{Off: off + uint32(room), Len: uint16(min(len(rest), 2048-room))}
		copy(p.arena.Bytes(&d), rest)
		if rest = rest[d.Len:]; len(rest) > 0 {
			d.Flags = packet.FlagMore
		}
		b.Append(d)
	}
	if o != nil {
		b.D[0].Flags |= packet.FlagOffload
		p.arena.SetOffload(&b.D[0], o)
	}
	if n, err := q.Tx(1, b); err != nil || n != b.Len() {
		p.t.Fatalf("Tx = %d of %d, %v", n, b.Len(), err)
	}
}

// receive returns the packets that arrive at a queue until there are so many.
func (p *pair) receive(q pmd.Driver, pool *ring.Pool, count int) (list [][]byte) {
	p.t.Helper()
	b := packet.NewBatch(p.arena.View(), 256)
	for end := time.Now().Add(10 * time.Second); len(list) < count; {
		if _, err := q.Rx(1, b); err != nil {
			p.t.Fatal(err)
		}
		for d := b.D; len(d) > 0; {
			k := packet.Chain(d)
			list = append(list, p.arena.Gather(nil, d[:k], 1<<20))
			d = d[k:]
		}
		pool.PutBatch(b)
		if time.Now().After(end) {
			p.t.Fatalf("%d packets of %d arrived: %+v", len(list), count, q.Info().Stats)
		}
	}
	return list
}

// TestOnePacketEachWay sends one packet from the driver to the device, and one back.
func TestOnePacketEachWay(t *testing.T) {
	for _, packed := range []bool{false, true} {
		for _, server := range []bool{false, true} {
			p := newPair(t, 1, virtio.Config{Packed: packed}, virtio.Config{Server: server})
			there, back := bytes.Repeat([]byte{7}, 100), bytes.Repeat([]byte{9}, 1514)
			p.send(p.front.Queues[0], p.pools[0], there, nil)
			if got := p.receive(p.back.Queues[0], p.pools[1], 1); !bytes.Equal(got[0], there) {
				t.Errorf("to the device: %d bytes, %x", len(got[0]), got[0][:20])
			}
			p.send(p.back.Queues[0], p.pools[1], back, nil)
			if got := p.receive(p.front.Queues[0], p.pools[0], 1); !bytes.Equal(got[0], back) {
				t.Errorf("to the driver: %d bytes, %x", len(got[0]), got[0][:20])
			}
			t.Log(p.front.Queues[0].Info().Negotiated, "|", p.back.Queues[0].Info().Negotiated)
		}
	}
}
