package role

import (
	"context"
	"fmt"
	"hash/crc32"
	"net/netip"
	"sync/atomic"

	"github.com/millrace/millrace/bench/netpeer"
	"github.com/millrace/millrace/rdma/roce"
)

// openRDMAServe lets peers write to its memory, at the address -to that the kernel has on -dev.
func openRDMAServe(o roleOptions) (roleWork, error) {
	r, err := openRDMA(o)
	if err != nil {
		return roleWork{}, err
	}
	w, err := netRole(r.Close, func(ctx context.Context, c *netpeer.Counters) (func(), error) { return func() {}, r.ServeRDMA(ctx, c) })
	return profiled(o.profile, w, err)
}

// openRDMALoad puts load -op on the server at the first argument, from the address -to.
func openRDMALoad(o roleOptions) (roleWork, error) {
	to, err := peerOf(o)
	if err != nil {
		return roleWork{}, err
	}
	r, err := openRDMA(o)
	if err != nil {
		return roleWork{}, err
	}
	w, err := netRole(r.Close, func(ctx context.Context, c *netpeer.Counters) (func(), error) {
		return r.DriveRDMA(ctx, netpeer.Load{Op: o.op, To: to}, c)
	})
	return profiled(o.profile, w, err)
}

func openRDMA(o roleOptions) (*netpeer.RDMA, error) {
	addr, err := netip.ParsePrefix(o.stream.To)
	if err != nil {
		return nil, err
	}
	return netpeer.OpenRDMA(o.dev, addr.Addr())
}

// peerOf reads the address of the server.
func peerOf(o roleOptions) (netip.Addr, error) {
	if len(o.args) != 1 {
		return netip.Addr{}, fmt.Errorf("the server's address is missing")
	}
	return netip.ParseAddr(o.args[0])
}

// openRDMAMemory writes -size bytes between two contexts that a wire in memory joins; -as queues is between two queue pairs without
// contexts.
func openRDMAMemory(o roleOptions) (roleWork, error) {
	if o.as == "queues" {
		return openRDMAQueues(o.size)
	}
	p, err := netpeer.OpenRDMAPair()
	if err != nil {
		return roleWork{}, err
	}
	w, err := netRole(p.Close, func(ctx context.Context, c *netpeer.Counters) (func(), error) { return p.Drive(ctx, o.size, c), nil })
	return profiled(o.profile, w, err)
}

func openRDMAQueues(size int) (roleWork, error) {
	q, err := netpeer.NewRDMAQueues(size)
	if err != nil {
		return roleWork{}, err
	}
	var ops atomic.Uint64
	return roleWork{
		step: func() error {
			for range publishEvery {
				if err := q.Step(32); err != nil {
					return err
				}
			}
			ops.Add(32 * publishEvery)
			return nil
		},
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{"ops": ops.Load(), "bytes": ops.Load() * uint64(size)}, nil
		},
	}, nil
}

// openDatagramServe sends datagrams back by the stack -as over -dev with address -to.
func openDatagramServe(o roleOptions) (roleWork, error) {
	n, addr, err := openStackAt(o)
	if err != nil {
		return roleWork{}, err
	}
	w, err := netRole(n.Close, func(ctx context.Context, c *netpeer.Counters) (func(), error) {
		return func() {}, netpeer.ServeDatagrams(ctx, n, addr, c)
	})
	return profiled(o.profile, w, err)
}

// openDatagramLoad sends datagrams of -size bytes to the server at the first argument, each after the answer to the one before.
func openDatagramLoad(o roleOptions) (roleWork, error) {
	to, err := peerOf(o)
	if err != nil {
		return roleWork{}, err
	}
	n, addr, err := openStackAt(o)
	if err != nil {
		return roleWork{}, err
	}
	w, err := netRole(n.Close, func(ctx context.Context, c *netpeer.Counters) (func(), error) {
		return netpeer.DriveDatagrams(ctx, n, addr, to, o.size, c)
	})
	return profiled(o.profile, w, err)
}

func openStackAt(o roleOptions) (netpeer.Net, netip.Addr, error) {
	addr, err := netip.ParsePrefix(o.stream.To)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	n, err := openStack(o)
	return n, addr.Addr(), err
}

// openICRC copies -size bytes and computes the CRC of RoCE over them: in one pass, or (-as separate) by copy and crc32.Update.
func openICRC(o roleOptions) (roleWork, error) {
	const places = 64 // frames that are in use at once: more than the first cache has
	src, dst := make([]byte, places*o.size), make([]byte, places*o.size)
	for i := range src {
		src[i] = byte(i * 7)
	}
	var t tally
	crc := uint32(0)
	one := func(d, s []byte) { crc = roce.CopyCRC(d, s, crc) }
	if o.as == "separate" {
		one = func(d, s []byte) {
			copy(d, s)
			crc = crc32.Update(crc, crc32.IEEETable, s)
		}
	}
	return roleWork{
		step: func() error {
			for at := 0; at < len(src); at += o.size {
				one(dst[at:at+o.size], src[at:at+o.size])
			}
			t.n += places
			t.bytes += uint64(len(src))
			t.batch()
			return nil
		},
		counts: func() (map[string]uint64, error) { return t.counts(), nil },
	}, nil
}
