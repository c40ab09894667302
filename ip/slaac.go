package ip

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

const (
	idRetries    = 3             // RFC 7217 7: IDGEN_RETRIES
	twoHours     = 2 * time.Hour // RFC 4862 5.5.3 e
	maxAutoAddrs = 16            // addresses that routers may give a device
)

// interfaceID returns the lower half of our address in a prefix: stable there, different in every other,
// and not to be guessed (RFC 7217 5). attempt counts addresses that others had already.
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

// reservedID reports whether an interface identifier is set aside (RFC 5453 3).
func reservedID(id [8]byte) bool {
	x := binary.BigEndian.Uint64(id[:])
	return x == 0 || x>>24 == 0x02005efffe || x >= 0xfdffffffffffff80 && x <= 0xfdffffffffffffff
}

// join returns the address of prefix, of 64 bits, and an interface identifier.
func joinID(prefix netip.Prefix, id [8]byte) netip.Prefix {
	a := prefix.Addr().As16()
	copy(a[8:], id[:])
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// generateAddr adds an address of our own making.
func (n *Node) generateAddr(dev uint8, prefix netip.Prefix, o Origin, attempt uint8, valid, preferred clock.Time) {
	id, used := n.interfaceID(dev, prefix, attempt)
	a := address{prefix: joinID(prefix, id), dev: dev, origin: o, attempt: used, valid: valid, preferred: preferred}
	_ = n.addAddr(a, false) // it exists, or there is no room: then there is one less
}

// linkLocalPrefix is the prefix of link-local addresses (RFC 4291 2.5.6).
var linkLocalPrefix = netip.MustParsePrefix("fe80::/64")

// autoconfigure gives the device an address in a prefix, or prolongs it (RFC 4862 5.5.3).
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

// extendLifetime gives an address new times. Its validity is not cut below two hours, so that a forged
// advertisement does not end connections (RFC 4862 5.5.3 e).
func (n *Node) extendLifetime(x *address, valid, preferred clock.Time) {
	floor := n.now.Add(twoHours)
	switch {
	case valid > floor || valid > x.valid:
	case x.valid <= floor:
		valid = x.valid
	default:
		valid = floor
	}
	n.setLifetime(x, valid, preferred)
	if x.assigned() {
		n.notifyChange(&Change{
			Kind: AddrUp, Dev: x.dev, Addr: x.addr, Prefix: x.prefix, Origin: x.origin, Until: x.valid, Preferred: x.preferred,
		})
	}
}

// regenerateAddr makes another address in place of x, which another host has.
func (n *Node) regenerateAddr(x *address) {
	if x.attempt+1 < idRetries {
		n.generateAddr(x.dev, x.prefix.Masked(), x.origin, x.attempt+1, x.valid, x.preferred)
	}
}
