package daemon

import (
	"github.com/millrace/millrace/l4/control"
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
