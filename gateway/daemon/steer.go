package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/gateway"
	"github.com/millrace/millrace/pmd"
)

// rules says in the drivers' words what the gateway wants. Every device gets the same rules: an
// address is ours on whichever side its packets come in.
func rules(list []gateway.Steer) (out []pmd.Rule) {
	for _, s := range list {
		if s.Keep {
			out = append(out, pmd.Rule{Addr: s.Addr, Kind: pmd.Keep})
			continue
		}
		r := pmd.Rule{
			Addr: s.Addr, Proto: s.Proto, PortLo: s.Ports.First, PortHi: s.Ports.Last, LaterFragments: s.LaterFragments, Bits: uint8(s.Bits),
		}
		if s.Source {
			r.Kind = pmd.From
		}
		out = append(out, r)
		if s.Neighbor {
			out = append(out, pmd.Rule{Addr: s.Addr, Kind: pmd.Neighbor})
		}
	}
	return out
}

// steer brings the drivers up to date.
func (d *Daemon) steer() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	want := rules(d.gate.Steering())
	if slices.Equal(want, d.steered) {
		return nil
	}
	var errs []error
	for _, dev := range d.devices {
		errs = append(errs, dev.Steer(want...))
	}
	err := errors.Join(errs...)
	if err == nil {
		d.steered = want
	}
	return err
}

// steerLoop steers and looks at the links now and then, until ctx ends.
func (d *Daemon) steerLoop(ctx context.Context) {
	tick := time.NewTicker(steerEvery)
	defer tick.Stop()
	changes := d.linkChanges(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-changes:
			if !ok { // the kernel has ended it, by an overflow
				changes = nil
			}
			d.watchLinks()
		case <-tick.C:
			d.watchLinks()
			if err := d.steer(); err != nil {
				d.opt.Log.Error("steering", "error", err.Error())
			}
		}
	}
}
