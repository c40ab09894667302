package ip

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// MinMTU6 is the MTU in bytes that every link with IPv6 has at least (RFC 8200 5). Reports of a smaller path MTU are
// ignored (RFC 8201 4).
const MinMTU6 = 1280

const (
	// minMTU4 is the least path MTU of IPv4 that is believed, in bytes; smaller ones count as this. RFC 791 allows 68, of which an attacker who
	// forges a report would leave 28 for payload (RFC 5927 7.2).
	minMTU4 = 576
	pmtuAge = 10 * time.Minute // RFC 1191 6.3, RFC 8201 4: then a larger one is tried
)

// plateau lists usual MTUs, for routers that do not report theirs (RFC 1191 7).
var plateau = [...]int{32000, 17914, 8166, 4352, 2002, 1492, 1006, 576, 296, 68}

// pmtuEntry is the path MTU of one destination.
type pmtuEntry struct {
	mtu   int
	until clock.Time // RFC 1191 6.3, RFC 8201 4: tried again after this
}

// pmtuCache holds the destinations whose path MTU is smaller than their link's. It is bounded: a full one loses an
// arbitrary entry, which costs that destination one packet too large and one more ICMP error.
type pmtuCache struct {
	entry map[wire.Addr]pmtuEntry
	max   int
}

// MTU returns the largest IP packet, in bytes, that may go to dst by path p.
func (n *Node) MTU(now clock.Time, p *Path, dst wire.Addr) int {
	n.setNow(now)
	return n.mtu(p, dst)
}

func (n *Node) mtu(p *Path, dst wire.Addr) int {
	if len(n.pmtu.entry) == 0 {
		return p.MTU
	}
	e, ok := n.pmtu.entry[dst]
	if !ok {
		return p.MTU
	}
	if n.now >= e.until {
		delete(n.pmtu.entry, dst)
		return p.MTU
	}
	return min(p.MTU, e.mtu)
}

// plausibleMTU returns the path MTU to use after a report that packets to dst of more than mtu bytes do not fit, which
// quotes one of size bytes. It is false for a report to ignore: one whose MTU the quoted packet did not exceed, and over
// IPv6 one below the minimum of every link (RFC 8201 4), which is an attack or a broken router. MTU 0 is from an IPv4 router
// older than RFC 1191: the next plateau below the packet's size is tried (RFC 1191 5).
func (n *Node) plausibleMTU(dst wire.Addr, mtu, size int) (int, bool) {
	if mtu >= size && mtu != 0 {
		return 0, false // then it would have arrived
	}
	if !dst.Is4() {
		return mtu, mtu >= MinMTU6
	}
	if mtu == 0 {
		mtu = plateauBelow(size)
	}
	return max(mtu, minMTU4), true
}

// storePMTU stores a path MTU until a time. It returns false where that changes nothing: a report never raises a path MTU
// (RFC 8201 4), only its age does, or a forged report could undo a real one.
func (n *Node) storePMTU(dst wire.Addr, mtu int, until clock.Time) bool {
	e, ok := n.pmtu.entry[dst]
	if ok && e.mtu <= mtu && n.now < e.until || mtu >= n.largestMTU() {
		return false
	}
	if !ok && len(n.pmtu.entry) >= n.pmtu.max {
		for a := range n.pmtu.entry {
			delete(n.pmtu.entry, a)
			break
		}
	}
	n.pmtu.entry[dst] = pmtuEntry{mtu, until}
	return true
}

// plateauBelow returns the largest plateau that is smaller than size.
func plateauBelow(size int) int {
	for _, p := range plateau {
		if p < size {
			return p
		}
	}
	return minMTU4
}

// largestMTU returns the largest MTU of all devices: a path MTU from that on limits nothing.
func (n *Node) largestMTU() int {
	m := 0
	for i := range n.links {
		m = max(m, n.links[i].MTU)
	}
	return m
}
