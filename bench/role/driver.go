package role

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afxdp"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// port is one queue of one of our drivers with a pool and a batch: what rx, tx and forward share.
type port struct {
	drv     pmd.Driver
	pool    *ring.Pool
	batch   *packet.Batch
	closers []func() error
}

// openPort opens queue 0 of the device with twice as many frames as a ring has entries, as the C
// peer does.
func openPort(o roleOptions) (*port, error) {
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 2 * o.ring})
	if err != nil {
		return nil, err
	}
	p := &port{closers: []func() error{a.Close}}
	if p.pool, err = a.Cut(2 * o.ring); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if err := p.open(o); err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.batch = packet.NewBatch(a.View(), o.batch)
	return p, nil
}

func (p *port) open(o roleOptions) error {
	switch o.driver {
	case "afxdp":
		r := afxdp.Rings{Fill: o.ring, Completion: o.ring, Rx: o.ring, Tx: o.ring}
		dev, err := afxdp.Open(afxdp.Config{
			Interface: o.dev, Pools: []*ring.Pool{p.pool}, Rings: r, RxFrames: o.ring,
			Mode: afxdp.ModeNative, All: true,
		})
		if err != nil {
			return err
		}
		p.drv = dev.Queues[0]
		p.closers = append(p.closers, dev.Close)
		return nil
	}
	return fmt.Errorf("no driver %q", o.driver)
}

func (p *port) close() error {
	var err error
	for i := len(p.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, p.closers[i]())
	}
	p.closers = nil
	return err
}

func (p *port) version() string { return p.drv.Info().Driver + ", " + p.drv.Info().Negotiated }

// with adds what the driver itself counted.
func (p *port) with(c map[string]uint64) map[string]uint64 {
	s := p.drv.Info().Stats
	c["wakeups"], c["dropped"] = s.Wakeups, s.RxMissed
	return c
}

// openReceiver counts what comes in.
func openReceiver(o roleOptions) (roleWork, error) {
	p, err := openPort(o)
	if err != nil {
		return roleWork{}, err
	}
	return p.counting(p.receive), nil
}

// counting is the work of a port whose step tallies what it receives.
func (p *port) counting(step func(*tally) error) roleWork {
	t := new(tally)
	return roleWork{
		version: p.version(),
		step:    func() error { return step(t) },
		counts:  func() (map[string]uint64, error) { return p.with(t.counts()), nil },
		close:   func() error { t.publish(); return p.close() },
	}
}

func (p *port) receive(t *tally) error {
	n, err := p.drv.Rx(stack.Now(), p.batch)
	if err != nil {
		return err
	}
	if n == 0 {
		rest(t)
		return nil
	}
	for i := range p.batch.D {
		t.saw(p.batch.Bytes(i))
	}
	t.batch()
	p.pool.PutBatch(p.batch)
	return nil
}

// openSender floods. Every frame of the pool holds a probe before the first is sent.
func openSender(o roleOptions) (roleWork, error) {
	p, err := openPort(o)
	if err != nil {
		return roleWork{}, err
	}
	pkt, err := probe(o.size)
	if err != nil {
		return roleWork{}, errors.Join(err, p.close())
	}
	p.pool.Holds(func(off uint32) { copy(p.batch.Arena.Mem[off:], pkt) })
	s := &sender{port: p, size: uint16(o.size)}
	return roleWork{
		version: p.version(),
		step:    s.send,
		counts: func() (map[string]uint64, error) {
			return p.with(map[string]uint64{"packets": s.shown.Load()}), nil
		},
		close: func() error { s.publish(); return p.close() },
	}, nil
}

// sender keeps its batch full of stamped probes.
type sender struct {
	*port
	size    uint16
	seq     uint64 // of the next probe that is stamped
	batches uint
	shown   atomic.Uint64
}

// publish tells how many probes the driver has taken.
func (s *sender) publish() { s.shown.Store(s.seq - uint64(s.batch.Len())) }

func (s *sender) send() error {
	b := s.batch
	for b.Room() > 0 {
		off, ok := s.pool.Get()
		if !ok {
			break
		}
		d := packet.Desc{Off: off, Len: s.size}
		Stamp(b.Arena.Bytes(&d), s.seq)
		s.seq++
		b.Append(d)
	}
	n, err := s.drv.Tx(stack.Now(), b)
	b.Consume(n)
	if s.batches++; s.batches%publishEvery == 0 || n == 0 {
		s.publish()
	}
	return err
}

// openForwarder swaps the link addresses and sends back where the packet came from.
func openForwarder(o roleOptions) (roleWork, error) {
	p, err := openPort(o)
	if err != nil {
		return roleWork{}, err
	}
	return p.counting(p.forward), nil
}

func (p *port) forward(t *tally) error {
	b := p.batch
	held := b.Len() // what the full transmit ring left from the last time
	n, err := p.drv.Rx(stack.Now(), b)
	if err != nil {
		return err
	}
	if b.Len() == 0 {
		rest(t)
		return nil
	}
	for i := held; i < held+n; i++ {
		t.saw(b.Bytes(i))
		swapMAC(b.Bytes(i))
	}
	t.batch()
	sent, err := p.drv.Tx(stack.Now(), b)
	b.Consume(sent)
	return err
}
