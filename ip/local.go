package ip

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// AnyDev leaves the device to the routes. In the index of addresses it marks an address that is valid on all devices.
const AnyDev uint8 = 255

// Kind classifies an address by what it means to this host.
type Kind uint8

// The kinds of addresses.
const (
	NotLocal  Kind = iota // not an address of this host
	Unicast               // an address of this host
	Broadcast             // limited or directed (RFC 919, RFC 922)
	Multicast             // a group that the device is a member of
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"not_local", "unicast", "broadcast", "multicast"}[k&3]
}

// maxAddrs bounds the addresses of a node, all devices together: searches of them are linear.
const maxAddrs = 256

// addrState is the state of an address (RFC 4862 2); see dad.go.
type addrState uint8

const (
	addrFree       addrState = iota // the slot is not in use
	addrTentative                   // duplicate address detection runs: packets to it are not accepted
	addrPreferred                   // for any use
	addrDeprecated                  // receives, and serves existing connections; not chosen as a source (RFC 4862 5.5.4)
	addrDuplicate                   // another host has it: not used, kept for the user to see
)

var addrNames = [...]string{"free", "tentative", "preferred", "deprecated", "duplicate"}

// address is an address of this host, in whatever state.
type address struct {
	addr      wire.Addr    // prefix.Addr() in the form of packets
	prefix    netip.Prefix // with the host bits
	dev       uint8
	origin    Origin
	state     addrState
	sent      uint8      // probes while tentative, then announcements
	attempt   uint8      // RFC 7217 DAD_Counter
	valid     clock.Time // end of the valid lifetime, or Never
	preferred clock.Time // end of the preferred lifetime, or Never
	defended  clock.Time // last defence against a conflict (RFC 5227 2.4); 0 is none
}

// assigned reports whether packets may be received at the address and sent from it (RFC 4862 2, assigned address).
func (a *address) assigned() bool { return a.state == addrPreferred || a.state == addrDeprecated }

// localKey is the key of an address in the index. A link-local one belongs to its device, since two links may use the
// same (RFC 4007 6). Others are accepted on any device: the weak host model of RFC 1122 3.3.4.2, as in Linux, so that an
// address stays reachable whichever link the route to this host leads over.
type localKey struct {
	addr wire.Addr
	dev  uint8
}

func keyOf(a wire.Addr, dev uint8) localKey {
	if !a.LinkLocal() && !a.Multicast() {
		dev = AnyDev
	}
	return localKey{a, dev}
}

// localEntry is the result of a lookup in the index.
type localEntry struct {
	kind Kind
	dev  uint8 // of directed broadcasts: the device of their network
	uses uint8 // addresses that share the entry, such as the broadcast address of one prefix
}

// locals are the addresses of this host. The last lookup is cached: most packets of a burst have the same destination,
// and comparing 17 bytes is cheaper than a map access.
type locals struct {
	slot  []address // at most maxAddrs
	index map[localKey]localEntry
	own   addrFilter // of index
	last  struct {   // arguments and result of the last Local
		key  localKey // AnyDev and :: after a change: no packet has them, and the result NotLocal is right for both
		kind Kind
	}
}

// addrFilter is a set of the addresses of an index, in which look-ups of others succeed at times (with 256 addresses and as
// many broadcasts, two of five): a test of one bit instead of an access to the map, for sources of packets, of which each
// may be new.
type addrFilter [1 << addrFilterBits / 64]uint64

const addrFilterBits = 10

// bit returns the place of an address, given as the words of addrWords.
func (f *addrFilter) bit(hi, lo uint64) uint64 {
	return ((hi ^ lo) * 0x9e3779b97f4a7c15) >> (64 - addrFilterBits) // Fibonacci hashing
}

// has reports whether an address may be in the index. False is certain.
func (f *addrFilter) has(hi, lo uint64) bool {
	i := f.bit(hi, lo)
	return f[i/64]>>(i%64)&1 != 0
}

// fill makes f the filter of an index.
func (f *addrFilter) fill(index map[localKey]localEntry) {
	*f = addrFilter{}
	for k := range index {
		i := f.bit(addrWords(k.addr))
		f[i/64] |= 1 << (i % 64)
	}
}

func newLocals() locals {
	t := locals{index: map[localKey]localEntry{}}
	t.invalidate()
	return t
}

// invalidate drops the cached lookup. Every change of addresses and groups calls it: a stale result would accept packets
// to an address that has moved to another host.
func (t *locals) invalidate() { t.last.key, t.last.kind = localKey{dev: AnyDev}, NotLocal }

// Local returns what a is to this host for a packet that came in on dev. It is cheap enough for every packet.
func (n *Node) Local(dev uint8, a wire.Addr) Kind {
	if n.local.last.key == (localKey{a, dev}) {
		return n.local.last.kind
	}
	return n.lookUp(dev, a)
}

