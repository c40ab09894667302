package ip

import (
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Group membership as IGMPv3 and MLDv2 have it in common; igmp.go and mld.go read and write their messages. A host reports
// a change of a filter unasked, robustness times, since reports are not acknowledged. It answers queries after a random
// delay, so that the hosts of a link do not answer at once.
//
// A follower reports nothing: routers see one host, which the leader reports for.

// Times of group membership (RFC 3376 8, RFC 3810 9).
const (
	robustness       = 2                      // RFC 3376 8.1: reports that are sent of each change, unless the querier says
	reportInterval   = time.Second            // RFC 3376 8.11: the longest time between two of them
	olderQuerier     = 260 * time.Second      // RFC 3376 8.12: robustness x 125 s + 10 s
	answerInterval   = 100 * time.Millisecond // between answers, whatever forged queries ask for
	maxQuerySources  = 64                     // of a query that are remembered; with more, all sources are reported
	recordHeaderLen4 = 8
	recordHeaderLen6 = 20
)

// recordKind is the type of a group record (RFC 3376 4.2.12, RFC 3810 5.2.12). The values are those of both protocols.
type recordKind uint8

const (
	isInclude recordKind = 1 + iota // MODE_IS_INCLUDE: the current state, in answer to a query
	isExclude                       // MODE_IS_EXCLUDE
	toInclude                       // CHANGE_TO_INCLUDE_MODE: the mode has changed; with an empty list a leave
	toExclude                       // CHANGE_TO_EXCLUDE_MODE: the mode has changed; with an empty list a join
	allowNew                        // ALLOW_NEW_SOURCES: these as well, in either mode
	blockOld                        // BLOCK_OLD_SOURCES: these no longer
)

// record is a group record of a report.
type record struct {
	kind    recordKind
	group   wire.Addr
	sources []wire.Addr
}

// querier is the state that a device keeps of the multicast routers of one IP version. A host uses the oldest version that a
// querier on the link has used lately: an older router cannot read records (RFC 3376 7.2.1, RFC 3810 8.2.1).
type querier struct {
	robust     uint8      // QRV
	v1, v2     clock.Time // older queriers count as present until then; MLD has one older version, at v2
	generalDue clock.Time // an answer to a general query is due; Never
	lastReport clock.Time // the last answer
}

// pendingReport holds the reports of a group that are still to be sent: changes, and answers to queries, each with its time. The
// earlier of the two is the group's timer.
type pendingReport struct {
	mode    uint8          // reports of a changed filter mode that are still to be sent; they carry all sources
	diff    []sourceChange // changes of sources
	change  clock.Time     // the next report of changes is due; Never
	answer  clock.Time     // an answer to a specific query is due; Never
	all     bool           // the query asked for the group
	sources []wire.Addr    // for these sources
}

// sourceChange is a source that is accepted now, or is no longer. It is still to be reported left times.
type sourceChange struct {
	addr  wire.Addr
	allow bool
	left  uint8
}

func newQuerier() querier {
	return querier{robust: robustness, v1: -clock.Never, v2: -clock.Never, generalDue: clock.Never, lastReport: -clock.Never}
}

// neverReported reports whether no report is ever sent for a: RFC 3376 5, RFC 3810 6. IPv6 groups of scope 0 (reserved) and
// 1 (interface-local) do not leave the host.
func neverReported(a wire.Addr) bool { return permanentGroup(a) || !a.Is4() && a[1]&0xf < 2 }

// querier returns what is known of the routers of a group's device and version.
func (n *Node) querier(k groupKey) *querier { return &n.links[k.dev].querier[family(k.addr.Is4())] }

// filterChanged reports a change of the filter of the group in slot i, at once and robustness-1 times more (RFC 3376 5.1,
// RFC 3810 6.1). A change of mode replaces the pending changes of sources, since its record lists all sources.
func (n *Node) filterChanged(i uint16, was *group) {
	g := &n.groups.slot[i]
	if n.cfg.Follower || neverReported(g.key.addr) {
		return
	}
	p, times := &g.report, n.querier(g.key).robust
	if was.include != g.include {
		p.mode, p.diff = times, nil
	} else {
		p.addSourceChanges(difference(g.sources, was.sources), g.include, times)
		p.addSourceChanges(difference(was.sources, g.sources), !g.include, times)
	}
	n.sendChanges(i)
}

// addSourceChanges adds sources to the pending changes. A newer change of a source replaces the older one, whose later
// reports would undo it at the routers.
func (p *pendingReport) addSourceChanges(sources []wire.Addr, allow bool, times uint8) {
	for _, a := range sources {
		p.diff = slices.DeleteFunc(p.diff, func(c sourceChange) bool { return c.addr == a })
		p.diff = append(p.diff, sourceChange{a, allow, times})
	}
}

// pending reports whether changes of the group are still to be reported.
func (p *pendingReport) pending() bool { return p.mode > 0 || len(p.diff) > 0 }

// sendChanges reports the changes of the group in slot i, and sets the time of the next report: after a random time up to
// the Unsolicited Report Interval (RFC 3376 5.1).
func (n *Node) sendChanges(i uint16) {
	g := &n.groups.slot[i]
	p := &g.report
	if n.hasOlderQuerier(g.key) {
		n.sendOlderReport(g)
	} else {
		n.report3(g.key.dev, g.key.addr.Is4(), g.changes())
	}
	p.mode = max(p.mode, 1) - 1
	for j := range p.diff {
		p.diff[j].left--
	}
	p.diff = slices.DeleteFunc(p.diff, func(c sourceChange) bool { return c.left == 0 })
	p.change = clock.Never
	if p.pending() {
		p.change = n.now.Add(n.rand.Between(time.Millisecond, reportInterval))
	}
	n.armGroup(i)
}

// changes returns the records of the pending changes: the whole filter after a change of mode, or single sources.
func (g *group) changes() []record {
	if g.report.mode > 0 {
		if g.include {
			return []record{{toInclude, g.key.addr, g.sources}}
		}
		return []record{{toExclude, g.key.addr, g.sources}}
	}
	var allow, block []wire.Addr
	for _, c := range g.report.diff {
		if c.allow {
			allow = append(allow, c.addr)
		} else {
			block = append(block, c.addr)
		}
	}
	return slices.Concat(split(allowNew, g.key.addr, allow), split(blockOld, g.key.addr, block))
}

// split returns records of at most maxGroupSources sources each; none where there are no sources.
func split(k recordKind, a wire.Addr, sources []wire.Addr) (list []record) {
	for part := range slices.Chunk(sources, maxGroupSources) {
		list = append(list, record{k, a, part})
	}
	return list
}

// armGroup sets the timer of the group in slot i.
func (n *Node) armGroup(i uint16) {
	p := &n.groups.slot[i].report
	if t := min(p.change, p.answer); t != clock.Never {
		n.wheel.Arm(n.base.groups+uint32(i), t)
	} else {
		n.wheel.Stop(n.base.groups + uint32(i))
	}
}

// groupTimer runs when the timer of the group in slot i has expired.
func (n *Node) groupTimer(i uint16) {
	g := &n.groups.slot[i]
	if g.report.answer <= n.now {
		n.sendGroupReport(g)
	}
	if g.report.change <= n.now {
		n.sendChanges(i)
	}
	n.armGroup(i)
	n.freeGroup(i)
}

// query is a membership query of either protocol.
type query struct {
	dev      uint8
	is4      bool
	group    wire.Addr // zero: general
	sources  []wire.Addr
	maxDelay time.Duration // the longest delay of an answer
	robust   uint8         // 0 leaves it
	version  uint8         // of IGMP; of MLD one more
}

// handleQuery takes a query (RFC 3376 5.2 and 7.2.1, RFC 3810 6.2 and 8.2.1). The answer is sent after a random time
// within the query's maximum, but not within answerInterval of the last one: anyone can send queries. A pending answer
// to a general query covers a group's as well, if it is due no later (RFC 3376 5.2 rule 1).
func (n *Node) handleQuery(q *query) {
	l := &n.links[q.dev].querier[family(q.is4)]
	switch q.version {
	case 1:
		l.v1 = n.now.Add(olderQuerier)
	case 2:
		l.v2 = n.now.Add(olderQuerier)
	default:
		if l.robust = q.robust; q.robust == 0 {
			l.robust = robustness
		}
	}
	at := max(n.now.Add(n.rand.Between(time.Millisecond, q.maxDelay)), l.lastReport.Add(answerInterval))
	if l.generalDue <= at {
		return
	}
	if q.group == (wire.Addr{}) {
		l.generalDue = at
		n.wheel.Arm(n.base.queries+uint32(q.dev)*2+uint32(family(q.is4)), at)
		return
	}
	if i, ok := n.groups.index[groupKey{q.group, q.dev}]; ok && !n.groups.slot[i].empty() && !neverReported(q.group) {
		n.groups.slot[i].report.addQuery(q.sources, at)
		n.armGroup(i)
	}
}

// addQuery merges a query for a group, or for sources of it, into the pending answer (RFC 3376 5.2 rules 3 to 5): the
// answer is due at the earlier time and covers the sources of both. With too many sources it covers the whole group.
func (p *pendingReport) addQuery(sources []wire.Addr, at clock.Time) {
	if p.answer == clock.Never {
		p.all, p.sources = false, nil
	}
	p.sources = union(p.sources, sources)
	if p.all = p.all || len(sources) == 0 || len(p.sources) > maxQuerySources; p.all {
		p.sources = nil
	}
	p.answer = min(p.answer, at)
}

// sendGroupReport answers a query for a group: with its filter, or of the sources asked for with those that are accepted
// (RFC 3376 5.2: A*B in include mode, B-A in exclude mode). An empty answer is not sent.
func (n *Node) sendGroupReport(g *group) {
	p := &g.report
	p.answer = clock.Never
	switch {
	case g.empty():
	case n.hasOlderQuerier(g.key):
		n.sendOlderReport(g)
	case p.all:
		n.report3(g.key.dev, g.key.addr.Is4(), []record{g.current()})
	case g.include:
		n.report3(g.key.dev, g.key.addr.Is4(), split(isInclude, g.key.addr, intersection(g.sources, p.sources)))
	default:
		n.report3(g.key.dev, g.key.addr.Is4(), split(isInclude, g.key.addr, difference(p.sources, g.sources)))
	}
	n.querier(g.key).lastReport = n.now
}

// current returns the current-state record of the group (RFC 3376 4.2.12).
func (g *group) current() record {
	if g.include {
		return record{isInclude, g.key.addr, g.sources}
	}
	return record{isExclude, g.key.addr, g.sources}
}

// answerGeneral answers a general query with the records of all groups of a device and an IP version. id is 2*dev, plus 1
// for IPv4, as the timers are laid out.
func (n *Node) answerGeneral(id int) {
	dev, is4 := uint8(id/2), id%2 == 1
	l := &n.links[dev].querier[id%2]
	l.generalDue, l.lastReport = clock.Never, n.now
	var list []record
	for i := range n.groups.slot {
		g := &n.groups.slot[i]
		if !g.used || g.key.dev != dev || g.key.addr.Is4() != is4 || g.empty() || neverReported(g.key.addr) {
			continue
		}
		if n.hasOlderQuerier(g.key) {
			n.sendOlderReport(g)
		} else {
			list = append(list, g.current())
		}
	}
	n.report3(dev, is4, list)
}

// hasOlderQuerier reports whether a querier of an older version is on the device: it would not understand records.
func (n *Node) hasOlderQuerier(k groupKey) bool {
	q := n.querier(k)
	return n.now < q.v1 || n.now < q.v2
}

// suppressReport is called when another host has reported a group. With an older querier one report for a link is enough
// (RFC 2236 3, RFC 2710 4). IGMPv3 and MLDv2 have no suppression (RFC 3376 A.2, RFC 3810 A.2).
func (n *Node) suppressReport(dev uint8, a wire.Addr) {
	k := groupKey{a, dev}
	if i, ok := n.groups.index[k]; ok && n.hasOlderQuerier(k) && !n.groups.slot[i].report.pending() {
		n.groups.slot[i].report.answer = clock.Never
		n.armGroup(i)
	}
}

// report3 sends records to the routers on a device, as IGMPv3 or MLDv2, in as many reports as the MTU requires (RFC 3376
// 4.2.16, RFC 3810 5.2.15).
func (n *Node) report3(dev uint8, is4 bool, list []record) {
	for len(list) > 0 {
		size, k := 0, 0
		for k < len(list) && (k == 0 || size+list[k].size() <= n.links[dev].mtu(is4)-reportHeaders) {
			size += list[k].size()
			k++
		}
		if is4 {
			n.sendReport4(dev, list[:k], size)
		} else {
			n.sendReport6(dev, list[:k], size)
		}
		list = list[k:]
	}
}

// reportHeaders is the room that IP header, router alert and the report's own header take, the larger of
// the two versions.
const reportHeaders = 40 + 8 + 8

// size returns the length of a record in bytes.
func (r *record) size() int {
	if r.group.Is4() {
		return recordHeaderLen4 + 4*len(r.sources)
	}
	return recordHeaderLen6 + 16*len(r.sources)
}

// append appends the record as it is sent (RFC 3376 4.2, RFC 3810 5.2):
//
//	+---------------+---------------+-------------------------------+
//	|  Record Type  |  Aux Data Len |       Number of Sources       |
//	+---------------+---------------+-------------------------------+
//	|  Multicast Address, 4 or 16 bytes, and the source addresses   |
//	+---------------------------------------------------------------+
func (r *record) append(b []byte) []byte {
	b = append(b, byte(r.kind), 0, byte(len(r.sources)>>8), byte(len(r.sources)))
	b = appendAddr(b, r.group)
	for _, s := range r.sources {
		b = appendAddr(b, s)
	}
	return b
}

// appendAddr appends 4 or 16 bytes.
func appendAddr(b []byte, a wire.Addr) []byte {
	if a.Is4() {
		return append(b, a[12:]...)
	}
	return append(b, a[:]...)
}
