package millrace

import (
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
)

// Service returns a stack as a node serves it: it claims every packet to its addresses,
// and ARP and neighbour discovery about them. On devices whose every packet a service
// takes it gets what nobody claims, multicast and broadcast included. The host has been
// made with host.Config.Dispatched on the loops of the node.
func Service(s *socket.Stack) node.Service {
	hosts := s.Group().Hosts
	handlers := make([]stack.Handler, len(hosts))
	for i, h := range hosts {
		handlers[i] = h
	}
	return node.Service{
		Name: "host", Handlers: handlers, Claims: func() []pmd.Rule { return claims(hosts[0]) },
		Fallback: true, Entered: true, Metrics: s.WriteMetrics,
	}
}

// claims returns the packets of the addresses that a host has or is about to have. The
// hosts of other loops follow the first.
func claims(h *host.Host) (rules []pmd.Rule) {
	h.Enter()
	defer h.Exit()
	for _, a := range h.IP.Addrs() {
		addr := a.Prefix.Addr()
		rules = append(rules, pmd.Rule{Addr: addr}, pmd.Rule{Addr: addr, Kind: pmd.Neighbor})
	}
	return rules
}
