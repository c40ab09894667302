package capture

import (
	"encoding/binary"
	"math"
)

// EtherTypes and headers between Ethernet and the network header.
const (
	etherQinQ    = 0x88A8
	etherQinQOld = 0x9100 // of switches before IEEE 802.1ad
	etherMPLSUp  = 0x8848
	mostHeaders  = 128 // bytes between Ethernet and the network header; a descriptor's L3 has 8 bits
	mostLabels   = 8   // of an MPLS stack, as in the header pass
)

// network is the place of a network header, behind tags and LLC.
type network struct {
	off   int // in bytes behind the EtherType that begins the walk
	ether uint16
	tags  int
	odd   bool // behind headers that the header pass does not read
	moved bool // the EtherType is not in the two bytes in front of off
}

// findNetwork walks the headers in p, which begins with what EtherType ether names: VLAN tags, LLC of SNAP (RFC 1042) or IP
// (SAP 06), and a PPPoE session with a PPP protocol of one octet (RFC 1661 6.5). False means that p ends within them.
func findNetwork(ether uint16, p []byte) (n network, ok bool) {
	for n.ether = ether; n.off < mostHeaders; {
		q := p[min(n.off, len(p)):]
		switch {
		case n.ether == etherVLAN, n.ether == etherQinQ, n.ether == etherQinQOld:
			if len(q) < 4 {
				return n, false
			}
			n.tags++
			n.odd = n.odd || n.tags > 2 || n.ether == etherQinQOld
			n.off, n.ether, n.moved = n.off+4, binary.BigEndian.Uint16(q[2:]), false
		case n.ether < etherMin && len(q) >= 8 && [6]byte(q) == [6]byte{0xAA, 0xAA, 0x03}:
			n.off, n.ether, n.odd, n.moved = n.off+8, binary.BigEndian.Uint16(q[6:]), true, false
		case n.ether < etherMin && len(q) >= 3 && [3]byte(q) == [3]byte{0x06, 0x06, 0x03}:
			n.off, n.ether, n.odd, n.moved = n.off+3, etherIPv4, true, true
		case n.ether == etherPPPoE && len(q) >= 7 && q[0] == 0x11 && q[1] == 0 && q[6] == 0x21:
			n.off, n.ether, n.odd, n.moved = n.off+7, etherIPv4, true, true
		case n.ether == etherPPPoE && len(q) >= 7 && q[0] == 0x11 && q[1] == 0 && q[6] == 0x57:
			n.off, n.ether, n.odd, n.moved = n.off+7, etherIPv6, true, true
		default:
			return n, true
		}
	}
	return n, false
}

// Rebased is an Ethernet frame that begins later, so that the header pass finds the network header.
type Rebased struct {
	Shift  int    // bytes to leave out in front; 0 where the header pass reads the frame as it is
	Ether  uint16 // belongs into bytes 12 and 13 of what remains
	Moved  bool   // and is not there yet
	Tagged bool   // among the bytes left out are VLAN tags
}

// Rebase looks for a network header behind headers that the packet path of live traffic does not read: a tag of EtherType
// 9100, more than two tags, LLC, and PPP protocols of one octet. In captures IP behind them counts as IP.
func Rebase(frame []byte) Rebased {
	const header = len(EthernetHeader{})
	if len(frame) < header {
		return Rebased{}
	}
	n, ok := findNetwork(binary.BigEndian.Uint16(frame[macs:]), frame[header:])
	if !ok || !n.odd {
		return Rebased{}
	}
	switch n.ether {
	case etherIPv4, etherIPv6, etherMPLS, etherMPLSUp, etherPPPoE:
		return Rebased{Shift: n.off, Ether: n.ether, Moved: n.moved, Tagged: n.tags > 0}
	}
	return Rebased{}
}

// Readable prepares an Ethernet frame of a capture, which had wire bytes, for the packet path: it fills in the length of IP
// (FillLength) and returns the frame without what Rebase leaves out. It writes to frame.
func Readable(frame []byte, wire int) []byte {
	const header = len(EthernetHeader{})
	if len(frame) < header {
		return frame
	}
	FillLength(binary.BigEndian.Uint16(frame[macs:]), frame[header:], wire-header)
	r := Rebase(frame)
	if r.Shift > 0 {
		frame = frame[r.Shift:]
		binary.BigEndian.PutUint16(frame[macs:], r.Ether)
	}
	return frame
}

// FillLength sets the length of an IP packet in which it is 0. Hosts whose devices cut segments capture such packets, and
// jumbograms (RFC 2675) have it as well. p begins with what EtherType ether names and had wire bytes, of which the rest
// counts, at most 65535. The checksum of an IPv4 header stays as right or wrong as it was (RFC 1624). It reports whether it wrote.
//
// It is for captures only: in traffic such packets are malformed.
func FillLength(ether uint16, p []byte, wire int) bool {
	n, ok := findNetwork(ether, p)
	if !ok {
		return false
	}
	n.pastEncapsulation(p)
	ip, size := p[min(n.off, len(p)):], max(wire, len(p))-n.off
	switch {
	case n.ether == etherIPv4 && len(ip) >= 20 && ip[0]>>4 == 4 && ip[2]|ip[3] == 0:
		size = min(size, math.MaxUint16)
		binary.BigEndian.PutUint16(ip[2:], uint16(size))
		sum := uint32(^binary.BigEndian.Uint16(ip[10:])) + uint32(size)
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
		return true
	case n.ether == etherIPv6 && len(ip) >= 40 && ip[0]>>4 == 6 && ip[4]|ip[5] == 0 && size > 40:
		const noNextHeader = 59
		if ip[6] == noNextHeader {
			return false
		}
		binary.BigEndian.PutUint16(ip[4:], uint16(min(size-40, math.MaxUint16)))
		return true
	}
	return false
}

// pastEncapsulation moves n behind a PPPoE session header or an MPLS label stack, as the header pass does.
func (n *network) pastEncapsulation(p []byte) {
	q := p[min(n.off, len(p)):]
	switch n.ether {
	case etherPPPoE:
		if len(q) < 8 || q[0] != 0x11 || q[1] != 0 {
			return
		}
		switch binary.BigEndian.Uint16(q[6:]) {
		case 0x0021:
			n.off, n.ether = n.off+8, etherIPv4
		case 0x0057:
			n.off, n.ether = n.off+8, etherIPv6
		}
	case etherMPLS, etherMPLSUp:
		for at := 0; at < 4*mostLabels && len(q) > at+4; at += 4 {
			if q[at+2]&1 == 0 { // not the bottom of the stack
				continue
			}
			if ether, err := ipVersion(q[at+4:]); err == nil {
				n.off, n.ether = n.off+at+4, ether
			}
			return
		}
	}
}
