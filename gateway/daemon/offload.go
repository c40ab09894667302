package daemon

import (
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/stack"
)

// Large packets (GSO, GRO) pass whole, and the device that sends them cuts them, where every device can
// and no service needs a tunnel: no device cuts what lies in one.

// tunnels reports whether packets of any service travel in others.
func tunnels(cfg *config.Config) bool {
	return slices.ContainsFunc(cfg.Services, func(s config.Service) bool {
		return s.Mode == config.ModeIPIP || s.Mode == config.ModeGUE
	})
}

// setOffload has the devices pass large packets whole or cut them.
func (d *Daemon) setOffload(whole bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.whole = whole && device.CanOffload(d.devices...)
	return device.SetOffload(d.whole, d.devices...)
}

// reconfigure has the gateway take a new configuration. Devices cut large packets before the first
// service with a tunnel is there; large ones that a loop has already are dropped and sent again.
func (d *Daemon) reconfigure(cfg *config.Config) error {
	d.mu.Lock()
	was := d.whole
	d.mu.Unlock()
	if tunnels(cfg) {
		if err := d.setOffload(false); err != nil {
			return err
		}
	}
	if err := d.gate.Reload(cfg); err != nil {
		_ = d.setOffload(was) // as before, which has worked
		return err
	}
	return d.setOffload(!tunnels(cfg))
}

// burst is how many descriptors a loop takes at once: a large packet of 64 KiB has 33.
func (d *Daemon) burst() int {
	if device.CanOffload(d.devices...) {
		return packet.BatchSize
	}
	return stack.DefaultBurst
}
