package udp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
)

// Config describes a Mux. Output is required.
type Config struct {
	Output Output
	Groups Groups // nil: no groups can be joined
	Seed   uint64 // for choosing ports and spreading flows over groups; to be secret

	// Budget bounds the memory of all queues together, in bytes; 0 is DefaultBudget. No socket may
	// take more than is still free, so that, however many are flooded, room is left for others.
	Budget     int64
	MaxSockets int // 0 is 65536

	// Owns says whether datagrams of a flow come to this Mux: Connect chooses its port by it. Nil is
	// always.
	Owns func(*ip.Tuple) bool

	// PortFirst and PortLast bound the ports that Bind and Connect choose. 0 is the dynamic ports,
	// 49152 to 65535 (RFC 6335 6).
	PortFirst, PortLast uint16
}

// DefaultBudget is the memory of all queues of a Mux where Config does not say: 32 MiB.
const DefaultBudget = 32 << 20

// Mux holds the sockets of one loop.
type Mux struct {
	cfg Config
}

// Stats counts what a Mux did, in datagrams.
type Stats struct {
	Received uint64                  // Input, each of those merged
	Queued   uint64                  // copies: multicast may have several for one received
	Sent     uint64                  // taken by the Output
	Dropped  [packet.Verdicts]uint64 // received and not queued anywhere, by reason
	Lost     uint64                  // not queued on one socket for want of room, DropSocketFull and copies
	Sockets  int
	Memory   int64 // bytes of queues and leases now
}

// NewMux returns a Mux without sockets.
func NewMux(cfg Config) *Mux { return &Mux{cfg: cfg} }

// Input borrows a received datagram whose checksum is right, or absent and said to be. t is the flow
// as this host sees it: Local is the destination, a group or broadcast address too. Deliver says that
// at least one socket has it; otherwise it is the reason of the drop, DropNoSocket where the host
// answers that the port is unreachable (unless it came to a group or broadcast address).
func (m *Mux) Input(now clock.Time, t *ip.Tuple, d *Datagram) packet.Verdict {
	return packet.DropNoSocket
}

// Poll tells owners what happened since the last call, and returns when it wants to be called next:
// Never, or soon when a Write waits for room.
func (m *Mux) Poll(now clock.Time) clock.Time { return clock.Never }

// Bind returns a socket that receives what comes to an address and port. The zero address is any, of
// both versions unless V6Only; ip.From4 of 0.0.0.0 is any of IPv4. Port 0 is chosen. A multicast
// address receives only what comes to that group.
func (m *Mux) Bind(local ip.Addr, port uint16, o *Options, owner Owner) (*Socket, error) {
	return nil, ErrNoPort
}

// Connect returns a socket that receives what comes from one peer and sends to it by default. Local
// must be an address (the host's for the way to Remote, see ip.Node); LocalPort 0 is chosen so that
// Config.Owns holds.
func (m *Mux) Connect(t ip.Tuple, o *Options, owner Owner) (*Socket, error) {
	return nil, ErrNoPort
}

// Stats returns the counters.
func (m *Mux) Stats() Stats { return Stats{} }

// Each calls f with every socket, in no order. f must not open or close any.
func (m *Mux) Each(f func(*Socket)) {}

// Socket is an endpoint of a Mux.
type Socket struct{}

// Close takes the socket out of the Mux and frees its queue. Owner is told nothing any more.
func (s *Socket) Close(now clock.Time) {}

// Tuple returns the addresses: Remote is zero unless connected.
func (s *Socket) Tuple() ip.Tuple { return ip.Tuple{} }

// Read fills messages with datagrams that wait and returns how many it filled.
func (s *Socket) Read(now clock.Time, msgs []Message) int { return 0 }

// Write sends messages and returns how many have gone. Where that is not all, the verdict says why the
// next one has not: see Output.Send. After DropTxFull the owner is told Writable when to try again.
func (s *Socket) Write(now clock.Time, msgs []Message) (int, packet.Verdict) {
	return 0, packet.DropTxFull
}

// TakeErr returns and clears the error that ICMP reported to a connected socket; nil is none.
func (s *Socket) TakeErr() error { return nil }

// Join has the socket receive a group by an interface (0: by the routes), from source or, where that is
// the zero address, from anywhere.
func (s *Socket) Join(now clock.Time, iface uint32, group, source ip.Addr) error { return nil }

// Leave undoes a Join.
func (s *Socket) Leave(now clock.Time, iface uint32, group, source ip.Addr) error { return nil }

// Steer sets how the group of s chooses among its sockets; nil goes by the flow's hash.
func (s *Socket) Steer(st *Steering) error { return nil }
