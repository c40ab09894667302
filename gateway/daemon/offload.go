package daemon

import (
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/stack"
)

// tunnels reports whether packets of any service travel in others. Large packets (GSO, GRO) pass whole only
// where none does: no device segments what lies in a tunnel.
func tunnels(cfg *config.Config) bool {
	return slices.ContainsFunc(cfg.Services, func(s config.Service) bool {
		return s.Mode == config.ModeIPIP || s.Mode == config.ModeGUE
	})
}

// joins returns what loops may join before the gateway handles it. Datagrams of one client's port are not alike where a
// connection ID of QUIC names the backend, limits on packets count each one, and rules are about one.
func joins(cfg *config.Config) stack.GRO {
	for i := range cfg.Services {
		if s := &cfg.Services[i]; s.QUIC != nil || s.Limits.Packets > 0 {
			return stack.GROTCP
		}
	}
	if cfg.Limits.Packets > 0 || len(cfg.Inspection.Policies) > 0 {
		return stack.GROTCP
	}
	return stack.GROAll
}

// reconfigure gives the gateway a new configuration. Devices segment large packets before the first service
// with a tunnel is there; large ones that a loop has already are dropped and sent again. Datagrams are no longer joined
// before the first service is there that tells them apart.
func (d *Daemon) reconfigure(cfg *config.Config) error {
	was, joined := d.node.Offload()
	if _, err := d.node.SetOffload(was && !tunnels(cfg), min(joined, joins(cfg))); err != nil {
		return err
	}
	if err := d.gate.Reload(cfg); err != nil {
		_, _ = d.node.SetOffload(was, joined) // as before, which has worked
		return err
	}
	_, err := d.node.SetOffload(!tunnels(cfg), joins(cfg))
	d.renewFlows()
	return err
}
