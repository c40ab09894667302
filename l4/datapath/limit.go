package datapath

import (
	"math/bits"
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern/lpm"
)

// Limits are token buckets of clients: an IPv4 address or an IPv6 /64 each. A bucket is not a
// count of tokens but the moment at which it will be full again (the theoretical arrival time of
// ITU-T I.371): a packet moves it by the packet's cost, and is rejected when it would lie more than the burst
// ahead. One word is a whole bucket, no timer refills it, and a bucket that is full again equals none, so its
// place can be reused.

// spans of time are in units of 1/16 ns, and moments wrap after 2^48 of them, 4.9 h. A bucket that
// was not used for so long may be mistaken for a used one while its burst lasts.
const (
	unitsPerNs = 16
	momentMask = 1<<48 - 1
	farthest   = uint64(2*time.Minute) * unitsPerNs // more than any lies ahead
)

// allowance is a rate and a burst. The zero value allows everything.
type allowance struct{ cost, burst uint64 }

// Limits bound what one client sends: to all services, or to one. The zero value is no limit.
type Limits struct {
	packets, connections allowance

	// meters names the meters of these limits: 0 those of all services, otherwise a number that no other service
	// has had. The number of a service would not do: it is given again, and with it the meters would be.
	meters uint32
}

// NewLimits returns the limits of so many packets and new connections per second; 0 is no limit. burst is how
// much may come at once, as a time at these rates. Limits with the same meters share what is left of them.
func NewLimits(packets, connections int, burst time.Duration, meters uint32) Limits {
	return Limits{newAllowance(packets, burst), newAllowance(connections, burst), meters}
}

// any reports whether there is a limit.
func (l *Limits) any() bool { return l.packets.cost|l.connections.cost != 0 }

// newAllowance returns an allowance of rate a second; 0 is no limit. One is always allowed.
func newAllowance(rate int, burst time.Duration) allowance {
	if rate == 0 {
		return allowance{}
	}
	cost := uint64(time.Second) * unitsPerNs / uint64(rate)
	return allowance{cost, max(cost, uint64(burst)*unitsPerNs)}
}

// LimitTable is the limits of a snapshot.
type LimitTable struct {
	on       bool // there are some
	clients  int  // that are followed, of all loops together
	all      Limits
	services []Limits // by number; those of one without are zero
}

// NewLimitTable returns the limits to all services together and to each one by number. clients is how many are
// followed, of all loops together.
func NewLimitTable(clients int, all Limits, services []Limits) LimitTable {
	t := LimitTable{clients: clients, all: all, services: services}
	t.on = t.all.any()
	for i := range services {
		t.on = t.on || services[i].any()
	}
	return t
}

// meter is the state of one client and limit. The upper 16 bits of both words are its tag,
// the others the moments at which it is full again.
type meter struct{ packets, connections uint64 }

// meters is a set-associative table of fixed size: the four meters of a set lie in one cache line.
// When a set has no room the fullest meter is replaced, so sources that send little, or once, replace each
// other and not a client that is at its limit: forging sources does not reset a limit.
type meters struct {
	sets [][4]meter
	key  hashKey
}

func newMeters(clients int, key hashKey) *meters {
	return &meters{sets: make([][4]meter, max(clients/4, 1)), key: key}
}

// find returns the meter of a client and a limit, one that is full now, in the place of the fullest, when it has none.
func (b *meters) find(client addr, limit uint32, now uint64) *meter {
	if !client.is4() {
		client.lo = 0
	}
	h := b.key.sum(client, uint64(limit)<<32|3)
	tag := meter{h << 48, h << 32 &^ momentMask}
	i, _ := bits.Mul64(h, uint64(len(b.sets)))
	set := &b.sets[i]
	fullest, least := 0, uint64(1<<63)
	for i := range set {
		if set[i].packets&^momentMask == tag.packets && set[i].connections&^momentMask == tag.connections {
			return &set[i]
		}
		if d := max(ahead(set[i].packets, now), ahead(set[i].connections, now)); d < least {
			fullest, least = i, d
		}
	}
	set[fullest] = meter{tag.packets | now, tag.connections | now}
	return &set[fullest]
}

