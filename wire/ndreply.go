package wire

// NDReplyLen is the length of the packet that AppendNeighborReply makes: an IPv6 header and an
// advertisement with a target link-layer address.
const NDReplyLen = IPv6Len + NeighborAdvertLen + 8

// AppendNeighborReply appends to b the whole IPv6 packet, with checksum, by which the host with
// link-layer address mac answers the solicitation in the IPv6 packet req. A solicitation from the
// unspecified address is a duplicate address detection: it is answered to all nodes and without the
// solicited flag (RFC 4861 7.2.4). The flags are those of a router and of an override; solicited
// is added here. NeighborRequest has accepted req, and b has a distinct memory.
func AppendNeighborReply(b []byte, req IPv6, mac MAC, flags NAFlags) []byte {
	target := NeighborSolicit(req[IPv6Len:]).Target()
	h := IPv6Header{
		Src: target, Dst: req.Src(), NextHeader: ProtoICMPv6, HopLimit: NDHopLimit,
		PayloadLen: NeighborAdvertLen + 8,
	}
	if h.Dst == ([16]byte{}) {
		h.Dst = AllNodes
	} else {
		flags |= NASolicited
	}
	n := len(b)
	b = AppendNeighborAdvert(AppendIPv6(b, &h), target, mac, flags)
	ICMPv6(b[n+IPv6Len:]).FillChecksum(PseudoHeader6(h.Src, h.Dst, ProtoICMPv6, uint32(h.PayloadLen)))
	return b
}

// NeighborRequest returns the solicitation in the IPv6 packet b where it passes every check that RFC 4861
// 7.1.1 asks of a receiver: hop limit 255, checksum, code 0, length, target not multicast, options whole,
// and from the unspecified address only to a solicited-node address and without source option.
func NeighborRequest(b IPv6) (ns NeighborSolicit, ok bool) {
	if !b.Valid() || b.NextHeader() != ProtoICMPv6 || b.HopLimit() != NDHopLimit {
		return nil, false
	}
	ns = NeighborSolicit(b.Payload())
	if !ns.Valid() || ns[8] == 0xff || !ICMPv6(ns).ChecksumOK(b.Pseudo()) {
		return nil, false
	}
	it, source := ns.OptionIter(), false
	for it.Next() {
		source = source || it.Type() == NDOptSource
	}
	if it.Malformed() {
		return nil, false
	}
	if b.Src() == ([16]byte{}) && (source || b.Dst() != SolicitedNode(b.Dst())) {
		return nil, false
	}
	return ns, true
}
