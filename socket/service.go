package socket

import (
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/stack"
)

// Service returns the stack as a node serves it: it claims every packet to its addresses, and ARP and
// neighbour discovery about them. On devices whose every packet a service takes it gets what nobody
// claims, multicast and broadcast included. The host has been made with host.Config.Dispatched on the
// loops of the node.
func (s *Stack) Service() node.Service {
	handlers := make([]stack.Handler, len(s.group.Hosts))
	for i, h := range s.group.Hosts {
		handlers[i] = h
	}
	return node.Service{
		Name: "host", Handlers: handlers, Claims: s.claims, Fallback: true, Entered: true, Metrics: s.writeMetrics,
	}
}

// claims returns the packets of the addresses that the stack has or is about to have.
func (s *Stack) claims() (rules []pmd.Rule) {
	h := s.group.Hosts[0] // the others follow it
	h.Enter()
	defer h.Exit()
	for _, a := range h.IP.Addrs() {
		addr := a.Prefix.Addr()
		rules = append(rules, pmd.Rule{Addr: addr}, pmd.Rule{Addr: addr, Kind: pmd.Neighbor})
	}
	return rules
}
