package shim

import "sync/atomic"

// counters are those of a Server.
type counters struct {
	channels, requests, malformed  atomic.Uint64
	connects, accepts, failures    atomic.Uint64
	denied, limited                atomic.Uint64
	toStack, toProgram             atomic.Uint64 // bytes
	datagramsIn, datagramsOut      atomic.Uint64
	datagramsDropped, acceptErrors atomic.Uint64
	descriptors                    atomic.Uint64
	rings, moved, violations       atomic.Uint64
}

// Stats are the counters of a Server since its start, and what it has now.
type Stats struct {
	Channels int // control channels now
	Sockets  int // registered sockets, listeners and connections now

	Requests  uint64
	Malformed uint64 // channels that were closed because they sent no request
	Connects  uint64 // connections begun
	Failures  uint64 // of which none came
	Accepts   uint64
	Denied    uint64 // requests that the configuration does not permit: ports, operations
	Limited   uint64 // requests beyond a limit

	BytesToStack, BytesToProgram   uint64 // of TCP
	DatagramsSent, DatagramsPassed uint64 // to the network, to programs
	DatagramsDropped               uint64 // from programs: malformed, or not sendable
	AcceptErrors                   uint64 // connections that were reset because no descriptor could be made or passed
	Descriptors                    uint64 // sockets that were closed because the program has sent descriptors through them

	Rings      uint64 // connections whose bytes began to travel by rings
	Moved      uint64 // of these, those that went back to sockets
	Violations uint64 // those that were reset because the program has written impossible indexes
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	channels, sockets := len(s.channels), len(s.all)
	s.mu.Unlock()
	c := &s.stats
	return Stats{
		Channels: channels, Sockets: sockets,
		Requests: c.requests.Load(), Malformed: c.malformed.Load(), Connects: c.connects.Load(), Failures: c.failures.Load(),
		Accepts: c.accepts.Load(), Denied: c.denied.Load(), Limited: c.limited.Load(),
		BytesToStack: c.toStack.Load(), BytesToProgram: c.toProgram.Load(),
		DatagramsSent: c.datagramsOut.Load(), DatagramsPassed: c.datagramsIn.Load(),
		DatagramsDropped: c.datagramsDropped.Load(), AcceptErrors: c.acceptErrors.Load(),
		Descriptors: c.descriptors.Load(),
		Rings:       c.rings.Load(), Moved: c.moved.Load(), Violations: c.violations.Load(),
	}
}
