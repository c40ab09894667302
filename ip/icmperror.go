package ip

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// ErrorKind is the meaning of an ICMP error, the same for both versions.
type ErrorKind uint8

// Kinds of errors. A soft error may pass, and TCP only records it; a hard one means that later packets will fail as well
// (RFC 1122 4.2.3.9). What a connection does about either is the transport's decision (RFC 5461, RFC 5927).
const (
	NetUnreachable   ErrorKind = iota // no route: soft
	HostUnreachable                   // also: the neighbour does not answer: soft
	ProtoUnreachable                  // hard
	PortUnreachable                   // hard
	TooBig                            // MTU is the largest packet that fits
	Prohibited                        // by policy: soft
	TimeExceeded                      // TTL, or reassembly time
	ParameterProblem
)

var errorNames = [...]string{
	"net unreachable", "host unreachable", "protocol unreachable", "port unreachable",
	"packet too big", "prohibited", "time exceeded", "parameter problem",
}

// String returns the kind in words.
func (k ErrorKind) String() string { return errorNames[k] }

// ICMPError is an ICMP error about a packet that this host sent, or that it gave up itself.
type ICMPError struct {
	Kind  ErrorKind
	Local bool       // no message: the neighbour did not answer
	Type  uint8      // of the message, with Code, as they came
	Code  uint8      //
	MTU   int        // of TooBig, within bounds: what Node.MTU returns once Config.Error has confirmed the packet
	From  wire.Addr  // sender of the message
	Proto uint8      // of the packet
	Tuple wire.Tuple // of the packet, as this host sees the flow; of an echo LocalPort is the identifier; else without ports
	Quote []byte     // of the packet, from its transport header on, at least 8 bytes; borrowed
}

// Seq returns the sequence number of the TCP segment that the error is about (RFC 5927 4.1).
func (e *ICMPError) Seq() uint32 { return binary.BigEndian.Uint32(e.Quote[4:]) }

// kind4 returns the kind of an ICMP error (RFC 792, RFC 1122 3.2.2.1). Unknown codes count as NetUnreachable, the softest.
func kind4(typ, code uint8) ErrorKind {
	switch {
	case typ == wire.ICMPTimeExceeded:
		return TimeExceeded
	case typ == wire.ICMPParamProblem:
		return ParameterProblem
	}
	switch code {
	case wire.ICMPHostUnreachable, 7, 12: // RFC 1122 3.2.2.1: unknown, for this type of service
		return HostUnreachable
	case wire.ICMPProtoUnreachable:
		return ProtoUnreachable
	case wire.ICMPPortUnreachable:
		return PortUnreachable
	case wire.ICMPFragmentationNeeded:
		return TooBig
	case 9, 10, wire.ICMPAdminProhibited, 14, 15: // RFC 1122 3.2.2.1, RFC 1812 5.2.7.1
		return Prohibited
	}
	return NetUnreachable
}

// kind6 returns the kind of an ICMPv6 error (RFC 4443 3). An unknown error type is read as destination unreachable: it has
// to be passed to the transport (RFC 4443 2.4 (a)).
func kind6(typ, code uint8) ErrorKind {
	switch typ {
	case wire.ICMPv6TooBig:
		return TooBig
	case wire.ICMPv6TimeExceeded:
		return TimeExceeded
	case wire.ICMPv6ParamProblem:
		if code == 1 { // unrecognized next header
			return ProtoUnreachable
		}
		return ParameterProblem
	}
	switch code {
	case wire.ICMPv6AddressUnreachable:
		return HostUnreachable
	case wire.ICMPv6PortUnreachable:
		return PortUnreachable
	case wire.ICMPv6AdminProhibited, 5, 6:
		return Prohibited
	}
	return NetUnreachable
}

// handleError4 takes an ICMP error.
func (n *Node) handleError4(g *Datagram, m wire.ICMP) packet.Verdict {
	e := &n.failure
	*e = ICMPError{Kind: kind4(m.Type(), m.Code()), Type: m.Type(), Code: m.Code(), From: g.Src, MTU: int(m.MTU())}
	return n.handleError(e, m.Payload())
}

// handleError6 takes an ICMPv6 error.
func (n *Node) handleError6(g *Datagram, m wire.ICMPv6) packet.Verdict {
	e := &n.failure
	*e = ICMPError{Kind: kind6(m.Type(), m.Code()), Type: m.Type(), Code: m.Code(), From: g.Src, MTU: int(m.MTU())}
	return n.handleError(e, m.Payload())
}

// handleError delivers e, which quotes the start of a packet. The quote must be from an address of this host and reach 8
// bytes into its transport header: with ports and, for TCP, the sequence number, the transport can verify that it has sent
// the packet (RFC 5927 4).
func (n *Node) handleError(e *ICMPError, quote []byte) packet.Verdict {
	size, ok := e.parseQuote(quote)
	if !ok || !n.isLocalAddr(e.Tuple.Local) {
		return packet.DropICMP
	}
	if e.Kind == TooBig {
		return n.handleTooBig(e, size)
	}
	// An error about a packet that no transport has sent is counted as a drop: it is forged, or late.
	if !n.deliverError(e) {
		return packet.DropICMP
	}
	return packet.Deliver
}

// deliverError passes e to the transport and reports whether that confirms the packet as its own.
func (n *Node) deliverError(e *ICMPError) bool { return n.cfg.Error != nil && n.cfg.Error(n.now, e) }

// handleTooBig lowers the path MTU to a destination (RFC 1191 6.3, RFC 8201 4), if the report is plausible and a transport
// confirms that it sent the quoted packet (RFC 5927 7). Without that, one forged message slows down all connections to
// a destination. The other nodes of the host use the same path, so the change is reported.
func (n *Node) handleTooBig(e *ICMPError, size int) packet.Verdict {
	// The bounds come first: e.MTU must be one that the transport may use when it confirms the packet.
	mtu, ok := n.plausibleMTU(e.Tuple.Remote, e.MTU, size)
	if !ok {
		n.stats.RejectedMTUs++
		return packet.DropICMP
	}
	e.MTU = mtu
	if !n.deliverError(e) {
		n.stats.RejectedMTUs++
		return packet.DropICMP
	}
	if n.storePMTU(e.Tuple.Remote, mtu, n.now.Add(pmtuAge)) {
		n.notifyChange(&Change{Kind: PathMTU, Addr: e.Tuple.Remote, MTU: mtu})
	}
	return packet.Deliver
}

// parseQuote reads the flow from the quoted start of a packet of this host, and returns the packet's length in bytes.
func (e *ICMPError) parseQuote(b []byte) (size int, ok bool) {
	q, why := ReadQuote(b)
	if why != packet.Forward {
		return 0, false
	}
	e.Proto, e.Tuple, e.Quote = q.Proto, q.Flow, b[q.L4:]
	return q.Size, true
}

// deliverUnreachable reports to the sender of the frame f, which waited for a neighbour, that there was no answer: as an
// ICMP error from this host itself would (RFC 4861 7.2.2), but without a message.
func (n *Node) deliverUnreachable(f []byte) {
	e := &n.failure
	*e = ICMPError{Kind: HostUnreachable, Local: true}
	if _, ok := e.parseQuote(f[wire.EthernetLen:]); ok {
		e.From = e.Tuple.Local
		n.deliverError(e)
	}
}