// lookUp is Local without the cached result, which it replaces. It is a function of its own so that Local is inlined.
func (n *Node) lookUp(dev uint8, a wire.Addr) Kind {
	kind := n.kind(dev, a)
	n.local.last.key, n.local.last.kind = localKey{a, dev}, kind
	return kind
}

// kind decides what a is to this host. Loopback addresses are accepted from the loopback queue alone (RFC 1122 3.2.1.3
// (g), RFC 4291 2.5.3), and a directed broadcast on the device of its network alone, or from this host itself. On the
// loopback queue a link-local address of any device counts, because such a packet has no link.
func (n *Node) kind(dev uint8, a wire.Addr) Kind {
	switch {
	case a == wire.Broadcast4:
		return Broadcast
	case a.Multicast():
		return n.groupKind(dev, a)
	case a.Loopback() && dev == LoopDev:
		return Unicast
	}
	e, ok := n.local.index[keyOf(a, dev)]
	switch {
	case !ok && dev == LoopDev && a.LinkLocal():
		return n.ownLinkLocal(a)
	case !ok || e.kind == Broadcast && e.dev != dev && dev != LoopDev:
		return NotLocal
	}
	return e.kind
}

// ownLinkLocal returns Unicast where a is the link-local address of one of the devices.
func (n *Node) ownLinkLocal(a wire.Addr) Kind {
	for dev := range n.links {
		if e, ok := n.local.index[keyOf(a, uint8(dev))]; ok {
			return e.kind
		}
	}
	return NotLocal
}

// isLocalAddr reports whether a is an assigned unicast address of this host, on any device.
func (n *Node) isLocalAddr(a wire.Addr) bool {
	if a.LinkLocal() {
		return n.ownLinkLocal(a) == Unicast
	}
	return a.Loopback() || n.local.index[localKey{a, AnyDev}].kind == Unicast
}

// Usable reports whether packets may be sent from a: it is assigned, neither tentative nor duplicate (RFC 4862 2).
func (n *Node) Usable(a wire.Addr) bool { return n.isLocalAddr(a) }

// DevOf returns the device that an address of this host belongs to; an address of lo, or of no device, is not ok.
func (n *Node) DevOf(a wire.Addr) (dev uint8, ok bool) {
	dev = n.devOf(a)
	return dev, dev != AnyDev
}

// find returns address a of device dev in any state, also tentative or duplicate, which the index does not have.
func (t *locals) find(dev uint8, a wire.Addr) *address {
	for i := range t.slot {
		if x := &t.slot[i]; x.state != addrFree && x.addr == a && x.dev == dev {
			return x
		}
	}
	return nil
}

// AddAddr assigns an address to dev, with the length of its on-link prefix. Duplicate address detection (RFC 5227, RFC 4862
// 5.4) runs first unless unchecked is set, and its result is reported as AddrUp or AddrDuplicate. The address is usable
// after AddrUp: using it earlier would take it from a host that has it.
func (n *Node) AddAddr(now clock.Time, dev uint8, p netip.Prefix, o Origin, unchecked bool) error {
	n.setNow(now)
	return n.addAddr(address{prefix: p, dev: dev, origin: o, valid: clock.Never, preferred: clock.Never}, unchecked)
}

func (n *Node) addAddr(a address, unchecked bool) error {
	if int(a.dev) >= len(n.links) {
		return ErrDevice
	}
	if !a.prefix.IsValid() {
		return ErrAddress
	}
	a.addr = wire.AddrFrom(a.prefix.Addr())
	if a.addr.Multicast() || a.addr.Unspecified() || a.addr.Loopback() || a.addr == wire.Broadcast4 {
		return ErrAddress
	}
	if n.local.find(a.dev, a.addr) != nil {
		return ErrExists
	}
	i := n.local.free()
	if i < 0 {
		return ErrFull
	}
	n.local.slot[i] = a
	n.startDAD(&n.local.slot[i], i, unchecked)
	return nil
}

// free returns a free slot, -1 where there is none.
func (t *locals) free() int {
	for i := range t.slot {
		if t.slot[i].state == addrFree {
			return i
		}
	}
	if len(t.slot) == maxAddrs {
		return -1
	}
	t.slot = append(t.slot, address{})
	return len(t.slot) - 1
}

