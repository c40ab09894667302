package wire

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

var (
	asker  = netip.MustParseAddr("2001:db8::1").As16()
	asked  = netip.MustParseAddr("2001:db8::abcd:ef01").As16()
	askMAC = MAC{2, 0, 0, 0, 0, 1}
	ourMAC = MAC{2, 0, 0, 0, 0, 2}
)

// solicitation returns the IPv6 packet by which src asks for asked, changed by edit before its checksum.
func solicitation(src [16]byte, edit func(ip IPv6)) IPv6 {
	b := AppendIPv6(nil, &IPv6Header{Src: src, Dst: SolicitedNode(asked), NextHeader: ProtoICMPv6, HopLimit: 255, PayloadLen: 32})
	b = AppendNeighborSolicit(b, asked, askMAC)
	if src == ([16]byte{}) {
		b = b[:IPv6Len+NeighborSolicitLen]
		IPv6(b).SetPayloadLen(NeighborSolicitLen)
	}
	if edit != nil {
		edit(b)
	}
	ICMPv6(b[IPv6Len:]).FillChecksum(IPv6(b).Pseudo())
	return b
}

func TestNeighborReplyAnswersAndIsReadByGopacket(t *testing.T) {
	for name, c := range map[string]struct {
		src, dst [16]byte
		flags    uint8
	}{
		"a neighbor":                        {asker, asker, 0x60},
		"a host that looks for a duplicate": {[16]byte{}, AllNodes, 0x20},
	} {
		req := solicitation(c.src, nil)
		ns, ok := NeighborRequest(req)
		eq(t, name+": accepted", ok, true)
		eq(t, name+": target", ns.Target(), asked)
		b := AppendNeighborReply(nil, req, ourMAC, NAOverride)
		eq(t, "length", len(b), NDReplyLen)
		p := decode(t, b, layers.LayerTypeIPv6)
		ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		eq(t, "src", [16]byte(ip.SrcIP), asked)
		eq(t, "dst", [16]byte(ip.DstIP), c.dst)
		eq(t, "hop limit", ip.HopLimit, 255)
		na := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
		eq(t, "flags", na.Flags, c.flags)
		eq(t, "target", [16]byte(na.TargetAddress), asked)
		eq(t, "option", na.Options[0].Type, layers.ICMPv6OptTargetAddress)
		eq(t, "mac", MAC(na.Options[0].Data), ourMAC)
	}
}

func TestNeighborRequestRefusesWhatRFC4861Section711Forbids(t *testing.T) {
	for name, b := range map[string]IPv6{
		"hop limit 254":           solicitation(asker, func(ip IPv6) { ip.SetHopLimit(254) }),
		"code 1":                  solicitation(asker, func(ip IPv6) { ip[41] = 1 }),
		"another type":            solicitation(asker, func(ip IPv6) { ip[40] = ICMPv6NeighborAdvert }),
		"another protocol":        solicitation(asker, func(ip IPv6) { ip.SetNextHeader(ProtoUDP) }),
		"multicast target":        solicitation(asker, func(ip IPv6) { ip[48] = 0xff }),
		"option of length 0":      solicitation(asker, func(ip IPv6) { ip[65] = 0 }),
		"option beyond the end":   solicitation(asker, func(ip IPv6) { ip[65] = 2 }),
		"too short":               solicitation(asker, func(ip IPv6) { ip.SetPayloadLen(23) }),
		"payload cut off":         solicitation(asker, nil)[:71],
		"unspecified to unicast":  solicitation([16]byte{}, func(ip IPv6) { ip.SetDst(asked) }),
		"unspecified, all nodes":  solicitation([16]byte{}, func(ip IPv6) { ip.SetDst(AllNodes) }),
		"unspecified with source": solicitation(asker, func(ip IPv6) { ip.SetSrc([16]byte{}) }),
		"wrong checksum": func() IPv6 {
			b := bytes.Clone(solicitation(asker, nil))
			b[42] ^= 1
			return b
		}(),
	} {
		if _, ok := NeighborRequest(b); ok {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestMulticastAddressesOfASolicitation(t *testing.T) {
	eq(t, "SolicitedNode", netip.AddrFrom16(SolicitedNode(asked)), netip.MustParseAddr("ff02::1:ffcd:ef01"))
	eq(t, "MulticastMAC6", MulticastMAC6(SolicitedNode(asked)).String(), "33:33:ff:cd:ef:01")
	eq(t, "AllNodes", netip.AddrFrom16(AllNodes), netip.MustParseAddr("ff02::1"))
}

func TestNDOptionsStopAtContradictions(t *testing.T) {
	for name, c := range map[string]struct {
		b   []byte
		n   int
		bad bool
	}{
		"none":               {nil, 0, false},
		"two":                {linkOptions(1, 2), 2, false},
		"length 0":           {append(linkOptions(1), 3, 0, 0, 0, 0, 0, 0, 0), 1, true},
		"shorter than eight": {append(linkOptions(1), 3, 1, 0), 1, true},
		"beyond the end":     {append(linkOptions(1), 3, 2, 0, 0, 0, 0, 0, 0), 1, true},
	} {
		it, n := NDOptionsOf(c.b), 0
		for it.Next() {
			n++
		}
		eq(t, name, n, c.n)
		eq(t, name+": Malformed", it.Malformed(), c.bad)
	}
	_, ok := ParseNDPrefix(make([]byte, 29))
	eq(t, "prefix of a wrong length", ok, false)
	_, ok = ParseNDPrefix(append([]byte{129}, make([]byte, 29)...))
	eq(t, "prefix of 129 bits", ok, false)
	_, ok = ParseNDMTU(make([]byte, 14))
	eq(t, "MTU of a wrong length", ok, false)
}

func linkOptions(types ...uint8) (b []byte) {
	for _, typ := range types {
		b = AppendNDLinkAddr(b, typ, ourMAC)
	}
	return b
}
