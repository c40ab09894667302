package role

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio"
	"github.com/millrace/millrace/ring"
)

// openVhost sends back what a guest sends through the socket that is its argument, as dpdk-testpmd does on net_vhost.
func openVhost(o roleOptions) (roleWork, error) {
	if len(o.args) != 1 {
		return roleWork{}, errors.New("which socket?")
	}
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 8192, Huge: ring.HugeOff})
	if err != nil {
		return roleWork{}, err
	}
	pool, err := arena.Cut(0)
	if err != nil {
		return roleWork{}, err
	}
	d, err := virtio.OpenBackend(virtio.Config{Path: o.args[0], Server: true, Pools: []*ring.Pool{pool}})
	if err != nil {
		return roleWork{}, err
	}
	f := &vhostForwarder{device: d, pool: pool, b: packet.NewBatch(arena.View(), o.batch), start: time.Now()}
	return roleWork{version: "millrace", step: f.step, counts: f.counts, close: f.close}, nil
}

type vhostForwarder struct {
	device  *virtio.Backend
	pool    *ring.Pool
	b       *packet.Batch
	start   time.Time
	packets atomic.Uint64
}

// step is one burst. The guest comes after this program, and goes before it.
func (f *vhostForwarder) step() error {
	now, q := clock.Time(time.Since(f.start))+1, f.device.Queues[0]
	if _, err := q.Rx(now, f.b); err != nil {
		return unlessDown(err)
	}
	if f.b.Len() == 0 {
		return nil
	}
	n, err := q.Tx(now, f.b)
	f.packets.Add(uint64(n))
	f.b.Consume(n)
	f.pool.PutBatch(f.b)
	return unlessDown(err)
}

func unlessDown(err error) error {
	if errors.Is(err, pmd.ErrDown) {
		return nil
	}
	return err
}

func (f *vhostForwarder) counts() (map[string]uint64, error) {
	return map[string]uint64{"packets": f.packets.Load()}, nil
}

func (f *vhostForwarder) close() error {
	err := f.device.Close()
	if f.pool.Free() != f.pool.Size() {
		err = errors.Join(err, fmt.Errorf("%d of %d frames came back", f.pool.Free(), f.pool.Size()))
	}
	return err
}
