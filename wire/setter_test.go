package wire

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// field is a getter and its setter over a view that starts as random bytes. Getters are compared with an
// oracle elsewhere; here a setter must be undone by setting the old value, which shows that it wrote
// nothing but its field, and every bit of the field must change when all of them do.
type field struct {
	name string
	n    int // bytes of the view
	bits int // width of the values
	mask int // bits that a value can have; 0 is all of them
	get  func(b []byte) uint64
	set  func(b []byte, v uint64)
}

func b2u(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}

func mac2u(m MAC) uint64 {
	return uint64(binary.BigEndian.Uint16(m[:]))<<32 | uint64(binary.BigEndian.Uint32(m[2:]))
}
func u2mac(v uint64) MAC   { return MAC(binary.BigEndian.AppendUint64(nil, v)[2:]) }
func a2u(a [4]byte) uint64 { return uint64(binary.BigEndian.Uint32(a[:])) }
func u2a(v uint64) [4]byte { return [4]byte(binary.BigEndian.AppendUint32(nil, uint32(v))) }

var fields = []field{
	{"Ethernet.Dst", 14, 48, 0, func(b []byte) uint64 { return mac2u(Ethernet(b).Dst()) }, func(b []byte, v uint64) { Ethernet(b).SetDst(u2mac(v)) }},
	{"Ethernet.Src", 14, 48, 0, func(b []byte) uint64 { return mac2u(Ethernet(b).Src()) }, func(b []byte, v uint64) { Ethernet(b).SetSrc(u2mac(v)) }},
	{"Ethernet.EtherType", 14, 16, 0, func(b []byte) uint64 { return uint64(Ethernet(b).EtherType()) }, func(b []byte, v uint64) { Ethernet(b).SetEtherType(uint16(v)) }},
	{"VLAN.TCI", 4, 16, 0, func(b []byte) uint64 { return uint64(VLAN(b).TCI()) }, func(b []byte, v uint64) { VLAN(b).SetTCI(uint16(v)) }},
	{"VLAN.ID", 4, 12, 0, func(b []byte) uint64 { return uint64(VLAN(b).ID()) }, func(b []byte, v uint64) { VLAN(b).SetID(uint16(v)) }},
	{"VLAN.Priority", 4, 3, 0, func(b []byte) uint64 { return uint64(VLAN(b).Priority()) }, func(b []byte, v uint64) { VLAN(b).SetPriority(uint8(v)) }},
	{"VLAN.DropEligible", 4, 1, 0, func(b []byte) uint64 { return b2u(VLAN(b).DropEligible()) }, func(b []byte, v uint64) { VLAN(b).SetDropEligible(v != 0) }},
	{"VLAN.EtherType", 4, 16, 0, func(b []byte) uint64 { return uint64(VLAN(b).EtherType()) }, func(b []byte, v uint64) { VLAN(b).SetEtherType(uint16(v)) }},
	{"ARP.Op", 28, 16, 0, func(b []byte) uint64 { return uint64(ARP(b).Op()) }, func(b []byte, v uint64) { ARP(b).SetOp(uint16(v)) }},
	{"ARP.SenderMAC", 28, 48, 0, func(b []byte) uint64 { return mac2u(ARP(b).SenderMAC()) }, func(b []byte, v uint64) { ARP(b).SetSenderMAC(u2mac(v)) }},
	{"ARP.Sender", 28, 32, 0, func(b []byte) uint64 { return a2u(ARP(b).Sender()) }, func(b []byte, v uint64) { ARP(b).SetSender(u2a(v)) }},
	{"ARP.TargetMAC", 28, 48, 0, func(b []byte) uint64 { return mac2u(ARP(b).TargetMAC()) }, func(b []byte, v uint64) { ARP(b).SetTargetMAC(u2mac(v)) }},
	{"ARP.Target", 28, 32, 0, func(b []byte) uint64 { return a2u(ARP(b).Target()) }, func(b []byte, v uint64) { ARP(b).SetTarget(u2a(v)) }},
	{"IPv4.TOS", 20, 8, 0, func(b []byte) uint64 { return uint64(IPv4(b).TOS()) }, func(b []byte, v uint64) { IPv4(b).SetTOS(uint8(v)) }},
	{"IPv4.DSCP", 20, 6, 0, func(b []byte) uint64 { return uint64(IPv4(b).DSCP()) }, func(b []byte, v uint64) { IPv4(b).SetDSCP(uint8(v)) }},
	{"IPv4.ECN", 20, 2, 0, func(b []byte) uint64 { return uint64(IPv4(b).ECN()) }, func(b []byte, v uint64) { IPv4(b).SetECN(ECN(v)) }},
	{"IPv4.TotalLen", 20, 16, 0, func(b []byte) uint64 { return uint64(IPv4(b).TotalLen()) }, func(b []byte, v uint64) { IPv4(b).SetTotalLen(uint16(v)) }},
	{"IPv4.ID", 20, 16, 0, func(b []byte) uint64 { return uint64(IPv4(b).ID()) }, func(b []byte, v uint64) { IPv4(b).SetID(uint16(v)) }},
	{"IPv4.DontFragment", 20, 1, 0, func(b []byte) uint64 { return b2u(IPv4(b).DontFragment()) }, func(b []byte, v uint64) { IPv4(b).SetDontFragment(v != 0) }},
	{"IPv4.MoreFragments", 20, 1, 0, func(b []byte) uint64 { return b2u(IPv4(b).MoreFragments()) }, func(b []byte, v uint64) { IPv4(b).SetMoreFragments(v != 0) }},
	{"IPv4.FragmentOffset", 20, 16, 0xfff8, func(b []byte) uint64 { return uint64(IPv4(b).FragmentOffset()) }, func(b []byte, v uint64) { IPv4(b).SetFragmentOffset(int(v)) }},
	{"IPv4.TTL", 20, 8, 0, func(b []byte) uint64 { return uint64(IPv4(b).TTL()) }, func(b []byte, v uint64) { IPv4(b).SetTTL(uint8(v)) }},
	{"IPv4.Proto", 20, 8, 0, func(b []byte) uint64 { return uint64(IPv4(b).Proto()) }, func(b []byte, v uint64) { IPv4(b).SetProto(uint8(v)) }},
	{"IPv4.Checksum", 20, 16, 0, func(b []byte) uint64 { return uint64(IPv4(b).Checksum()) }, func(b []byte, v uint64) { IPv4(b).SetChecksum(uint16(v)) }},
	{"IPv4.Src", 20, 32, 0, func(b []byte) uint64 { return a2u(IPv4(b).Src()) }, func(b []byte, v uint64) { IPv4(b).SetSrc(u2a(v)) }},
	{"IPv4.Dst", 20, 32, 0, func(b []byte) uint64 { return a2u(IPv4(b).Dst()) }, func(b []byte, v uint64) { IPv4(b).SetDst(u2a(v)) }},
	{"IPv6.TrafficClass", 40, 8, 0, func(b []byte) uint64 { return uint64(IPv6(b).TrafficClass()) }, func(b []byte, v uint64) { IPv6(b).SetTrafficClass(uint8(v)) }},
	{"IPv6.ECN", 40, 2, 0, func(b []byte) uint64 { return uint64(IPv6(b).ECN()) }, func(b []byte, v uint64) { IPv6(b).SetECN(ECN(v)) }},
	{"IPv6.FlowLabel", 40, 20, 0, func(b []byte) uint64 { return uint64(IPv6(b).FlowLabel()) }, func(b []byte, v uint64) { IPv6(b).SetFlowLabel(uint32(v)) }},
	{"IPv6.PayloadLen", 40, 16, 0, func(b []byte) uint64 { return uint64(IPv6(b).PayloadLen()) }, func(b []byte, v uint64) { IPv6(b).SetPayloadLen(uint16(v)) }},
	{"IPv6.NextHeader", 40, 8, 0, func(b []byte) uint64 { return uint64(IPv6(b).NextHeader()) }, func(b []byte, v uint64) { IPv6(b).SetNextHeader(uint8(v)) }},
	{"IPv6.HopLimit", 40, 8, 0, func(b []byte) uint64 { return uint64(IPv6(b).HopLimit()) }, func(b []byte, v uint64) { IPv6(b).SetHopLimit(uint8(v)) }},
	{"UDP.SrcPort", 8, 16, 0, func(b []byte) uint64 { return uint64(UDP(b).SrcPort()) }, func(b []byte, v uint64) { UDP(b).SetSrcPort(uint16(v)) }},
	{"UDP.DstPort", 8, 16, 0, func(b []byte) uint64 { return uint64(UDP(b).DstPort()) }, func(b []byte, v uint64) { UDP(b).SetDstPort(uint16(v)) }},
	{"UDP.Len", 8, 16, 0, func(b []byte) uint64 { return uint64(UDP(b).Len()) }, func(b []byte, v uint64) { UDP(b).SetLen(uint16(v)) }},
	{"UDP.Checksum", 8, 16, 0, func(b []byte) uint64 { return uint64(UDP(b).Checksum()) }, func(b []byte, v uint64) { UDP(b).SetChecksum(uint16(v)) }},
	{"TCP.SrcPort", 20, 16, 0, func(b []byte) uint64 { return uint64(TCP(b).SrcPort()) }, func(b []byte, v uint64) { TCP(b).SetSrcPort(uint16(v)) }},
	{"TCP.DstPort", 20, 16, 0, func(b []byte) uint64 { return uint64(TCP(b).DstPort()) }, func(b []byte, v uint64) { TCP(b).SetDstPort(uint16(v)) }},
	{"TCP.Seq", 20, 32, 0, func(b []byte) uint64 { return uint64(TCP(b).Seq()) }, func(b []byte, v uint64) { TCP(b).SetSeq(uint32(v)) }},
	{"TCP.Ack", 20, 32, 0, func(b []byte) uint64 { return uint64(TCP(b).Ack()) }, func(b []byte, v uint64) { TCP(b).SetAck(uint32(v)) }},
	{"TCP.DataOffset", 20, 6, 0x3c, func(b []byte) uint64 { return uint64(TCP(b).DataOffset()) }, func(b []byte, v uint64) { TCP(b).SetDataOffset(int(v)) }},
	{"TCP.AE", 20, 1, 0, func(b []byte) uint64 { return b2u(TCP(b).AE()) }, func(b []byte, v uint64) { TCP(b).SetAE(v != 0) }},
	{"TCP.Flags", 20, 8, 0, func(b []byte) uint64 { return uint64(TCP(b).Flags()) }, func(b []byte, v uint64) { TCP(b).SetFlags(TCPFlags(v)) }},
	{"TCP.Window", 20, 16, 0, func(b []byte) uint64 { return uint64(TCP(b).Window()) }, func(b []byte, v uint64) { TCP(b).SetWindow(uint16(v)) }},
	{"TCP.Checksum", 20, 16, 0, func(b []byte) uint64 { return uint64(TCP(b).Checksum()) }, func(b []byte, v uint64) { TCP(b).SetChecksum(uint16(v)) }},
	{"TCP.Urgent", 20, 16, 0, func(b []byte) uint64 { return uint64(TCP(b).Urgent()) }, func(b []byte, v uint64) { TCP(b).SetUrgent(uint16(v)) }},
	{"ICMP.Type", 8, 8, 0, func(b []byte) uint64 { return uint64(ICMP(b).Type()) }, func(b []byte, v uint64) { ICMP(b).SetType(uint8(v)) }},
	{"ICMP.Code", 8, 8, 0, func(b []byte) uint64 { return uint64(ICMP(b).Code()) }, func(b []byte, v uint64) { ICMP(b).SetCode(uint8(v)) }},
	{"ICMP.Checksum", 8, 16, 0, func(b []byte) uint64 { return uint64(ICMP(b).Checksum()) }, func(b []byte, v uint64) { ICMP(b).SetChecksum(uint16(v)) }},
	{"ICMP.ID", 8, 16, 0, func(b []byte) uint64 { return uint64(ICMP(b).ID()) }, func(b []byte, v uint64) { ICMP(b).SetID(uint16(v)) }},
	{"ICMP.Seq", 8, 16, 0, func(b []byte) uint64 { return uint64(ICMP(b).Seq()) }, func(b []byte, v uint64) { ICMP(b).SetSeq(uint16(v)) }},
	{"ICMP.MTU", 8, 16, 0, func(b []byte) uint64 { return uint64(ICMP(b).MTU()) }, func(b []byte, v uint64) { ICMP(b).SetMTU(uint16(v)) }},
	{"ICMPv6.Type", 8, 8, 0, func(b []byte) uint64 { return uint64(ICMPv6(b).Type()) }, func(b []byte, v uint64) { ICMPv6(b).SetType(uint8(v)) }},
	{"ICMPv6.Code", 8, 8, 0, func(b []byte) uint64 { return uint64(ICMPv6(b).Code()) }, func(b []byte, v uint64) { ICMPv6(b).SetCode(uint8(v)) }},
	{"ICMPv6.Checksum", 8, 16, 0, func(b []byte) uint64 { return uint64(ICMPv6(b).Checksum()) }, func(b []byte, v uint64) { ICMPv6(b).SetChecksum(uint16(v)) }},
	{"ICMPv6.ID", 8, 16, 0, func(b []byte) uint64 { return uint64(ICMPv6(b).ID()) }, func(b []byte, v uint64) { ICMPv6(b).SetID(uint16(v)) }},
	{"ICMPv6.Seq", 8, 16, 0, func(b []byte) uint64 { return uint64(ICMPv6(b).Seq()) }, func(b []byte, v uint64) { ICMPv6(b).SetSeq(uint16(v)) }},
	{"ICMPv6.MTU", 8, 32, 0, func(b []byte) uint64 { return uint64(ICMPv6(b).MTU()) }, func(b []byte, v uint64) { ICMPv6(b).SetMTU(uint32(v)) }},
	{"GRE.EtherType", 4, 16, 0, func(b []byte) uint64 { return uint64(GRE(b).EtherType()) }, func(b []byte, v uint64) { GRE(b).SetEtherType(uint16(v)) }},
	{"VXLAN.VNI", 8, 24, 0, func(b []byte) uint64 { return uint64(VXLAN(b).VNI()) }, func(b []byte, v uint64) { VXLAN(b).SetVNI(uint32(v)) }},
	{"Geneve.VNI", 8, 24, 0, func(b []byte) uint64 { return uint64(Geneve(b).VNI()) }, func(b []byte, v uint64) { Geneve(b).SetVNI(uint32(v)) }},
	{"Geneve.EtherType", 8, 16, 0, func(b []byte) uint64 { return uint64(Geneve(b).EtherType()) }, func(b []byte, v uint64) { Geneve(b).SetEtherType(uint16(v)) }},
	{"Geneve.Control", 8, 1, 0, func(b []byte) uint64 { return b2u(Geneve(b).Control()) }, func(b []byte, v uint64) { Geneve(b).SetControl(v != 0) }},
	{"Geneve.Critical", 8, 1, 0, func(b []byte) uint64 { return b2u(Geneve(b).Critical()) }, func(b []byte, v uint64) { Geneve(b).SetCritical(v != 0) }},
}

