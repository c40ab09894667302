package ip

// ErrorKind is what an ICMP error says of a packet.
type ErrorKind uint8

// Kinds of errors. Hard ones say that no later packet will fare better (RFC 1122 4.2.3.9).
const (
	NetUnreachable   ErrorKind = iota // no route, or source route failed: soft
	HostUnreachable                   // also: the neighbour does not answer: soft
	ProtoUnreachable                  // hard
	PortUnreachable                   // hard
	TooBig                            // MTU is the largest packet that fits
	Prohibited                        // by policy: soft
	TimeExceeded                      // TTL, or reassembly time
	ParameterProblem
)

// ICMPError is an ICMP error about a packet that this host sent, or that it gave up itself.
type ICMPError struct {
	Kind  ErrorKind
	Local bool  // no message: the neighbour did not answer
	Type  uint8 // of the message, with Code, as they came
	Code  uint8
	MTU   int    // of TooBig, bounded and stored already
	From  Addr   // who sent the message
	Proto uint8  // of the packet
	Tuple Tuple  // of the packet, as this host sees the flow; without ports where Proto has none
	Quote []byte // of the packet, from its transport header on, at least 8 bytes; borrowed
}

// Seq returns the sequence number of a TCP segment that the error is about (RFC 5927 4.1).
func (e *ICMPError) Seq() uint32 {
	q := e.Quote
	return uint32(q[4])<<24 | uint32(q[5])<<16 | uint32(q[6])<<8 | uint32(q[7])
}
