package ip

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// AnyDev stands for a device that the caller leaves open.
const AnyDev uint8 = 255

// Kind is what an address is to this host.
type Kind uint8

// The kinds of addresses.
const (
	NotLocal  Kind = iota // of somebody else
	Unicast               // an address of this host
	Broadcast             // limited or directed (RFC 919, RFC 922)
	Multicast             // a group that the device is a member of
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"not_local", "unicast", "broadcast", "multicast"}[k&3]
}

// maxAddrs is how many addresses a node has at most, all devices together.
const maxAddrs = 256

// addrState is what may be done with an address (RFC 4862 2).
type addrState uint8

const (
	addrFree addrState = iota
	addrTentative
	addrPreferred
	addrDeprecated // no longer chosen as source
	addrDuplicate  // another host has it: not ours
)

var addrNames = [...]string{"free", "tentative", "preferred", "deprecated", "duplicate"}

// address is one of our addresses.
type address struct {
	addr      wire.Addr
	prefix    netip.Prefix
	dev       uint8
	origin    Origin
	state     addrState
	sent      uint8 // probes or announcements
	attempt   uint8 // RFC 7217 DAD_Counter
	valid     clock.Time
	preferred clock.Time
	defended  clock.Time // the last announcement against a claim
}

// assigned reports whether the address is ours to use.
func (a *address) assigned() bool { return a.state == addrPreferred || a.state == addrDeprecated }

// localKey finds an address: link-local ones are of one device, others of any (the weak host model,
// RFC 1122 3.3.4.2).
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

// localEntry is what a packet to an address finds.
type localEntry struct {
	kind Kind
	dev  uint8 // of broadcasts: where they come in
	uses uint8
}

// locals are the addresses of this host. The last lookup is kept: most packets are to the same one.
type locals struct {
	slot  []address // at most maxAddrs
	index map[localKey]localEntry
	last  struct { // the answer of Local that was asked for last
		key  localKey // of Local's arguments; AnyDev and :: where there is none, which is NotLocal
		kind Kind
	}
}

func newLocals() locals {
	t := locals{index: map[localKey]localEntry{}}
	t.invalidate()
	return t
}

// invalidate drops the last answer, which a change of addresses or groups may have made wrong.
func (t *locals) invalidate() { t.last.key, t.last.kind = localKey{dev: AnyDev}, NotLocal }

// Local returns what a is to this host for a packet that came in on dev: cheap enough to be asked for
// each packet.
func (n *Node) Local(dev uint8, a wire.Addr) Kind {
	if n.local.last.key == (localKey{a, dev}) {
		return n.local.last.kind
	}
	return n.lookUp(dev, a)
}

// lookUp is Local without the last answer, which it replaces. It is apart so that Local is inlined.
func (n *Node) lookUp(dev uint8, a wire.Addr) Kind {
	kind := n.kind(dev, a)
	n.local.last.key, n.local.last.kind = localKey{a, dev}, kind
	return kind
}

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

// isLocalAddr reports whether a is an assigned unicast address of ours, on whatever device.
func (n *Node) isLocalAddr(a wire.Addr) bool {
	if a.LinkLocal() {
		return n.ownLinkLocal(a) == Unicast
	}
	return a.Loopback() || n.local.index[localKey{a, AnyDev}].kind == Unicast
}

// Usable reports whether packets may be sent from a: it is ours, and neither tentative nor duplicate.
func (n *Node) Usable(a wire.Addr) bool { return n.isLocalAddr(a) }

// find returns our address a on dev, in whatever state.
func (t *locals) find(dev uint8, a wire.Addr) *address {
	for i := range t.slot {
		if x := &t.slot[i]; x.state != addrFree && x.addr == a && x.dev == dev {
			return x
		}
	}
	return nil
}

// AddAddr gives dev an address with the length of its on-link prefix. It is checked for duplicates first
// (RFC 5227, RFC 4862 5.4) unless unchecked is set; Changed then tells of AddrUp or AddrDuplicate.
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

