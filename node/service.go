package node

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/stack"
)

// Service is something that a node serves. The zero values of all but Handlers are
// valid. It is a struct of functions and not an interface because a gateway, a host and
// a bridge each need a different few of them.
type Service struct {
	Name     string // in logs
	Handlers []stack.Handler

	// Claims returns the packets that the service wants now. The node asks once a
	// second, and when Update is called; it may call the node. A rule of kind Keep leaves an address to the
	// kernel.
	Claims func() []pmd.Rule

	// Fallback gives the service the packets that no claim names on devices which take every packet
	// (Device.All), multicast for instance, and those that handlers send to themselves
	// (stack.Output.Loopback). One service can have it.
	Fallback bool

	// Entered reports that goroutines enter the loops (stack.LoopLock.Enter), as those of
	// sockets do. All loops of the node are then run by goroutines (stack.ServeAll)
	// instead of threads of their own.
	Entered bool

	LinkChanged func(dev int, l Link)     // the state, link address or MTU of a device has changed
	Metrics     metrics.Source            // of the service
	Background  func(ctx context.Context) // runs beside the loops until ctx ends
	Shutdown    func()                    // finishes what has begun, while the loops still run; may be nil

	// ShutdownLimit returns how long Shutdown may take, where that is longer than 5 s; nil is no longer.
	ShutdownLimit func() time.Duration
}

// Add has the node serve s. It is called before Run. The order matters where two services claim ARP and
// neighbour discovery for one address and neither claims the whole address: the first answers.
func (n *Node) Add(s Service) error {
	if len(s.Handlers) != len(n.loops) {
		return fmt.Errorf("node: service %s has %d handlers for %d loops", s.Name, len(s.Handlers), len(n.loops))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.services {
		if o.Fallback && s.Fallback {
			return fmt.Errorf("node: services %s and %s both want the packets that nobody claims", o.Name, s.Name)
		}
	}
	n.services = append(n.services, s)
	return nil
}
