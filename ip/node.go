package ip

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Link is one device of the node: an Ethernet interface.
type Link struct {
	MAC wire.MAC
	MTU int // largest IP packet, bytes; at least 1280 where the link has IPv6 (RFC 8200 5), 68 otherwise (RFC 791 3.2)

	// Accept processes router advertisements: default routers, prefixes, addresses (RFC 4862). Any host on the link can
	// send one, so it is off unless set.
	Accept bool
	// LinkLocal generates an IPv6 link-local address (RFC 4291 2.5.6, RFC 7217).
	LinkLocal bool
}

// Output is where frames go. The node writes headers and payload straight into a frame of the caller's pool, so that a
// packet is copied once. A frame belongs to the output: the node holds it only between Frame and Send, and one at a time.
type Output interface {
	// Frame returns room for a frame of n bytes, from the Ethernet header on, to be sent on dev. It is
	// nil where there is none now. A frame that is not sent is reused by the next Frame.
	Frame(dev uint8, n int) []byte

	// Send transmits the first n bytes of the room that the last Frame returned.
	Send(dev uint8, n int)
}

// Config configures a Node. Zero values of limits are the documented defaults.
type Config struct {
	Now    clock.Time
	Seed   uint64   // of random delays, which need not be secret
	Secret [32]byte // key of what others must not predict: identifications (RFC 7739), stable addresses (RFC 7217)
	Links  []Link   // by device
	Output Output

	// LoopMTU is the largest packet on LoopDev, bytes; 0 is the largest MTU of the links.
	LoopMTU int

	// Follower is one node of several on the same links: another, the leader, handles ARP, neighbour discovery and
	// group membership, and reports by Changed what the caller passes to Apply here. A follower's Input returns Handover
	// for such packets.
	Follower bool
	ID       uint32 // of the node among those of its host, below 1<<31: it names the node in group filters

	// Changed receives the changes that other nodes on the same links need, which the caller passes to their Apply, and
	// those that a user may want to know. It is called in the middle of a method of the node, so it must not call the
	// node. It may be nil.
	Changed func(now clock.Time, c Change)

	// Error receives ICMP errors about packets of this host, and about packets that were dropped because their next
	// hop does not answer. e is borrowed. It reports whether a connection or socket of this host can have sent the
	// packet: only then is a path MTU stored, since anyone can forge a report of one (RFC 5927 7). It may be nil.
	Error func(now clock.Time, e *ICMPError) bool

	// Every table has a limit, because packets of others fill it: without one a flood ends in an exhausted heap.
	MaxNeighbors   int // entries of the neighbour table; 0 is 1024
	MaxQueued      int // packets that wait for one neighbour; 0 is 128: the fragments of any datagram
	MaxQueuedBytes int // of packets that wait for neighbours, all together; 0 is 512 KiB, of which one neighbour gets half
	MaxFragments   int // bytes held for reassembly; 0 is 1 MiB
	MaxReassembly  int // datagrams in reassembly; 0 is 256
	MaxPathMTU     int // destinations with a path MTU of their own; 0 is 1024
	MaxGroups      int // multicast groups, all devices together; 0 is 256
	ErrorRate      int // ICMP errors that the node sends, a second; 0 is 1000
}

