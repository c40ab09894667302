package millrace

import (
	"context"
	"time"

	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/socket"
)

// Service returns a stack as a node serves it: it claims every packet to its addresses,
// and ARP and neighbour discovery about them. On devices whose every packet a service
// takes it gets what no claim names, multicast and broadcast included. The host has been
// made with host.Config.Dispatched on the loops of the node. When the node stops, the
// stack shuts down (socket.Stack.Shutdown), for drainTime at most.
func Service(s *socket.Stack) node.Service {
	g := s.Group()
	return node.Service{
		Name: "host", Handlers: g.Handlers(), Claims: g.Claims,
		Fallback: true, Entered: true, Metrics: s.WriteMetrics,
		LinkChanged: func(dev int, l node.Link) { g.SetLink(uint8(dev), l.MAC, l.MTU) },
		Shutdown: func() {
			ctx, cancel := context.WithTimeout(context.Background(), drainTime)
			defer cancel()
			_ = s.Shutdown(ctx) // its error is that time was up
		},
	}
}

// drainTime is less than a node waits for its services, so that RSTs still leave.
const drainTime = 4 * time.Second