func TestSettersWriteTheirFieldAndNothingElse(t *testing.T) {
	g := newGen(40)
	for _, f := range fields {
		mask := uint64(1)<<f.bits - 1
		if f.mask != 0 {
			mask = uint64(f.mask)
		}
		for range 50 {
			b := g.bytes(f.n)
			before, old, v := bytes.Clone(b), f.get(b), g.Uint64()&mask
			f.set(b, v)
			eq(t, f.name+" after Set", f.get(b), v)
			f.set(b, old)
			eqBytes(t, f.name+" set back", b, before)
			f.set(b, ^old&mask)
			eq(t, f.name+" bits written", ones(b, before), onesIn(mask))
		}
	}
}

// ones counts the bits in which a and b differ.
func ones(a, b []byte) (n int) {
	for i := range a {
		n += onesIn(uint64(a[i] ^ b[i]))
	}
	return n
}

func onesIn(v uint64) (n int) {
	for ; v != 0; v &= v - 1 {
		n++
	}
	return n
}

func TestAddressesOfIPv6AndTargetsAreSetInPlace(t *testing.T) {
	g := newGen(41)
	for range 50 {
		a := g.addr6()
		for _, c := range []struct {
			name string
			n    int
			at   int
			set  func(b []byte)
		}{
			{"IPv6.SetSrc", 40, 8, func(b []byte) { IPv6(b).SetSrc(a) }},
			{"IPv6.SetDst", 40, 24, func(b []byte) { IPv6(b).SetDst(a) }},
			{"NeighborSolicit.SetTarget", 24, 8, func(b []byte) { NeighborSolicit(b).SetTarget(a) }},
			{"NeighborAdvert.SetTarget", 24, 8, func(b []byte) { NeighborAdvert(b).SetTarget(a) }},
		} {
			b := g.bytes(c.n)
			want := bytes.Clone(b)
			copy(want[c.at:], a[:])
			c.set(b)
			eqBytes(t, c.name, b, want)
		}
	}
	b := g.bytes(24)
	NeighborAdvert(b).SetFlags(NARouter | NAOverride)
	eq(t, "Flags", NeighborAdvert(b).Flags(), NARouter|NAOverride)
	h := g.bytes(40)
	IPv6(h).SetVersion()
	eqBytes(t, "SetVersion", h[:4], []byte{0x60, 0, 0, 0})
	IPv4(h).SetHeaderLen(24)
	eq(t, "SetHeaderLen", h[0], 0x46)
}

