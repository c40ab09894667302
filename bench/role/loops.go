package role

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// openLoops plays a gateway with a loop for each queue of its configuration, each on the CPU of its
// number from -cpu on, and from 0 on again where the suite has no more, over ports that make packets and
// swallow them. -as "own" gives each loop the
// packets of its own connections only, as a device would that steers; "any" gives it those of all,
// so that loops hand half of them, or more, over.
func openLoops(o roleOptions) (roleWork, error) {
	g, err := openInMemory(o)
	if err != nil {
		return roleWork{}, err
	}
	l := &loopsBench{inMemory: g}
	if err := l.open(o); err != nil {
		return roleWork{}, errors.Join(err, g.close())
	}
	runtime.GOMAXPROCS(len(l.loops) + 1) // loops never pause: one for the answers to the harness
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- stack.RunAll(ctx, l.loops...) }()
	return roleWork{
		version: fmt.Sprintf("%d loops over ports in memory", len(l.loops)),
		counts:  l.counts,
		stop: func() error {
			cancel()
			return <-ended
		},
		close: l.close,
	}, nil
}

// loopCPUs is the number of CPUs that loops are spread over: those of the suite's client and gateway.
const loopCPUs = 2

type loopsBench struct {
	*inMemory
	loops []*stack.Loop
	ports []*mill
	pools []*ring.Pool
}

func (l *loopsBench) open(o roleOptions) error {
	handlers := l.gate.Handlers()
	for i, h := range handlers {
		pool, err := l.arena.Cut(memoryFrames / len(handlers))
		if err != nil {
			return err
		}
		front := &mill{inMemory: l.inMemory, pool: pool, name: FrontDev}
		back := &mill{inMemory: l.inMemory, pool: pool, name: BackDev}
		if err := front.choose(h, o.as == "own"); err != nil {
			return err
		}
		loop, err := stack.NewLoop(stack.Config{
			Devices: []pmd.Driver{front, back}, Pool: pool, Engine: newGatewayEngine(), Handler: h, Affinity: []int{(o.cpu + i) % loopCPUs},
		})
		if err != nil {
			return err
		}
		l.loops, l.ports, l.pools = append(l.loops, loop), append(l.ports, front, back), append(l.pools, pool)
	}
	if len(l.loops) > 1 {
		_, err := stack.Join(l.loops...)
		return err
	}
	return nil
}

func (l *loopsBench) counts() (map[string]uint64, error) {
	c := map[string]uint64{"lost": 0}
	for _, p := range l.ports {
		c["packets"] += p.count.TxPackets.Load()
		c["offered"] += p.count.RxPackets.Load()
	}
	for _, loop := range l.loops {
		for v, n := range loop.Stats().Dropped {
			if n > 0 {
				c["dropped_"+packet.Verdict(v).String()] += n
				c["lost"] += n
			}
		}
	}
	return c, nil
}

func (l *loopsBench) close() error {
	var errs []error
	for _, loop := range l.loops {
		errs = append(errs, loop.Close())
	}
	holders := make([]ring.Holder, len(l.pools))
	for i, p := range l.pools {
		holders[i] = p
	}
	errs = append(errs, ring.Audit(l.arena, holders...), l.inMemory.close())
	return errors.Join(errs...)
}

// mill is a port that makes the packets of its flows without end and swallows what is sent by it.
type mill struct {
	*inMemory
	pool  *ring.Pool
	name  string
	flows []uint32 // empty makes no packets
	n     uint64
	count pmd.Counters
	_     [128]byte // the next port belongs to another loop
}

// choose gives the port the stream's flows: all of them, or those that h does not hand over.
func (m *mill) choose(h *datapath.Handler, own bool) error {
	b := packet.NewBatch(m.arena.View(), 1)
	off, ok := m.pool.Get()
	if !ok {
		return errors.New("no frame")
	}
	defer m.pool.Put(off)
	for flow := range uint32(m.stream.Flows) {
		if !own {
			m.flows = append(m.flows, flow)
			continue
		}
		b.Reset()
		b.Append(packet.Desc{Off: off, Len: uint16(len(m.first))})
		copy(b.Bytes(0), m.first)
		m.stream.Set(b.Bytes(0), m.first, flow, 0)
		if err := m.engine.Submit(b); err != nil {
			return err
		}
		m.engine.Poll(make([]*packet.Batch, 1))
		h.Handle(stack.Now(), b)
		switch v := b.D[0].Verdict; v {
		case packet.Forward:
			m.flows = append(m.flows, flow)
		case packet.Handover:
		default:
			return fmt.Errorf("flow %d: %v", flow, v)
		}
	}
	return nil
}

// Rx implements pmd.Driver.
func (m *mill) Rx(now clock.Time, b *packet.Batch) (int, error) {
	b.Base = int64(now)
	from := b.Len()
	for len(m.flows) > 0 && b.Room() > 0 {
		off, ok := m.pool.Get()
		if !ok {
			break
		}
		b.Append(packet.Desc{Off: off, Len: uint16(len(m.first)), Stamp: uint32(now)})
		p := b.Bytes(b.Len() - 1)
		copy(p, m.first)
		m.n++
		m.stream.Set(p, m.first, m.flows[Mix(m.n)>>32%uint64(len(m.flows))], 0)
	}
	got := b.D[from:]
	if len(got) > 0 {
		m.count.Rx(got)
	}
	return len(got), nil
}

// Tx implements pmd.Driver.
func (m *mill) Tx(_ clock.Time, b *packet.Batch) (int, error) {
	if b.Len() == 0 {
		return 0, nil
	}
	m.count.Tx(b.D)
	for i := range b.D {
		m.pool.Put(b.D[i].Off)
	}
	return b.Len(), nil
}

// Info implements pmd.Driver.
func (m *mill) Info() pmd.Info {
	return pmd.Info{Driver: "mill", Device: m.name, FD: -1, Stats: m.count.Stats()}
}

// Close implements pmd.Driver.
func (m *mill) Close() error { return nil }
