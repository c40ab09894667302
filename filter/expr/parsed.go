package expr

import "github.com/millrace/millrace/packet"

// parsedTable decides packets by what the engine's header pass wrote into their descriptors, without a
// look at their bytes: the EtherType, the IP protocol and whether a packet is a later fragment.
//
// An entry was made by walking the decision graph with these findings; the walk ends at undecided where
// a test needs more. Findings are used only where they determine bytes at fixed offsets: those of packets
// that are malformed, truncated or tunnelled, or whose IP header is behind MPLS or PPPoE, are not.
type parsedTable [1<<parsedBits + 3]uint8 // the last 3 are read, but not used

// Index of a parsedTable: IPv4, IPv6, VLAN, later fragment, options, and 8 bits of protocol.
const (
	parsedBits      = 13
	parsedFragment  = 1 << 3
	parsedOptions   = 1 << 4
	parsedProto     = 5
	parsedLinkFlags = packet.FlagIPv4 | packet.FlagIPv6 | packet.FlagVLAN // bits 0 to 2 of packet.Flags
)

// notParsed are the flags of packets whose findings do not determine bytes at fixed offsets.
const notParsed = packet.FlagMalformed | packet.FlagTruncated | packet.FlagMore | packet.FlagTunnel

const ethernetLen = 14

// Loads of Ethernet frames that findings determine.
const (
	etherTypeAt = ethernetLen - 2
	ipv4FragAt  = ethernetLen + 6
	ipv4ProtoAt = ethernetLen + ipv4Proto
	ipv6NextAt  = ethernetLen + ipv6Next
	fragOffset  = 0x1fff // in the bytes at ipv4FragAt
)

// newParsedTable returns the table of a graph over Ethernet frames, or nil where it decides no packet.
func newParsedTable(g *graph) *parsedTable {
	t, useful := new(parsedTable), false
	for i := range 1 << parsedBits {
		t[i] = g.walkParsed(uint(i))
		useful = useful || t[i] != verdictUndecided
	}
	if !useful {
		return nil
	}
	return t
}

// findGo writes a verdict for each descriptor and returns those that are undecided. Descriptors that the header
// pass has not seen are among these. list has 16 entries more than d.
func (t *parsedTable) findGo(d []packet.Desc, verdicts []uint8, list []uint32) (undecided []uint32) {
	verdicts, list = verdicts[:len(d)], list[:len(d)+1]
	n := 0
	for i := range d {
		p := &d[i]
		f := uint(p.Flags)
		v := t[(f&uint(parsedLinkFlags)|f>>4&(parsedFragment|parsedOptions)|uint(p.Proto)<<parsedProto)%(1<<parsedBits)]
		if p.Flags&notParsed != 0 || p.L3 != ethernetLen && p.Flags&packet.FlagVLAN == 0 {
			v = verdictUndecided
		}
		verdicts[i] = v
		list[n] = uint32(i)
		n += int(v >> 1)
	}
	return list[:n]
}

// walkParsed follows the graph for one combination of findings.
func (g *graph) walkParsed(finding uint) uint8 {
	i := g.entry
	for i >= 0 {
		s := &g.steps[i]
		v, r, inverted, ok := rangeOf(s)
		if !ok || v.op != valueLoad || v.x != nil {
			return verdictUndecided
		}
		result, ok := resultParsed(v, r, finding)
		if !ok {
			return verdictUndecided
		}
		if result != inverted {
			i = s.jt
		} else {
			i = s.jf
		}
	}
	if i == accept {
		return verdictAccept
	}
	return verdictReject
}

// resultParsed returns the result of a test of the bytes that v loads, where a finding determines it.
func resultParsed(v *value, r rangeTest, finding uint) (result, ok bool) {
	is := func(f packet.Flags) bool { return finding&uint(parsedLinkFlags) == uint(f) }
	proto := uint32(finding >> parsedProto)
	switch {
	case v.k == etherTypeAt && v.size == 2:
		return etherTypeParsed(r, packet.Flags(finding)&parsedLinkFlags)
	case v.k == ipv4ProtoAt && v.size == 1 && is(packet.FlagIPv4):
		return r.holds(proto), true
	case v.k == ipv6NextAt && v.size == 1 && is(packet.FlagIPv6) && finding&parsedOptions == 0:
		return r.holds(proto), true
	case v.k == ipv4FragAt && v.size == 2 && is(packet.FlagIPv4) && r == rangeTest{mask: fragOffset}:
		return finding&parsedFragment == 0, true
	}
	return false, false
}

// etherTypeParsed returns the result of a test of the EtherType.
func etherTypeParsed(r rangeTest, f packet.Flags) (result, ok bool) {
	switch {
	case f == packet.FlagIPv4:
		return r.holds(typeIPv4), true
	case f == packet.FlagIPv6:
		return r.holds(typeIPv6), true
	case r.span != 0 || r.mask&0xffff != 0xffff:
		return false, false
	}
	tag := r.low == typeVLAN || r.low == typeQinQ
	if f&packet.FlagVLAN != 0 {
		return false, !tag
	}
	return false, tag || r.low == typeIPv4 || r.low == typeIPv6 // known to be another
}
