package stackd

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/stack/host"
)

// rules says in the drivers' words which packets are those of addresses: all that are sent to them, and ARP and neighbour
// discovery about them. Every device gets the same: an address is ours by whichever its packets come.
func rules(addrs []netip.Addr) (out []pmd.Rule) {
	addrs = slices.Clone(addrs)
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, a := range slices.Compact(addrs) {
		out = append(out, pmd.Rule{Addr: a}, pmd.Rule{Addr: a, Kind: pmd.Neighbor})
	}
	return out
}

// addrs returns the addresses that the host has or is about to have.
func (d *Daemon) addrs() (list []netip.Addr) {
	h := d.stack.Group().Hosts[0]
	h.Enter()
	defer h.Exit()
	for _, a := range h.IP.Addrs() {
		list = append(list, a.Prefix.Addr())
	}
	return list
}

// steer brings the drivers up to date.
func (d *Daemon) steer() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	want := rules(d.addrs())
	if slices.Equal(want, d.steered) {
		return nil
	}
	var errs []error
	for i, dev := range d.devices {
		if !d.whole[i] {
			errs = append(errs, dev.Steer(want...))
		}
	}
	err := errors.Join(errs...)
	if err == nil {
		d.steered = want
	}
	return err
}

// follow steers and tells what becomes of addresses, until ctx ends.
func (d *Daemon) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-d.changes:
			d.tell(c)
			d.decline(c)
			if err := d.steer(); err != nil {
				d.opt.Log.Error("steering", "error", err.Error())
			}
		}
	}
}

// tell logs what became of an address.
func (d *Daemon) tell(c ip.Change) {
	where := d.cfg.Devices[min(int(c.Dev), len(d.cfg.Devices)-1)].Name
	switch c.Kind {
	case ip.AddrUp:
		d.opt.Log.Info("address", "device", where, "address", c.Prefix.String(), "state", "up")
	case ip.AddrDown:
		d.opt.Log.Info("address", "device", where, "address", c.Prefix.String(), "state", "gone")
	case ip.AddrDuplicate:
		d.opt.Log.Error("address", "device", where, "address", c.Prefix.String(), "state", "duplicate: another host has it, so it is not used")
	}
}

// decline has the address of a lease given back that another host has.
func (d *Daemon) decline(c ip.Change) {
	for _, l := range d.lessees {
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