// ahead returns how far the moment in word lies ahead of now; 0 when it has passed.
func ahead(word, now uint64) uint64 {
	if d := (word - now) & momentMask; d <= farthest {
		return d
	}
	return 0
}

// take takes one token; false, and nothing changes, when there is none.
func (a *allowance) take(word *uint64, now uint64) bool {
	if a.cost == 0 {
		return true
	}
	d := ahead(*word, now)
	if d > a.burst { // moments have wrapped since, or a reload made the burst shorter
		d = 0
	}
	if d += a.cost; d > a.burst {
		return false
	}
	*word = *word&^momentMask | (now+d)&momentMask
	return true
}

// withinPackets counts a packet of a client to a service, -1 for one that is gone, and reports
// whether the client's limits allow it.
func (h limiter) withinPackets(client addr, service int32) bool {
	l, now := &h.snap.Limits, moment(h.clock)
	if l.all.packets.cost != 0 && !l.all.packets.take(&h.meters.find(client, 0, now).packets, now) {
		return false
	}
	if service < 0 {
		return true
	}
	of := &l.services[service]
	return of.packets.cost == 0 || of.packets.take(&h.meters.find(client, of.meters, now).packets, now)
}

// withinConnections is withinPackets for a new connection.
func (h limiter) withinConnections(client addr, service uint32) bool {
	l, now := &h.snap.Limits, moment(h.clock)
	if l.all.connections.cost != 0 && !l.all.connections.take(&h.meters.find(client, 0, now).connections, now) {
		return false
	}
	of := &l.services[service]
	return of.connections.cost == 0 || of.connections.take(&h.meters.find(client, of.meters, now).connections, now)
}

// OnLimited has f called with the client of each packet that exceeds a limit to all services, on the loop. It is called
// before the first packet.
func (h *Handler) OnLimited(f func(client netip.Addr, now clock.Time)) { h.onLimited = f }

func (h limiter) reportLimited(client addr) {
	if h.onLimited != nil {
		h.onLimited(client.Addr(), h.clock)
	}
}

func moment(now clock.Time) uint64 { return uint64(now) * unitsPerNs & momentMask }

// SourceTable selects which clients may use a service: the longest prefix that holds one decides.
type SourceTable struct {
	Prefixes *lpm.Table
	Denied   uint16 // what prefixes of denied clients lead to; 0 is the result for clients that no prefix holds
	Deny     bool   // clients that no prefix holds are denied
}

// Denies reports whether client a may not pass; a nil table denies none.
func (t *SourceTable) Denies(a netip.Addr) bool { return t.denies(addrOf(a)) }

// denies reports whether client a may not pass; a nil table denies none.
func (t *SourceTable) denies(a addr) bool {
	if t == nil {
		return false
	}
	v4 := a.is4()
	if v4 {
		a = addr{hi: a.lo << 32}
	}
	if hop := t.Prefixes.LookupWords(a.hi, a.lo, v4); hop != 0 {
		return hop == t.Denied
	}
	return t.Deny
}

// Sources are the source lists of a snapshot.
type Sources struct {
	all      *SourceTable
	services []*SourceTable // by number
	round    uint32         // of marks
	Mark     uint8          // of this state of the lists, for connections; 0 while there never were any
}

// denies reports whether a client may not use a service.
func (s *Sources) denies(client addr, service uint32) bool {
	return s.all.denies(client) || s.services[service].denies(client)
}

// lastMark is the last before marks begin anew, with the next round.
const lastMark = 255

// Renew returns the same lists with another mark: what let connections in has changed.
func (s *Sources) Renew() Sources { return s.Next(s.all, s.services, true) }

// Next returns the state of the lists after s. Its mark differs if they have changed.
func (s *Sources) Next(all *SourceTable, services []*SourceTable, changed bool) Sources {
	n := Sources{all: all, services: services, round: s.round, Mark: s.Mark}
	if changed && n.Mark == lastMark {
		n.Mark, n.round = 1, n.round+1
	} else if changed {
		n.Mark++
	}
	return n
}
