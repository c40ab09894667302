package wire

import "net/netip"

// ARPLen is the length of an ARP packet for IPv4 over Ethernet.
const ARPLen = 28

// ARP operations (RFC 826).
const (
	ARPRequest uint16 = 1
	ARPReply   uint16 = 2
)

// ARP is a view of an ARP packet for IPv4 over Ethernet.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|       Hardware Type = 1       |    Protocol Type = 0x0800     |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  HW Len = 6   | Proto Len = 4 |           Operation           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                    Sender Hardware Address                    |
//	+                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                               | Sender Protocol Address       |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|        (continued)            | Target Hardware Address       |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//	|                          (continued)                          |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                    Target Protocol Address                    |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 826.
type ARP []byte

// arpEthernetIPv4 is hardware type 1, protocol type IPv4, lengths 6 and 4.
const arpEthernetIPv4 = "\x00\x01\x08\x00\x06\x04"

// Valid reports whether the packet is whole and for IPv4 over Ethernet.
func (b ARP) Valid() bool { return len(b) >= ARPLen && string(b[:6]) == arpEthernetIPv4 }

// Op returns the operation: ARPRequest or ARPReply.
func (b ARP) Op() uint16 { return u16(b, 6) }

// SenderMAC returns the sender's link-layer address.
func (b ARP) SenderMAC() MAC { return MAC(b[8:14]) }

// Sender returns the sender's IPv4 address; 0.0.0.0 in a probe (RFC 5227 2.1.1).
func (b ARP) Sender() [4]byte { return [4]byte(b[14:18]) }

// TargetMAC returns the target's link-layer address; without meaning in a request.
func (b ARP) TargetMAC() MAC { return MAC(b[18:24]) }

// Target returns the IPv4 address that is asked for, or that the reply goes to.
func (b ARP) Target() [4]byte { return [4]byte(b[24:28]) }

// SenderAddr returns the sender's IPv4 address.
func (b ARP) SenderAddr() netip.Addr { return netip.AddrFrom4(b.Sender()) }

// TargetAddr returns the target's IPv4 address.
func (b ARP) TargetAddr() netip.Addr { return netip.AddrFrom4(b.Target()) }

// SetOp writes the operation.
func (b ARP) SetOp(op uint16) { put16(b, 6, op) }

// SetSenderMAC writes the sender's link-layer address.
func (b ARP) SetSenderMAC(a MAC) { copy(b[8:14], a[:]) }

// SetSender writes the sender's IPv4 address.
func (b ARP) SetSender(a [4]byte) { copy(b[14:18], a[:]) }

// SetTargetMAC writes the target's link-layer address.
func (b ARP) SetTargetMAC(a MAC) { copy(b[18:24], a[:]) }

// SetTarget writes the target's IPv4 address.
func (b ARP) SetTarget(a [4]byte) { copy(b[24:28], a[:]) }

// ARPHost is one end of an ARP packet: a link-layer address and the IPv4 address that it has.
type ARPHost struct {
	MAC  MAC
	Addr [4]byte
}

// AppendARP appends an ARP packet without Ethernet header to b.
func AppendARP(b []byte, op uint16, sender, target ARPHost) []byte {
	b = append(b, arpEthernetIPv4...)
	b = append(b, byte(op>>8), byte(op))
	b = append(b, sender.MAC[:]...)
	b = append(b, sender.Addr[:]...)
	b = append(b, target.MAC[:]...)
	return append(b, target.Addr[:]...)
}

// ReplyFrom turns a request into the reply of the host with link-layer address mac, which has the
// address that was asked for: sender and target change places (RFC 826, packet reception).
func (b ARP) ReplyFrom(mac MAC) {
	asker, asked := ARPHost{b.SenderMAC(), b.Sender()}, b.Target()
	AppendARP(b[:0], ARPReply, ARPHost{mac, asked}, asker)
}