func TestTagsArePushedAndPopped(t *testing.T) {
	frame := AppendEthernet(make([]byte, 4), MAC{1, 2, 3, 4, 5, 6}, MAC{7, 8, 9, 10, 11, 12}, EtherTypeIPv4)
	frame = append(frame, "payload"...)
	plain := bytes.Clone(frame[4:])
	PushTag(frame, EtherTypeQinQ, 0xe00a)
	want := AppendEthernet(nil, MAC{1, 2, 3, 4, 5, 6}, MAC{7, 8, 9, 10, 11, 12}, EtherTypeQinQ)
	want = append(AppendVLAN(want, 0xe00a, EtherTypeIPv4), "payload"...)
	eqBytes(t, "PushTag", frame, want)
	eqBytes(t, "PopTag", PopTag(frame), plain)
}

func TestNetworkLooksBehindTwoTagsAndNotFurther(t *testing.T) {
	b := AppendEthernet(nil, MAC{}, MAC{}, EtherTypeQinQ)
	b = AppendVLAN(b, 1, EtherTypeVLAN)
	b = AppendVLAN(b, 2, EtherTypeVLAN)
	b = AppendVLAN(b, 3, EtherTypeIPv6)
	typ, off, ok := Network(b)
	eq(t, "type", typ, EtherTypeVLAN)
	eq(t, "off", off, 22)
	eq(t, "ok", ok, true)
	for n := range 22 {
		_, _, ok := Network(b[:n])
		eq(t, "ok when cut", ok, false)
	}
}