// startDAD begins with duplicate address detection, or leaves it out.
func (n *Node) startDAD(x *address, i int, unchecked bool) {
	x.state = addrTentative
	n.solicitedGroup(x, true)
	if unchecked || n.cfg.Follower {
		n.assign(x, i)
		return
	}
	n.wheel.Arm(n.base.addrs+uint32(i), n.now.Add(n.rand.Between(0, time.Second))) // PROBE_WAIT, MAX_RTR_SOLICITATION_DELAY
}

// assign makes a checked address ours.
func (n *Node) assign(x *address, i int) {
	x.state, x.sent = addrPreferred, 0
	n.index(x, 1)
	if x.origin != RouterAdvert { // RFC 5942 4: there the router says what is on link
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

// index enters an address and its broadcast addresses for lookups, or takes them out (by -1).
func (n *Node) index(x *address, by int) {
	n.local.count(keyOf(x.addr, x.dev), Unicast, AnyDev, by)
	if x.addr.Is4() && x.prefix.Bits() < 31 { // RFC 3021: /31 has none
		n.local.count(keyOf(directedBroadcast(x.prefix), x.dev), Broadcast, x.dev, by)
	}
	n.local.invalidate()
	n.epoch++
	n.routesAt = n.epoch
}

// count counts the uses of an entry of the index.
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

// directedBroadcast returns the broadcast address of an IPv4 prefix (RFC 922 7).
func directedBroadcast(p netip.Prefix) wire.Addr {
	a := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return wire.AddrFrom4(a)
}

// DelAddr takes an address away.
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

// unassign takes x out of the lookups.
func (n *Node) unassign(x *address) {
	if x.assigned() {
		n.index(x, -1)
	}
	if x.state != addrDuplicate {
		n.solicitedGroup(x, false)
	}
}

// sharesPrefix reports whether another address of the device has the same prefix.
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

// Source returns the address of this host that packets to dst, by way of dev, are sent from when nobody
// chose one (RFC 6724 5, RFC 1122 3.3.4.3).
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

// source chooses among the assigned addresses of dst's version, those of dev before others.
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

// eligible reports whether x may be the source of packets to dst by way of dev: a link-local address
// belongs to one link.
func (n *Node) eligible(x *address, dst wire.Addr, dev uint8) bool {
	return dev == AnyDev || x.dev == dev || !x.addr.LinkLocal()
}

// betterSource reports whether x is a better source for dst than y (RFC 6724 5: rules 1, 2, 3, 5, 8).
func betterSource(x, y *address, dst wire.Addr, dev uint8) bool {
	if (x.addr == dst) != (y.addr == dst) {
		return x.addr == dst
	}
	if a, b := sameScope(x.addr, dst), sameScope(y.addr, dst); a != b {
		return a
	}
	if x.state != y.state {
		return x.state == addrPreferred
	}
	if (x.dev == dev) != (y.dev == dev) {
		return x.dev == dev
	}
	return commonPrefixLen(x, dst) > commonPrefixLen(y, dst)
}

// sameScope reports whether the scope of source a is that of dst (RFC 6724 5, rule 2, for the two scopes that
// are in use).
func sameScope(a, dst wire.Addr) bool { return a.LinkLocal() == linkLocalScope(dst) }

// linkLocalScope reports whether dst is of link-local scope, as an address or as a group.
func linkLocalScope(dst wire.Addr) bool {
	if dst.Multicast() && !dst.Is4() {
		return dst[1]&0xf <= 2
	}
	return dst.LinkLocal()
}

// commonPrefixLen returns how many bits of x's prefix dst has.
func commonPrefixLen(x *address, dst wire.Addr) uint8 {
	h1, l1 := addrWords(x.addr)
	h2, l2 := addrWords(dst)
	return min(commonBits(h1, l1, h2, l2), prefixBits(x.prefix))
}

// solicitedGroup joins or leaves the group at which x is solicited (RFC 4861 7.2.1).
func (n *Node) solicitedGroup(x *address, join bool) {
	if !x.addr.Is4() {
		n.countOwnUse(x.dev, wire.Addr(wire.SolicitedNode(x.addr)), join)
	}
}
