package ip

import (
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Limits of groups beside Config.MaxGroups.
const (
	maxGroupSources = 64  // of one socket or one interface; 64 of IPv6 fit one report at an MTU of 1280
	maxGroupSockets = 256 // sockets of one group
)

type groupKey struct {
	addr wire.Addr
	dev  uint8
}

// interest is the filter of one socket for a group: packets from sources alone (include), or from all but them (exclude;
// RFC 3376 3.1).
type interest struct {
	socket  uint32
	include bool
	sources []wire.Addr
}

// group is a multicast group that a device is a member of (RFC 3376 3.2, RFC 3810 4.2: the state of an
// interface). Its filter follows from the filters of the sockets, and from the node's own use.
type group struct {
	key       groupKey
	used      bool
	own       int // uses of the node itself: solicited-node groups
	interests []interest
	include   bool        // the filter that was worked out last, with sources; include of none is no member
	sources   []wire.Addr // sorted, for the binary search of each packet

	report pendingReport
}

// groups are the groups of all devices: a fixed slab, in which slot i has timer i of the groups.
type groups struct {
	slot  []group
	index map[groupKey]uint16
}

func newGroups(slots int) groups {
	return groups{slot: make([]group, slots), index: map[groupKey]uint16{}}
}

// permanentGroup reports whether every host is a member of the group, so that no report is sent for it: all systems of
// IPv4 (RFC 3376 5) and all nodes of IPv6, with interface-local or link-local scope (RFC 4291 2.7.1, RFC 3810 6).
func permanentGroup(a wire.Addr) bool {
	return a == wire.Addr{10: 0xff, 11: 0xff, 12: 224, 15: 1} || a == allNodes || a == wire.Addr{0: 0xff, 1: 1, 15: 1}
}

// groupKind returns Multicast where dev is a member of group a. On the loopback queue a membership of any device counts:
// what this host sends to a group is also delivered to its own members (RFC 1112 6.1).
func (n *Node) groupKind(dev uint8, a wire.Addr) Kind {
	if permanentGroup(a) {
		return Multicast
	}
	if dev == LoopDev {
		for p := range n.links {
			if n.groupKind(uint8(p), a) == Multicast {
				return Multicast
			}
		}
		return NotLocal
	}
	if i, ok := n.groups.index[groupKey{a, dev}]; ok && !n.groups.slot[i].empty() {
		return Multicast
	}
	return NotLocal
}

// Member reports whether a packet from src to group a that came in on dev passes the filter of the group. Which socket
// gets it is the transport's decision (RFC 3376 3.2: the filter of the interface is only the union of theirs).
func (n *Node) Member(dev uint8, a, src wire.Addr) bool {
	i, ok := n.groups.index[groupKey{a, dev}]
	if !ok || dev == LoopDev {
		return n.groupKind(dev, a) == Multicast
	}
	g := &n.groups.slot[i]
	_, listed := slices.BinarySearchFunc(g.sources, src, compareAddrs)
	return listed == g.include
}

func compareAddrs(a, b wire.Addr) int { return slices.Compare(a[:], b[:]) }

// Listen sets the filter of a socket for a group on dev, as IPMulticastListen of RFC 3376 2 and RFC 3810 3: packets from
// sources alone (include), or from all but those. Including none leaves the group. socket is any number below 1<<31 that
// the caller chose for one socket. ErrFull reports too many groups, sockets in one, or sources.
func (n *Node) Listen(now clock.Time, socket uint32, dev uint8, a wire.Addr, include bool, sources []wire.Addr) error {
	n.setNow(now)
	err := n.listen(socket, dev, a, include, sources)
	if err == nil {
		n.publishGroup(dev, a)
	}
	return err
}

// remoteSocket marks the interest of another node, all its sockets together; the low bits are that node's Config.ID.
const remoteSocket = 1 << 31

// publishGroup reports the filter of this node's sockets for a group to the other nodes. The leader reports memberships to
// routers for all nodes, and every node accepts the group, since a packet to it may come in on any queue. What came from
// other nodes is left out, or two nodes would keep each other in a group for ever.
func (n *Node) publishGroup(dev uint8, a wire.Addr) {
	c := Change{Kind: GroupFilter, Dev: dev, Addr: a, From: n.cfg.ID, Include: true}
	if i, ok := n.groups.index[groupKey{a, dev}]; ok {
		g := n.groups.slot[i]
		g.own = 0
		g.interests = slices.DeleteFunc(slices.Clone(g.interests), func(w interest) bool { return w.socket&remoteSocket != 0 })
		c.Include, c.Servers = g.filter()
	}
	n.notifyChange(&c)
}

func (n *Node) listen(socket uint32, dev uint8, a wire.Addr, include bool, sources []wire.Addr) error {
	switch {
	case int(dev) >= len(n.links):
		return ErrDevice
	case !a.Multicast():
		return ErrAddress
	case len(sources) > maxGroupSources:
		return ErrFull
	}
	leave := include && len(sources) == 0
	i, ok := n.groups.index[groupKey{a, dev}]
	if !ok {
		if leave {
			return ErrMissing
		}
		if i, ok = n.newGroup(groupKey{a, dev}); !ok {
			return ErrFull
		}
	}
	g := &n.groups.slot[i]
	// A socket that is a member may change its filter in a full group; only a further socket is rejected.
	if !leave && len(g.interests) == maxGroupSockets && !slices.ContainsFunc(g.interests, func(w interest) bool { return w.socket == socket }) {
		return ErrFull
	}
	g.interests = slices.DeleteFunc(g.interests, func(w interest) bool { return w.socket == socket })
	if !leave {
		s := slices.Clone(sources)
		slices.SortFunc(s, compareAddrs)
		g.interests = append(g.interests, interest{socket, include, slices.Compact(s)})
	}
	n.updateFilter(i)
	return nil
}

// countOwnUse joins or leaves a group for the node itself. Where the table is full the group is not joined, and what is
// sent to it is dropped: MaxGroups has to hold the solicited-node groups of all addresses.
func (n *Node) countOwnUse(dev uint8, a wire.Addr, join bool) {
	i, ok := n.groups.index[groupKey{a, dev}]
	if !ok {
		if !join {
			return
		}
		if i, ok = n.newGroup(groupKey{a, dev}); !ok {
			return
		}
	}
	if g := &n.groups.slot[i]; join {
		g.own++
	} else {
		g.own--
	}
	n.updateFilter(i)
}

// newGroup returns the slot of a new group with the filter include of nothing: no member yet.
func (n *Node) newGroup(k groupKey) (uint16, bool) {
	i := slices.IndexFunc(n.groups.slot, func(g group) bool { return !g.used })
	if i < 0 {
		return 0, false
	}
	n.groups.slot[i] = group{key: k, used: true, include: true, report: pendingReport{change: clock.Never, answer: clock.Never}}
	n.groups.index[k] = uint16(i)
	return uint16(i), true
}

// updateFilter works out the filter of the group in slot i (RFC 3376 3.2), and reports a change to the routers.
func (n *Node) updateFilter(i uint16) {
	g := &n.groups.slot[i]
	include, sources := g.filter()
	n.local.invalidate()
	if include != g.include || !slices.Equal(sources, g.sources) {
		was := *g
		g.include, g.sources = include, sources
		n.filterChanged(i, &was)
	}
	n.freeGroup(i)
}

// freeGroup frees slot i once its group has no member and the leave has been reported as often as it must be (RFC 3376
// 5.1): a lost report would let the routers forward the group until its timer ends.
func (n *Node) freeGroup(i uint16) {
	if g := &n.groups.slot[i]; g.empty() && !g.report.pending() {
		n.wheel.Stop(n.base.groups + uint32(i))
		delete(n.groups.index, g.key)
		*g = group{}
	}
}

// empty reports whether neither a socket nor the node itself is a member.
func (g *group) empty() bool { return g.own == 0 && len(g.interests) == 0 }

// filter returns the state of the interface (RFC 3376 3.2). Where a socket excludes, the interface excludes the sources
// that all such sockets exclude and that no socket includes. Otherwise it includes every source that a socket includes.
// The node's own use excludes nothing.
func (g *group) filter() (include bool, sources []wire.Addr) {
	include = g.own == 0
	var excluded, included []wire.Addr
	first := true
	for _, w := range g.interests {
		switch {
		// The interface must pass what any socket accepts: include lists are united, exclude lists intersected.
		case w.include:
			included = union(included, w.sources)
		case first && g.own == 0:
			include, excluded, first = false, slices.Clone(w.sources), false
		default:
			include, excluded = false, intersection(excluded, w.sources)
		}
	}
	switch {
	case include && len(included) > maxGroupSources:
		return false, nil // more than maxGroupSources: accept all, and the transport filters for each socket
	case include:
		return true, included
	}
	return false, difference(excluded, included)
}

// union, difference and intersection are operations on sorted sets of at most maxGroupSources addresses. Their results
// are new slices: the arguments belong to interests and filters that stay.
func union(a, b []wire.Addr) []wire.Addr {
	u := append(slices.Clone(a), b...)
	slices.SortFunc(u, compareAddrs)
	return slices.Compact(u)
}

func difference(a, b []wire.Addr) []wire.Addr {
	return slices.DeleteFunc(slices.Clone(a), func(x wire.Addr) bool { return slices.Contains(b, x) })
}

func intersection(a, b []wire.Addr) []wire.Addr {
	return slices.DeleteFunc(slices.Clone(a), func(x wire.Addr) bool { return !slices.Contains(b, x) })
}
