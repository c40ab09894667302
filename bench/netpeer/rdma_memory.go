package netpeer

import (
	"context"
	"errors"

	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/ring"
)

// RDMAPair is two contexts on one loop, each with a device of its own, which a wire in memory joins: every packet is built, sent,
// received, verified and answered.
type RDMAPair struct {
	a, b   *rdmaSide
	ctx    *rdma.Context
	node   *node.Node
	wires  []pmd.Driver
	cancel context.CancelFunc
	done   chan error
}

// OpenRDMAPair joins two queue pairs.
func OpenRDMAPair() (*RDMAPair, error) {
	p := &RDMAPair{done: make(chan error, 1)}
	n, err := node.Open(node.Config{Loops: 1, Devices: []node.Device{{Name: "m0"}, {Name: "m1"}}, OpenDevice: p.open})
	if err != nil {
		return nil, err
	}
	p.node = n
	a, b := clientAddr.Addr(), serverAddr.Addr()
	hop := func(dev uint8) nexthop.Hop {
		return nexthop.Hop{State: nexthop.Ready, Dev: dev, MAC: [6]byte{2, 0, 0, 0, 0, dev}}
	}
	client, err1 := rdma.New(n, rdma.Config{Addr: a, Hops: nexthop.Static{b: hop(0)}})
	server, err2 := rdma.New(n, rdma.Config{Addr: b, Hops: nexthop.Static{a: hop(1)}})
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	client2, server2 := client.Service(), server.Service()
	client2.Name, server2.Name = "client", "server"
	if err := errors.Join(n.Add(client2), n.Add(server2), n.Start()); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() { p.done <- n.Run(ctx) }()
	p.ctx = client
	if err := p.connect(client, server); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// open is a node.Config.OpenDevice: the second device is the other end of the wire of the first.
func (p *RDMAPair) open(d node.Device, pools []*ring.Pool) (*device.Device, error) {
	if d.Name == "m0" {
		a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: pools[0], B: pools[0], Name: "wire", Slots: 4096})
		if err != nil {
			return nil, err
		}
		p.wires = []pmd.Driver{a, b}
	}
	end := p.wires[0]
	if d.Name == "m1" {
		end = p.wires[1]
	}
	return device.New("memory", []pmd.Driver{end}, end.Close), nil
}

func (p *RDMAPair) connect(client, server *rdma.Context) error {
	var err1, err2 error
	p.a, err1 = newRDMASide(client)
	p.b, err2 = newRDMASide(server)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	ea, eb := p.a.qp.Endpoint(1), p.b.qp.Endpoint(1)
	return errors.Join(p.a.peer(p.b.private()), p.b.peer(p.a.private()), p.a.qp.Connect(eb, rdma.ConnectConfig{PSN: ea.PSN}),
		p.b.qp.Connect(ea, rdma.ConnectConfig{PSN: eb.PSN}))
}

// Drive writes size bytes again and again until ctx ends: requests are posted in batches, the last of which is signaled, as by
// programs that are written for speed.
func (p *RDMAPair) Drive(ctx context.Context, size int, c *Counters) (wait func()) {
	ended := make(chan struct{})
	w, l := p.a.write(rdma.OpWrite, size), &c.loop[0]
	post := func() error {
		h := p.ctx.Enter()
		defer h.Exit()
		for i := range batchOfWrites {
			if w.Flags = 0; i == batchOfWrites-1 {
				w.Flags = rdma.Signaled
			}
			if err := h.PostSend(p.a.qp, &w); err != nil {
				return err
			}
		}
		return nil
	}
	go func() {
		defer close(ended)
		err := errors.Join(post(), post())
		if err == nil {
			err = p.a.completions(ctx, func(*rdma.Completion) error {
				l.Ops.Add(batchOfWrites)
				l.Bytes.Add(uint64(batchOfWrites * size))
				return post()
			})
		}
		if err != nil && ctx.Err() == nil {
			l.Failed.Add(1)
		}
	}()
	return func() { <-ended }
}

const batchOfWrites = rdmaDepth / 2

// Close ends both contexts.
func (p *RDMAPair) Close() error {
	p.cancel()
	return errors.Join(<-p.done, p.node.Close())
}
