package daemon

import (
	"sync"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
)

// prefilters are the programs of devices before those of their drivers: the defence, then kernel flows.
type prefilters struct {
	mu      sync.Mutex
	devices map[*device.Device]*prefilter
}

type prefilter struct{ defence, flows *pmd.Prefilter }

// setDefence and setFlows give a device one of the two, nil for none. On an error it has what it had.
func (p *prefilters) setDefence(dev *device.Device, f *pmd.Prefilter) error {
	return p.set(dev, func(b *prefilter) { b.defence = f })
}

func (p *prefilters) setFlows(dev *device.Device, f *pmd.Prefilter) error {
	return p.set(dev, func(b *prefilter) { b.flows = f })
}

func (p *prefilters) set(dev *device.Device, edit func(*prefilter)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b prefilter
	if was := p.devices[dev]; was != nil {
		b = *was
	}
	edit(&b)
	if err := dev.SetPrefilter(b.joined()); err != nil {
		return err
	}
	if p.devices == nil {
		p.devices = map[*device.Device]*prefilter{}
	}
	if p.devices[dev] = &b; b == (prefilter{}) {
		delete(p.devices, dev)
	}
	return nil
}

// joined returns both as one. The defence has no filter for packet sockets: it is in XDP, before them.
func (b *prefilter) joined() *pmd.Prefilter {
	switch {
	case b.defence == nil:
		return b.flows
	case b.flows == nil:
		return b.defence
	}
	return &pmd.Prefilter{
		Socket: b.flows.Socket,
		XDP: func(next int, frags bool) (int, error) {
			fd, err := b.flows.XDP(next, frags)
			if err != nil {
				return -1, err
			}
			return b.defence.XDP(fd, frags)
		},
	}
}
