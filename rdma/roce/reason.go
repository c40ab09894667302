package roce

// Reason is the cause for which Parse refuses a frame, or Verify a packet.
type Reason uint8

// The reasons; Accepted is none.
const (
	Accepted   Reason = iota
	NotRoCE           // neither UDP to port 4791 nor RoCEv1's EtherType
	Truncated         // headers or the length that they claim go on beyond the bytes
	BadLength         // lengths contradict each other, or the opcode has no payload
	Fragmented        // a fragment: RoCE packets are never fragmented (A17.4.5)
	BadVersion        // transport version is not 0
	BadOpcode         // reserved, or of a transport that is not served
	BadAddress        // an IPv4-mapped address in an IPv6 header, which is never on a wire (RFC 4942 2.2)
	BadICRC           // invariant CRC is wrong
	Reasons           // their number
)

// String returns the name under which the reason is counted.
func (r Reason) String() string {
	return [...]string{
		"accepted", "not_roce", "truncated", "length", "fragment", "transport_version", "opcode", "address", "icrc", "unknown",
	}[min(r, Reasons)]
}
