package role

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio"
	"github.com/millrace/millrace/ring"
)

// openVhost sends back what a guest sends through the socket that is its argument, as dpdk-testpmd does on net_vhost. With -loops it has
// as many queues, each polled by a thread of its own: the first by the role's, the others on the CPUs behind it (-cpu is that of the second).
func openVhost(o roleOptions) (roleWork, error) {
	if len(o.args) != 1 {
		return roleWork{}, errors.New("which socket?")
	}
	const frames = 8192
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: frames * o.loops, Huge: ring.HugeOff})
	if err != nil {
		return roleWork{}, err
	}
	f := &vhostForwarder{start: time.Now()}
	for range o.loops {
		pool, err := arena.Cut(frames)
		if err != nil {
			return roleWork{}, err
		}
		f.pools = append(f.pools, pool)
	}
	if f.device, err = virtio.OpenBackend(virtio.Config{Path: o.args[0], Server: true, Pools: f.pools}); err != nil {
		return roleWork{}, err
	}
	for i, q := range f.device.Queues {
		f.loops = append(f.loops, &vhostLoop{q: q, pool: f.pools[i], b: packet.NewBatch(arena.View(), o.batch), start: f.start})
	}
	for i, l := range f.loops[1:] {
		f.others.Go(func() { f.run(l, o.cpu+i) })
	}
	return roleWork{version: "millrace", step: f.loops[0].step, counts: f.counts, close: f.close}, nil
}

type vhostForwarder struct {
	device *virtio.Backend
	pools  []*ring.Pool
	loops  []*vhostLoop
	start  time.Time

	stop   atomic.Bool
	others sync.WaitGroup // loops but the first
	failed atomic.Pointer[error]
}

// run polls a queue on a CPU until the end.
func (f *vhostForwarder) run(l *vhostLoop, cpu int) {
	runtime.LockOSThread() // ends with the goroutine, because it is bound
	var set unix.CPUSet
	set.Set(cpu)
	err := unix.SchedSetaffinity(0, &set)
	for err == nil && !f.stop.Load() {
		err = l.step()
	}
	if err != nil {
		f.failed.Store(&err)
	}
}

// vhostLoop is one queue.
type vhostLoop struct {
	q       pmd.Driver
	pool    *ring.Pool
	b       *packet.Batch
	start   time.Time
	packets atomic.Uint64
}

// step is one burst. The guest comes after this program, and goes before it.
func (l *vhostLoop) step() error {
	now := clock.Time(time.Since(l.start)) + 1
	if _, err := l.q.Rx(now, l.b); err != nil {
		return unlessDown(err)
	}
	if l.b.Len() == 0 {
		return nil
	}
	n, err := l.q.Tx(now, l.b)
	l.packets.Add(uint64(n))
	l.b.Consume(n)
	l.pool.PutBatch(l.b)
	return unlessDown(err)
}

func unlessDown(err error) error {
	if errors.Is(err, pmd.ErrDown) {
		return nil
	}
	return err
}

func (f *vhostForwarder) counts() (map[string]uint64, error) {
	c := map[string]uint64{}
	for _, l := range f.loops {
		c["packets"] += l.packets.Load()
	}
	if err := f.failed.Load(); err != nil {
		return c, *err
	}
	return c, nil
}

func (f *vhostForwarder) close() error {
	f.stop.Store(true)
	f.others.Wait()
	err := f.device.Close()
	for _, p := range f.pools {
		if p.Free() != p.Size() {
			err = errors.Join(err, fmt.Errorf("%d of %d frames came back", p.Free(), p.Size()))
		}
	}
	return err
}
