package role

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/dpdk"
	"github.com/millrace/millrace/ring"
)

// dpdkFrames is how many frames the loop of openDPDK has: dpdk-testpmd is given as many mbufs.
const dpdkFrames = 16384

// openDPDK forwards between two devices of DPDK, or back on one, as dpdk-testpmd does: -op io passes packets on, -op macswap
// exchanges their link addresses, in Go. With -as small the frames are on pages of 4 KiB.
func openDPDK(o roleOptions) (roleWork, error) {
	if len(o.args) == 0 || o.op != "io" && o.op != "macswap" {
		return roleWork{}, errors.New("which devices, and -op io or macswap?")
	}
	size := 2048
	for _, name := range o.args {
		size = max(size, devargs.FrameSize(name))
	}
	pages := ring.HugeAuto
	if o.as == "small" {
		pages = ring.HugeOff
	}
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: dpdkFrames, FrameSize: size, Huge: pages})
	if err != nil {
		return roleWork{}, err
	}
	pool, err := arena.Cut(0)
	if err != nil {
		return roleWork{}, err
	}
	f := &dpdkForwarder{swap: o.op == "macswap", pool: pool, b: packet.NewBatch(arena.View(), o.batch), start: time.Now()}
	for _, name := range o.args {
		d, err := dpdk.Open(dpdk.Config{Name: name, Pools: []*ring.Pool{pool}, Promiscuous: true})
		if err != nil {
			return roleWork{}, errors.Join(err, f.close())
		}
		f.devices, f.queues = append(f.devices, d), append(f.queues, d.Queues[0])
	}
	version, err := dpdk.Version()
	return roleWork{version: version, step: f.step, counts: f.counts, close: f.close}, err
}

type dpdkForwarder struct {
	devices []*dpdk.Device
	queues  []pmd.Driver
	pool    *ring.Pool
	b       *packet.Batch
	swap    bool
	start   time.Time
	packets atomic.Uint64
}

// step is one burst from each device.
func (f *dpdkForwarder) step() error {
	now := clock.Time(time.Since(f.start)) + 1
	for i, in := range f.queues {
		if _, err := in.Rx(now, f.b); err != nil {
			return err
		}
		if f.swap {
			swapLinkAddresses(f.b)
		}
		n, err := f.queues[(i+1)%len(f.queues)].Tx(now, f.b)
		if err != nil {
			return err
		}
		f.packets.Add(uint64(n))
		f.b.Consume(n)
		f.pool.PutBatch(f.b)
	}
	return nil
}

// swapLinkAddresses exchanges destination and source of each packet.
func swapLinkAddresses(b *packet.Batch) {
	for i := range b.D {
		p := b.Arena.Bytes(&b.D[i])
		if len(p) < 12 {
			continue
		}
		h := (*[12]byte)(p)
		to := [6]byte(h[:6])
		copy(h[:6], h[6:12])
		copy(h[6:12], to[:])
	}
}

func (f *dpdkForwarder) counts() (map[string]uint64, error) {
	return map[string]uint64{"packets": f.packets.Load()}, nil
}

func (f *dpdkForwarder) close() error {
	var errs []error
	for _, d := range slices.Backward(f.devices) {
		errs = append(errs, d.Close())
	}
	if f.pool.Free() != f.pool.Size() {
		errs = append(errs, fmt.Errorf("%d of %d frames came back", f.pool.Free(), f.pool.Size()))
	}
	return errors.Join(errs...)
}
