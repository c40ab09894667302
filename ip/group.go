package ip

import (
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Limits of groups beside Config.MaxGroups.
const (
	maxGroupSources = 64  // of one socket or one interface; more are refused
	maxGroupSockets = 256 // sockets of one group
)

type groupKey struct {
	addr wire.Addr
	dev  uint8
}

// interest is what one socket wants of a group: packets from sources alone, or from all but them.
type interest struct {
	socket  uint32
	include bool
	sources []wire.Addr
}

// group is a multicast group that a device is a member of (RFC 3376 3.2, RFC 3810 4.2: the state of an
// interface). Its filter follows from what the sockets want, and from the node's own use.
type group struct {
	key       groupKey
	used      bool
	own       int // uses of the node itself: solicited-node groups
	interests []interest
	include   bool
	sources   []wire.Addr // sorted

	report pendingReport
}

// groups are the groups of all devices: a fixed slab.
type groups struct {
	slot  []group
	index map[groupKey]uint16
}

func newGroups(slots int) groups {
	return groups{slot: make([]group, slots), index: map[groupKey]uint16{}}
}

// permanentGroup reports whether every host is in the group, and no report is sent of it: all systems and all
// nodes (RFC 3376 4.2.12, RFC 3810 6).
func permanentGroup(a wire.Addr) bool {
	return a == wire.Addr{10: 0xff, 11: 0xff, 12: 224, 15: 1} || a == allNodes || a == wire.Addr{0: 0xff, 1: 1, 15: 1}
}

// groupKind returns Multicast where dev is a member of group a.
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

// Member reports whether a packet from src to group a that came in on dev is wanted by somebody.
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

// Listen sets which packets to group a socket wants from dev, as IPMulticastListen of RFC 3376 2 and
// RFC 3810 3: those from sources alone (include), or all but those. Including none leaves the group. socket
// is any number below 1<<31 that the caller chose for one socket. ErrFull says that there are too many groups,
// sockets in one, or sources.
func (n *Node) Listen(now clock.Time, socket uint32, dev uint8, a wire.Addr, include bool, sources []wire.Addr) error {
	n.setNow(now)
	err := n.listen(socket, dev, a, include, sources)
	if err == nil {
		n.publishGroup(dev, a)
	}
	return err
}

// remoteSocket marks what the sockets of another node want, all together.
const remoteSocket = 1 << 31

// publishGroup tells the other nodes what the sockets of this one want of a group.
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

// countOwnUse joins or leaves a group for the node itself.
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

// newGroup returns the slot of a new group, of which nothing is wanted yet.
func (n *Node) newGroup(k groupKey) (uint16, bool) {
	i := slices.IndexFunc(n.groups.slot, func(g group) bool { return !g.used })
	if i < 0 {
		return 0, false
	}
	n.groups.slot[i] = group{key: k, used: true, include: true, report: pendingReport{change: clock.Never, answer: clock.Never}}
	n.groups.index[k] = uint16(i)
	return uint16(i), true
}

// updateFilter works out the filter of the group in slot i (RFC 3376 3.2), and has a change reported.
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

// freeGroup frees slot i once nobody wants its group and the routers were told.
func (n *Node) freeGroup(i uint16) {
	if g := &n.groups.slot[i]; g.empty() && !g.report.pending() {
		n.wheel.Stop(n.base.groups + uint32(i))
		delete(n.groups.index, g.key)
		*g = group{}
	}
}

// empty reports whether nobody wants the group.
func (g *group) empty() bool { return g.own == 0 && len(g.interests) == 0 }

// filter returns the state of the interface: if a socket excludes, it excludes what all such sockets
// exclude and no other one includes; else it includes what any includes.
func (g *group) filter() (include bool, sources []wire.Addr) {
	include = g.own == 0
	var excluded, included []wire.Addr
	first := true
	for _, w := range g.interests {
		switch {
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
		return false, nil // the sockets filter for themselves
	case include:
		return true, included
	}
	return false, difference(excluded, included)
}

// union, minus and both are the operations on sorted sets.
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