func TestNamesAreWhatAnOperatorReads(t *testing.T) {
	for got, want := range map[string]string{
		MAC{0, 1, 0xab, 0xff, 16, 32}.String(): "00:01:ab:ff:10:20",
		(FlagSYN | FlagACK).String():           "SYN|ACK",
		TCPFlags(0).String():                   "none",
		TCPFlags(0xff).String():                "FIN|SYN|RST|PSH|ACK|URG|ECE|CWR",
		ECT0.String():                          "ECT(0)",
		CE.String():                            "CE",
		ProtoName(ProtoICMPv6):                 "icmpv6",
		ProtoName(200):                         "200",
		EtherTypeName(EtherTypeARP):            "arp",
		EtherTypeName(0x1234):                  "0x1234",
	} {
		eq(t, "name", got, want)
	}
	eq(t, "Multicast", Broadcast.Multicast(), true)
	eq(t, "Multicast", MAC{2}.Multicast(), false)
	eq(t, "Any", FlagSYN.Any(FlagSYN|FlagRST), true)
	eq(t, "Has", FlagSYN.Has(FlagSYN|FlagRST), false)
}

func TestNewHeadersHaveTheirBytes(t *testing.T) {
	eqBytes(t, "AppendUDP", AppendUDP(nil, 0x0102, 0x0304, 1000), []byte{1, 2, 3, 4, 0x03, 0xf0, 0, 0})
	eqBytes(t, "AppendICMP", AppendICMP(nil, 1, 2, 0x03040506), []byte{1, 2, 0, 0, 3, 4, 5, 6})
	eqBytes(t, "AppendVXLAN", AppendVXLAN(nil, 0x010203), []byte{8, 0, 0, 0, 1, 2, 3, 0})
	eq(t, "AppendIPv4 length", IPv4(AppendIPv4(nil, &IPv4Header{PayloadLen: 65515})).TotalLen(), 65535)
	eq(t, "AppendIPv6 length", IPv6(AppendIPv6(nil, &IPv6Header{PayloadLen: 65535})).PayloadLen(), 65535)
}