// startDAD begins duplicate address detection, or assigns x at once: where the caller has checked it, and in followers,
// which learn of an address after the leader has checked it. The solicited-node group is joined before the first
// solicitation, or two hosts that probe for the address at the same time would not see each other (RFC 4862 5.4.2). The
// first probe is delayed at random, since hosts often start together (RFC 5227 2.1.1 PROBE_WAIT, RFC 4862 5.4.2
// MAX_RTR_SOLICITATION_DELAY).
func (n *Node) startDAD(x *address, i int, unchecked bool) {
	x.state = addrTentative
	n.solicitedGroup(x, true)
	if unchecked || n.cfg.Follower {
		n.assign(x, i)
		return
	}
	n.wheel.Arm(n.base.addrs+uint32(i), n.now.Add(n.rand.Between(0, time.Second)))
}

// assign makes a tentative address usable, and adds the route to its prefix. An address from a router advertisement adds
// none: having an address does not make its prefix on-link, the L flag does (RFC 5942 4).
func (n *Node) assign(x *address, i int) {
	x.state, x.sent = addrPreferred, 0
	n.index(x, 1)
	if x.origin != RouterAdvert {
		n.addRoute(Route{Prefix: x.prefix.Masked(), Dev: x.dev, Origin: Connected})
	}
	n.notifyChange(&Change{
		Kind: AddrUp, Dev: x.dev, Addr: x.addr, Prefix: x.prefix, Origin: x.origin, Until: x.valid, Preferred: x.preferred,
	})
	if l := &n.links[x.dev]; x.origin == Automatic && l.Accept && !n.cfg.Follower {
		n.startSolicit(x.dev)
	}
	n.addrTimer(i)
}

// index adds an address and its directed broadcast address to the lookups, or removes them (by -1). Every cached path
// ends here (routesAt), because a destination may have become local and a source invalid.
func (n *Node) index(x *address, by int) {
	n.local.count(keyOf(x.addr, x.dev), Unicast, AnyDev, by)
	if x.addr.Is4() && x.prefix.Bits() < 31 { // a /31 has no broadcast address (RFC 3021)
		n.local.count(keyOf(directedBroadcast(x.prefix), x.dev), Broadcast, x.dev, by)
	}
	n.local.own.fill(n.local.index)
	n.local.invalidate()
	n.epoch++
	n.routesAt = n.epoch
}

// count adds by to the uses of an entry of the index, which exists while it has any.
func (t *locals) count(k localKey, kind Kind, dev uint8, by int) {
	e, ok := t.index[k]
	if !ok {
		e = localEntry{kind: kind, dev: dev}
	}
	if e.uses += uint8(by); e.uses == 0 {
		delete(t.index, k)
	} else {
		t.index[k] = e
	}
}

// directedBroadcast returns the broadcast address of an IPv4 prefix: the host bits are ones (RFC 922 7).
func directedBroadcast(p netip.Prefix) wire.Addr {
	a := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return wire.AddrFrom4(a)
}

// DelAddr removes an address. Paths that used it end, and the on-link route goes with the last address of its prefix.
func (n *Node) DelAddr(now clock.Time, dev uint8, a wire.Addr) error {
	n.setNow(now)
	for i := range n.local.slot {
		if x := &n.local.slot[i]; x.state != addrFree && x.addr == a && x.dev == dev {
			n.removeAddr(x, i)
			return nil
		}
	}
	return ErrMissing
}

// SetLifetime sets until when an address is valid, and until when new connections prefer it to others (RFC 4862 5.5.4, RFC
// 6724 5, rule 3). It is for addresses with a lease. An address whose time is over is removed.
func (n *Node) SetLifetime(now clock.Time, dev uint8, a wire.Addr, valid, preferred clock.Time) error {
	n.setNow(now)
	x := n.local.find(dev, a)
	if x == nil {
		return ErrMissing
	}
	n.changeLifetime(x, valid, min(valid, preferred))
	return nil
}

func (n *Node) removeAddr(x *address, i int) {
	n.wheel.Stop(n.base.addrs + uint32(i))
	n.unassign(x)
	old := *x
	x.state = addrFree
	if !n.sharesPrefix(&old) {
		n.delRoute(Route{Prefix: old.prefix.Masked(), Dev: old.dev, Origin: Connected})
	}
	n.notifyChange(&Change{Kind: AddrDown, Dev: old.dev, Addr: old.addr, Prefix: old.prefix, Origin: old.origin})
}

// unassign removes x from the lookups and leaves its solicited-node group, which a duplicate has left already.
func (n *Node) unassign(x *address) {
	if x.assigned() {
		n.index(x, -1)
	}
	if x.state != addrDuplicate {
		n.solicitedGroup(x, false)
	}
}

// sharesPrefix reports whether another address of the device has the same prefix, whose route must then stay.
func (n *Node) sharesPrefix(x *address) bool {
	for i := range n.local.slot {
		y := &n.local.slot[i]
		if y.assigned() && y.dev == x.dev && y.prefix.Masked() == x.prefix.Masked() {
			return true
		}
	}
	return false
}

