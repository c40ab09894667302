package stackd

import (
	"context"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/stack/host"
)

// follow updates the steering and logs the state of addresses, until ctx ends.
func (d *Daemon) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-d.changes:
			d.logChange(c)
			d.decline(c)
			if err := d.node.Update(); err != nil {
				d.opt.Log.Error("steering", "error", err.Error())
			}
		}
	}
}

// logChange logs a change of an address.
func (d *Daemon) logChange(c ip.Change) {
	where := d.deviceName(c.Dev)
	switch c.Kind {
	case ip.AddrUp:
		d.opt.Log.Info("address", "device", where, "address", c.Prefix.String(), "state", "up")
	case ip.AddrDown:
		d.opt.Log.Info("address", "device", where, "address", c.Prefix.String(), "state", "gone")
	case ip.AddrDuplicate:
		d.opt.Log.Error("address", "device", where, "address", c.Prefix.String(), "state", "duplicate: another host has it, so it is not used")
	}
}

// decline gives the address of a lease back that another host has.
func (d *Daemon) decline(c ip.Change) {
	for _, l := range d.leases {
		if c.Kind == ip.AddrDuplicate && c.Dev == l.port && c.Origin == ip.DHCP {
			select {
			case l.taken <- struct{}{}:
			default: // it has been said
			}
		}
	}
}

// each calls f for each loop's part of the host, as its owner.
func (d *Daemon) each(f func(now clock.Time, h *host.Host)) {
	_ = d.stack.Group().Each(func(now clock.Time, h *host.Host) error { f(now, h); return nil })
}
