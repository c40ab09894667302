package packet

// Verdict is the decision about a packet. The values from Drop on are the reasons of drops: a drop
// without a reason cannot be expressed, so every lost packet has a counter.
type Verdict uint8

// Verdicts that keep the packet.
const (
	Undecided Verdict = iota // not decided yet
	Forward                  // transmit on device Desc.Port
	Deliver                  // a local consumer has taken the frame
	Handover                 // the loop that Desc.Flow names decides
	Hold                     // the handler keeps the packet for now, and decides later
	Release                  // a frame without a packet: it returns to the pool and counts as nothing
)

// Verdicts that drop the packet, by reason.
const (
	DropMalformed      Verdict = 16 + iota // a length or version contradicts the bytes
	DropTruncated                          // headers go on beyond the captured bytes
	DropIPChecksum                         // IPv4 header checksum is wrong
	DropL4Checksum                         // TCP, UDP, ICMP or ICMPv6 checksum is wrong
	DropUnsupported                        // neither IPv4, IPv6 nor a protocol that is served here
	DropFragment                           // a fragment where only whole packets are served
	DropRule                               // denied by an ACL rule
	DropNoService                          // no service has this address, protocol and port
	DropNoFlow                             // belongs to no known flow and may not start one
	DropNoBackend                          // the service has no healthy backend
	DropNoRoute                            // no route to the next hop
	DropNoNeighbor                         // the next hop's link address is not known (yet), its neighbour does not answer, or too many packets wait for it
	DropTTL                                // TTL or hop limit has run out, or is lower than a socket takes
	DropTableFull                          // the flow table is full
	DropPortsFull                          // no source port is left for address translation
	DropTooBig                             // larger than the MTU of the output device
	DropTxFull                             // the transmit ring stayed full
	DropLinkDown                           // the output device is down or gone
	DropNoFrame                            // no frame was free to hold the packet
	DropDenied                             // the source is on a deny list, or not on an allow list
	DropRateLimit                          // the source sends more than it may
	DropImpaired                           // lost on purpose by an Impair wrapper
	DropEngine                             // the engine failed or refused the batch
	DropHandover                           // the loop that decides about it had no room or no frame, or has ended
	DropNotOurs                            // neither an address of this host nor a group that it has joined
	DropNoSocket                           // no socket has this address, protocol and port
	DropSocketFull                         // the socket's receive queue is full
	DropSequence                           // outside of the receive window, or a duplicate (RFC 9293 3.10.7.4)
	DropState                              // not allowed in the connection's state, or forged
	DropBacklog                            // the listener's queues are full
	DropMemory                             // the budget of bytes for buffers is used up
	DropAuth                               // a missing or wrong signature (TCP-AO, TCP-MD5)
	DropReassembly                         // a fragment that overlaps, came too late or exceeds the reassembly limits
	DropNeighbor                           // ARP or neighbour discovery that is malformed, forged or unsolicited
	DropICMP                               // an ICMP message about an unknown packet, or of a type that is not served
	DropBackendFull                        // the service's backends have as many connections as they may
	DropInspection                         // an inspection rule drops the packet, or has blocked its flow
	DropInspectionFull                     // inspection has no memory or steps left for the packet, and lets none pass uninspected
	DropMartian                            // a source that no packet from another host can have
	dropEnd
)

// Drop is the first verdict that drops.
const Drop = DropMalformed

// Verdicts is one more than the largest verdict: the size of a table indexed by verdict.
const Verdicts = int(dropEnd)

// Dropped reports whether v drops the packet.
func (v Verdict) Dropped() bool { return v >= Drop }

var verdictNames = [Verdicts]string{
	Undecided: "undecided", Forward: "forward", Deliver: "deliver", Handover: "handover",
	Hold: "hold", Release: "release",
	DropMalformed: "malformed", DropTruncated: "truncated",
	DropIPChecksum: "ip_checksum", DropL4Checksum: "l4_checksum",
	DropUnsupported: "unsupported", DropFragment: "fragment", DropRule: "rule",
	DropNoService: "no_service", DropNoFlow: "no_flow", DropNoBackend: "no_backend",
	DropNoRoute: "no_route", DropNoNeighbor: "no_neighbor", DropTTL: "ttl",
	DropTableFull: "table_full", DropPortsFull: "ports_full", DropTooBig: "too_big",
	DropTxFull: "tx_full", DropLinkDown: "link_down", DropNoFrame: "no_frame",
	DropDenied: "denied", DropRateLimit: "rate_limit",
	DropImpaired: "impaired", DropEngine: "engine", DropHandover: "handover_full",
	DropNotOurs: "not_ours", DropNoSocket: "no_socket", DropSocketFull: "socket_full",
	DropSequence: "sequence", DropState: "state", DropBacklog: "backlog", DropMemory: "memory",
	DropAuth: "auth", DropReassembly: "reassembly", DropBackendFull: "backend_full",
	DropInspection: "inspection", DropInspectionFull: "inspection_full",
	DropNeighbor: "invalid_neighbor", DropICMP: "icmp", DropMartian: "martian",
}

// String returns the name under which the verdict is counted: lower case, words joined by "_".
func (v Verdict) String() string {
	if int(v) < len(verdictNames) && verdictNames[v] != "" {
		return verdictNames[v]
	}
	return "unknown"
}