// AddrInfo is an address of this host.
type AddrInfo struct {
	Dev              uint8
	Prefix           netip.Prefix
	Origin           Origin
	State            string // tentative, preferred, deprecated, duplicate
	Valid, Preferred clock.Time
}

// Addrs returns the addresses of this host.
func (n *Node) Addrs() []AddrInfo {
	var list []AddrInfo
	for i := range n.local.slot {
		if x := &n.local.slot[i]; x.state != addrFree {
			list = append(list, AddrInfo{x.dev, x.prefix, x.origin, addrNames[x.state], x.valid, x.preferred})
		}
	}
	return list
}

// Source returns the source address of packets to dst by way of dev when the caller chose none (RFC 6724 5, RFC 1122
// 3.3.4.3). A packet to an address of this host comes from that address. Otherwise the route's preferred source decides,
// and then the rules of RFC 6724.
func (n *Node) Source(now clock.Time, dst wire.Addr, dev uint8) (wire.Addr, bool) {
	n.setNow(now)
	if n.isLocalAddr(dst) {
		return dst, true
	}
	if r := n.selectRoute(dst, dev); r != nil {
		if r.Source != (wire.Addr{}) && n.isLocalAddr(r.Source) {
			return r.Source, true
		}
		dev = r.Dev
	}
	return n.source(dst, dev)
}

// source chooses the best of the assigned addresses of dst's version (betterSource).
func (n *Node) source(dst wire.Addr, dev uint8) (wire.Addr, bool) {
	var best *address
	for i := range n.local.slot {
		if x := &n.local.slot[i]; x.assigned() && x.addr.Is4() == dst.Is4() && n.eligible(x, dst, dev) {
			if best == nil || betterSource(x, best, dst, dev) {
				best = x
			}
		}
	}
	if best == nil {
		return wire.Addr{}, false
	}
	return best.addr, true
}

// eligible reports whether x may be the source of packets by way of dev. A link-local address of another link may not: an
// answer to it would stay on this link (RFC 4007 6, RFC 4291 2.5.6).
func (n *Node) eligible(x *address, dst wire.Addr, dev uint8) bool {
	return dev == AnyDev || x.dev == dev || !x.addr.LinkLocal()
}

// betterSource reports whether x is a better source for dst than y (RFC 6724 5). Rules 4 (home addresses), 6 (labels) and
// 7 (temporary addresses) have no input here: the node has no policy table and makes no temporary addresses.
func betterSource(x, y *address, dst wire.Addr, dev uint8) bool {
	// Rule 1: the destination itself.
	if (x.addr == dst) != (y.addr == dst) {
		return x.addr == dst
	}
	// Rule 2: the scope of the destination, or it could not answer.
	if a, b := sameScope(x.addr, dst), sameScope(y.addr, dst); a != b {
		return a
	}
	// Rule 3: avoid deprecated addresses, which end before the connection does.
	if x.state != y.state {
		return x.state == addrPreferred
	}
	// Rule 5: the outgoing device, whose link is where the answer is expected.
	if (x.dev == dev) != (y.dev == dev) {
		return x.dev == dev
	}
	// Rule 8: the longest matching prefix.
	return commonPrefixLen(x, dst) > commonPrefixLen(y, dst)
}

// sameScope reports whether the scope of source a is that of dst (RFC 6724 5, rule 2, for the two scopes that
// are in use).
func sameScope(a, dst wire.Addr) bool { return a.LinkLocal() == linkLocalScope(dst) }

// linkLocalScope reports whether dst is of link-local scope, as an address or as a group. The scope of an IPv6 group is in
// the low 4 bits of its second octet: 1 is interface-local, 2 link-local (RFC 4291 2.7).
func linkLocalScope(dst wire.Addr) bool {
	if dst.Multicast() && !dst.Is4() {
		return dst[1]&0xf <= 2
	}
	return dst.LinkLocal()
}

// commonPrefixLen returns how many leading bits x and dst share, at most the length of x's prefix (RFC 6724 2.2).
func commonPrefixLen(x *address, dst wire.Addr) uint8 {
	h1, l1 := addrWords(x.addr)
	h2, l2 := addrWords(dst)
	return min(commonBits(h1, l1, h2, l2), prefixBits(x.prefix))
}

// solicitedGroup joins or leaves the solicited-node group of x (RFC 4861 7.2.1). The group goes by the low 24 bits, so that
// addresses may share it: uses are counted.
func (n *Node) solicitedGroup(x *address, join bool) {
	if !x.addr.Is4() {
		n.countOwnUse(x.dev, wire.Addr(wire.SolicitedNode(x.addr)), join)
	}
}
