package ip

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Stateless address autoconfiguration (RFC 4862) with stable, opaque interface identifiers (RFC 7217).

const (
	idRetries    = 3             // RFC 7217 7: IDGEN_RETRIES
	twoHours     = 2 * time.Hour // RFC 4862 5.5.3 (e)
	maxAutoAddrs = 16            // addresses of a device that routers may form
)

// interfaceID returns the lower half of an address in a prefix (RFC 7217 5):
//
//	F(prefix, MAC, DAD_Counter, secret)
//
// It is stable in one prefix, unlike in every other, and cannot be predicted without the secret. So a host is neither
// tracked across networks by its MAC nor found by scanning. attempt counts addresses that other hosts had already.
func (n *Node) interfaceID(dev uint8, prefix netip.Prefix, attempt uint8) (id [8]byte, used uint8) {
	var b [16]byte
	p := prefix.Addr().As16()
	copy(b[:], p[:8])
	mac := n.links[dev].MAC
	copy(b[8:], mac[:])
	for ; ; attempt++ {
		b[14] = attempt
		binary.BigEndian.PutUint64(id[:], n.idKey.Sum(b[:]))
		if !reservedID(id) {
			return id, attempt
		}
	}
}

// reservedID reports whether an interface identifier is reserved (RFC 5453 3): subnet-router anycast, the range of the
// IANA's own 02-00-5E Ethernet block, and subnet anycast addresses.
func reservedID(id [8]byte) bool {
	x := binary.BigEndian.Uint64(id[:])
	return x == 0 || x>>24 == 0x02005efffe || x >= 0xfdffffffffffff80 && x <= 0xfdffffffffffffff
}

// joinID returns the address of a 64-bit prefix and an interface identifier.
func joinID(prefix netip.Prefix, id [8]byte) netip.Prefix {
	a := prefix.Addr().As16()
	copy(a[8:], id[:])
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// generateAddr adds an address with a generated interface identifier. An error is not reported: the address exists, or
// the table is full, and then the host has one address less.
func (n *Node) generateAddr(dev uint8, prefix netip.Prefix, o Origin, attempt uint8, valid, preferred clock.Time) {
	id, used := n.interfaceID(dev, prefix, attempt)
	a := address{prefix: joinID(prefix, id), dev: dev, origin: o, attempt: used, valid: valid, preferred: preferred}
	_ = n.addAddr(a, false)
}

// linkLocalPrefix is the prefix of link-local addresses (RFC 4291 2.5.6).
var linkLocalPrefix = netip.MustParsePrefix("fe80::/64")

// autoconfigure adds an address of the device in a prefix, or sets its lifetimes (RFC 4862 5.5.3 (d), (e)). At most
// maxAutoAddrs are added, since each prefix of a forged advertisement would add one.
func (n *Node) autoconfigure(dev uint8, prefix netip.Prefix, p *wire.NDPrefix) {
	valid, preferred := n.deadline(p.Valid), n.deadline(p.Preferred)
	count := 0
	for i := range n.local.slot {
		x := &n.local.slot[i]
		if x.state == addrFree || x.dev != dev || x.origin != RouterAdvert {
			continue
		}
		if count++; x.prefix.Masked() == prefix {
			n.extendLifetime(x, valid, preferred)
			return
		}
	}
	if p.Valid != 0 && count < maxAutoAddrs {
		n.generateAddr(dev, prefix, RouterAdvert, 0, valid, preferred)
	}
}

// extendLifetime sets the lifetimes of an address from an advertisement. The valid lifetime is not cut below two hours, so
// that a forged advertisement does not end connections (RFC 4862 5.5.3 (e)): a longer one is taken, what remains below two
// hours stays, and everything else becomes two hours.
func (n *Node) extendLifetime(x *address, valid, preferred clock.Time) {
	floor := n.now.Add(twoHours)
	switch {
	case valid > floor || valid > x.valid:
	case x.valid <= floor:
		valid = x.valid
	default:
		valid = floor
	}
	n.changeLifetime(x, valid, preferred)
}

// regenerateAddr generates another address in place of x, which another host has, at most idRetries in all (RFC 7217 6).
func (n *Node) regenerateAddr(x *address) {
	if x.attempt+1 < idRetries {
		n.generateAddr(x.dev, x.prefix.Masked(), x.origin, x.attempt+1, x.valid, x.preferred)
	}
}
