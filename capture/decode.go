package capture

import (
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Decoded holds the fields that an independent decoder, gopacket, finds in an Ethernet frame. It is the oracle
// that `millrace replay --verify` holds the packet path against, and has no other use: it is a
// hundred times slower.
type Decoded struct {
	Tags     int        // VLAN tags between Ethernet and the network header
	L3       int        // offset of the IP header; 0 where none was found
	Src, Dst netip.Addr // of the IP header
	Proto    uint8      // of what follows IP and its extension headers

	Fragment, LaterFragment bool
	Refused                 bool // an IPv4 header, for options that do not fit it: nothing of it was decoded

	L4               int // offset of a TCP, UDP, SCTP, ICMP or ICMPv6 header; 0 where none was found
	Payload          int // offset behind it; 0 for ICMPv6, which the decoder cuts elsewhere
	SrcPort, DstPort uint16

	IPSum, L4Sum Checksum

	network gopacket.NetworkLayer // the IP header, for the pseudo-header of checksums
}

// Checksum is the decoder's result for a checksum.
type Checksum uint8

// The results.
const (
	NotVerified Checksum = iota
	Right
	Wrong
)

// Decode decodes an Ethernet frame as far as the first transport header. Where the decoder rejects
// a header, the fields from there on are zero.
func Decode(frame []byte) (d Decoded) {
	opts := gopacket.DecodeOptions{NoCopy: true, DecodeStreamsAsDatagrams: true}
	at := 0
	for _, l := range gopacket.NewPacket(frame, layers.LayerTypeEthernet, opts).Layers() {
		if !d.take(l, at) {
			break
		}
		at += len(l.LayerContents())
	}
	return d
}

// take reads the layer l at offset at; false means that nothing behind it matters.
func (d *Decoded) take(l gopacket.Layer, at int) bool {
	switch l := l.(type) {
	case *layers.Ethernet:
		return true
	case *layers.Dot1Q:
		d.Tags++
		return d.Tags <= 2 && d.L3 == 0
	case *layers.PPPoE:
		return d.L3 == 0 && l.Code == layers.PPPoECodeSession
	case *layers.PPP, *layers.MPLS:
		return d.L3 == 0
	case *layers.IPv4:
		return d.ipv4(l, at)
	case *layers.IPv6:
		return d.ipv6(l, at)
	case *layers.IPv6HopByHop:
		d.Proto = uint8(l.NextHeader)
		return true
	case *layers.IPv6Routing:
		d.Proto = uint8(l.NextHeader)
		return true
	case *layers.IPv6Destination:
		d.Proto = uint8(l.NextHeader)
		return true
	case *layers.IPv6Fragment:
		d.Proto = uint8(l.NextHeader)
		d.Fragment = l.MoreFragments || l.FragmentOffset != 0
		d.LaterFragment = l.FragmentOffset != 0
		return !d.LaterFragment
	}
	if d.L3 != 0 {
		d.transport(l, at)
	}
	return false
}

func (d *Decoded) ipv4(l *layers.IPv4, at int) bool {
	if d.L3 != 0 { // inside of a tunnel
		return false
	}
	if l.SrcIP == nil { // the decoder reads options before addresses
		d.Refused = true
		return false
	}
	d.L3, d.Proto, d.network = at, uint8(l.Protocol), l
	d.Src, _ = netip.AddrFromSlice(l.SrcIP.To4())
	d.Dst, _ = netip.AddrFromSlice(l.DstIP.To4())
	d.LaterFragment = l.FragOffset != 0
	d.Fragment = d.LaterFragment || l.Flags&layers.IPv4MoreFragments != 0
	d.IPSum = verified(l)
	return !d.LaterFragment
}

func (d *Decoded) ipv6(l *layers.IPv6, at int) bool {
	if d.L3 != 0 {
		return false
	}
	d.L3, d.Proto, d.network = at, uint8(l.NextHeader), l
	d.Src, _ = netip.AddrFromSlice(l.SrcIP)
	d.Dst, _ = netip.AddrFromSlice(l.DstIP)
	return true
}

func (d *Decoded) transport(l gopacket.Layer, at int) {
	behind := at + len(l.LayerContents())
	switch l := l.(type) {
	case *layers.TCP:
		d.SrcPort, d.DstPort = uint16(l.SrcPort), uint16(l.DstPort)
	case *layers.UDP:
		d.SrcPort, d.DstPort = uint16(l.SrcPort), uint16(l.DstPort)
	case *layers.SCTP:
		d.SrcPort, d.DstPort = uint16(l.SrcPort), uint16(l.DstPort)
	case *layers.ICMPv4:
	case *layers.ICMPv6:
		behind = 0
	default:
		return
	}
	d.L4, d.Payload = at, behind
	if pseudo, ok := l.(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok && pseudo.SetNetworkLayerForChecksum(d.network) != nil {
		return
	}
	if sum, ok := l.(gopacket.LayerWithChecksum); ok {
		d.L4Sum = verified(sum)
	}
}

// verified returns the result of a layer's checksum.
func verified(l gopacket.LayerWithChecksum) Checksum {
	err, res := l.VerifyChecksum()
	switch {
	case err != nil:
		return NotVerified
	case res.Valid:
		return Right
	}
	return Wrong
}