// defaults replaces zero values.
func (c *Config) defaults() {
	for _, d := range []struct {
		v   *int
		def int
	}{
		{&c.MaxNeighbors, 1024},
		{&c.MaxQueued, 128},
		{&c.MaxQueuedBytes, 512 << 10},
		{&c.MaxFragments, 1 << 20},
		{&c.MaxReassembly, 256},
		{&c.MaxPathMTU, 1024},
		{&c.MaxGroups, 256},
		{&c.ErrorRate, 1000},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.LoopMTU == 0 {
		c.LoopMTU = 1280
		for i := range c.Links {
			c.LoopMTU = max(c.LoopMTU, c.Links[i].MTU)
		}
	}
}

// Node is the network layer of one loop. It has no locks: its methods, and the functions of Config that they call, belong
// to one goroutine at a time, which holds the loop. A packet on a known path is received and sent without allocation;
// what waits for a neighbour or for more fragments is copied to the heap, within the limits of Config.
type Node struct {
	cfg   Config
	links []link
	now   clock.Time // of the current call
	rand  random.Source

	wheel *clock.Wheel // timers: see timers.go
	due   func(id uint32)
	base  timerBase

	table    *Table
	epoch    uint64  // counts changes that end paths; 48 bits of it are in each Ref
	routesAt uint64  // epoch in which routes or addresses changed last: every older Ref is void
	loop     [2]Path // to this host, by IPv6 and by IPv4
	scratch  Path    // to groups and broadcasts, which have no entry; valid until the next call

	local   locals
	neigh   neighbors
	served  [4]uint64 // bit set of the 256 protocol numbers: those with a consumer
	frags   reassembly
	groups  groups
	routers routers
	idKey   random.Key // RFC 7217
	pmtu    pmtuCache
	ids     idCounters
	errors  RateLimiter
	stats   Stats

	applying bool // in Apply: the change is known to the others and is not reported again

	// Scratch space of the current call, here so that it does not escape to the heap for each packet.
	head    [wire.ICMPLen]byte // of the ICMP message that is being built
	parts   [2][]byte          // the message as Send takes it: head and quote
	failure ICMPError          // the argument of Config.Error
}

// link is the state of one device.
type link struct {
	Link
	mtu6      int           // IPv6: what routers advertise, or the link's (RFC 4861 6.3.4)
	base      time.Duration // RFC 4861 6.3.2: BaseReachableTime, the mean of reachable
	reachable time.Duration // ReachableTime: 0.5 to 1.5 of base, so that hosts do not probe in step
	retrans   time.Duration // RetransTimer
	hopLimit  uint8         // CurHopLimit
	querier   [2]querier    // of IPv6, of IPv4

	solicitWait  time.Duration // RFC 7559 2: RT, the time between two router solicitations
	servers      []wire.Addr   // DNS servers of the last RDNSS option, to report changes only
	serversUntil clock.Time
}

// mtu returns the MTU of one IP version. Router advertisements set only that of IPv6.
func (l *link) mtu(is4 bool) int {
	if is4 {
		return l.MTU
	}
	return l.mtu6
}

// header writes the Ethernet header of packets to mac.
func (l *link) header(p *Path, mac wire.MAC, is4 bool) {
	t := wire.EtherTypeIPv6
	if is4 {
		t = wire.EtherTypeIPv4
	}
	wire.AppendEthernet(p.Header[:0], mac, l.MAC, t)
}

// Stats counts what the verdicts of descriptors do not show: packets that the node originated, and packets that it had
// accepted (Deliver) and dropped later.
type Stats struct {
	Drops         [packet.Verdicts]uint64 // of packets that were accepted, or originated here
	Conflicts     uint64                  // ARP and neighbour advertisements that contradict a known link address
	Duplicates    uint64                  // addresses of this host that others claim
	Redirects     uint64                  // ICMP redirects: ignored
	Errors        uint64                  // ICMP errors sent
	ErrorsLimited uint64                  // not sent: limit
	Echoes        uint64                  // echo requests answered
	Reassembled   uint64                  // datagrams
	Fragmented    uint64                  // datagrams
	RejectedMTUs  uint64                  // path MTUs that no sender confirmed, or out of bounds
	FragmentMem   int                     // bytes held for reassembly now
	NeighborMem   int                     // bytes of packets that wait for neighbours now
	Neighbors     int                     // entries now
	PathMTUs      int                     // entries now
	Reassemblies  int                     // datagrams in reassembly now
}

// New returns a node. It panics where there are more than 251 links, or one without a usable MTU: device 254 is LoopDev
// and 255 is AnyDev. Address configuration begins at once: New itself may send group reports by Output.
func New(cfg Config) *Node {
	cfg.defaults()
	n := &Node{cfg: cfg, now: cfg.Now, rand: random.Source(cfg.Seed)}
	for i := range cfg.Links {
		l := cfg.Links[i]
		if l.MTU < 68 || i > 250 {
			panic("ip: a link needs an MTU of at least 68 bytes")
		}
		n.links = append(n.links, link{Link: l, mtu6: l.MTU, base: reachableTime, retrans: retransTimer, hopLimit: DefaultTTL})
		n.links[i].querier = [2]querier{newQuerier(), newQuerier()}
		n.links[i].reachable = n.rand.Between(reachableTime/2, reachableTime*3/2)
	}
	n.neigh = newNeighbors(cfg.MaxNeighbors, cfg.Now)
	n.local = newLocals()
	n.routers.adverts = NewRateLimiter(advertRate, advertBurst, cfg.Now)
	n.idKey = random.KeyFrom(cfg.Secret[16:])
	n.groups = newGroups(cfg.MaxGroups)
	n.frags = newReassembly(cfg.MaxReassembly)
	n.pmtu = pmtuCache{map[wire.Addr]pmtuEntry{}, cfg.MaxPathMTU}
	n.ids.key = random.KeyFrom(cfg.Secret[:])
	n.errors = NewRateLimiter(cfg.ErrorRate, errorBurst, cfg.Now)
	n.startTimers()
	n.setTable(NewTable(nil))
	for v := range n.loop {
		n.loop[v] = Path{Dev: LoopDev, Resolved: true, Kind: Unicast, MTU: cfg.LoopMTU, TTL: DefaultTTL}
	}
	n.Serve(wire.ProtoTCP, true)
	n.Serve(wire.ProtoUDP, true)
	n.startLinks()
	return n
}

// startLinks generates link-local addresses, and solicits routers where a link has none: with one, soliciting waits until
// the address is assigned (assign), since a router can then answer by unicast (RFC 4861 6.2.6).
func (n *Node) startLinks() {
	if n.cfg.Follower {
		return
	}
	for i := range n.links {
		switch l := &n.links[i]; {
		case l.LinkLocal:
			n.generateAddr(uint8(i), linkLocalPrefix, Automatic, 0, clock.Never, clock.Never)
		case l.Accept:
			n.startSolicit(uint8(i))
		}
	}
}

// setNow notes the time of a call.
func (n *Node) setNow(now clock.Time) { n.now = now }

// notifyChange reports a change to Config.Changed, unless the change came from there.
func (n *Node) notifyChange(c *Change) {
	if n.cfg.Changed != nil && !n.applying {
		n.cfg.Changed(n.now, *c)
	}
}

// Serve sets whether datagrams of protocol proto have a consumer. Input returns those as Undecided, which TCP and UDP
// are from New on; of ICMP and ICMPv6 it returns only echo replies. Other protocols are answered with protocol
// unreachable (RFC 1122 3.2.2.1).
func (n *Node) Serve(proto uint8, on bool) {
	if bit := uint64(1) << (proto & 63); on {
		n.served[proto>>6] |= bit
	} else {
		n.served[proto>>6] &^= bit
	}
}

func (n *Node) serves(proto uint8) bool { return n.served[proto>>6]>>(proto&63)&1 != 0 }

// Stats returns the counters.
func (n *Node) Stats() Stats {
	s := n.stats
	s.NeighborMem, s.Neighbors = n.neigh.queued, len(n.neigh.index)
	s.FragmentMem, s.Reassemblies, s.PathMTUs = n.frags.held, len(n.frags.index), len(n.pmtu.entry)
	return s
}
