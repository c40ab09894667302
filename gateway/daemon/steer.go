package daemon

import (
	"slices"

	"github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd"
)

// Rules converts the gateway's claims to driver rules, for the Claims of a node.Service. Every device
// gets the same rules: an address is the gateway's on whichever side its packets come in.
func Rules(list []control.Steer) (out []pmd.Rule) {
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

// linkChanged tells the gateway of a link address or an MTU, and neighbours where the addresses are.
func (d *Daemon) linkChanged(dev int, l node.Link) {
	if d.defence != nil && l.State == node.LinkGone && slices.Contains(d.defended, l.Name) {
		d.defence.Gone(l.Name)
	}
	if err := d.flows.linkChanged(dev, l); err != nil {
		d.opt.Log.Debug("kernel flows", "device", l.Name, "error", err.Error())
	}
	d.gate.SetDevice(dev, datapath.Device{Name: l.Name, MAC: l.MAC, MTU: l.MTU})
	if d.role != nil {
		d.role.LinkChanged()
	}
	if l.State == node.LinkUp {
		d.Announce()
	}
}
