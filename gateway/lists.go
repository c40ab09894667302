package gateway

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/gpukern"
)

// sourceTable says which clients may use a service: the longest prefix that holds one decides.
type sourceTable struct {
	prefixes *gpukern.LPM
	deny     bool // those that no prefix holds
}

// What a sourceTable's prefixes lead to.
const (
	sourceAllow = 1 + iota
	sourceDeny
)

// denies reports whether a may not pass; nil denies nobody.
func (t *sourceTable) denies(a addr) bool {
	if t == nil {
		return false
	}
	v4 := a.is4()
	if v4 {
		a = addr{hi: a.lo << 32}
	}
	switch t.prefixes.LookupWords(a.hi, a.lo, v4) {
	case sourceAllow:
		return false
	case sourceDeny:
		return true
	}
	return t.deny
}

// sourceTables are the compiled lists of a configuration: nil where there are none.
type sourceTables struct {
	all      *sourceTable
	services map[string]*sourceTable
}

// sources are the lists of a snapshot.
type sources struct {
	from     *sourceTables
	all      *sourceTable
	services []*sourceTable // by number
	round    uint32         // of marks
	mark     uint8          // of this state of the lists, for connections; 0 while there never were any
}

// denies reports whether a client may not use a service.
func (s *sources) denies(client addr, service uint32) bool {
	return s.all.denies(client) || s.services[service].denies(client)
}

// lastMark is the last before marks begin anew, with the next round.
const lastMark = 255

// buildSources returns the lists of a configuration for the services of s, whose own are those of before.
func (g *Gateway) buildSources(s *snapshot, c *Config) sources {
	n := sources{
		from: c.lists, all: c.lists.all, services: make([]*sourceTable, len(s.services)),
		round: s.sources.round, mark: s.sources.mark,
	}
	for name, t := range c.lists.services {
		n.services[g.reg.services[name]] = t
	}
	changed := n.from != s.sources.from && (n.mark != 0 || n.all != nil || len(c.lists.services) > 0)
	if changed && n.mark == lastMark {
		n.mark, n.round = 1, n.round+1
	} else if changed {
		n.mark++
	}
	return n
}

// listed is an entry of a list: 24 bytes, so that a million are modest.
type listed struct {
	addr addr
	line uint32 // in the file
	file uint16 // by its place in listReader.files; 0 is the configuration itself
	bits uint8
	kind uint8 // sourceAllow or sourceDeny, and listed4 for an IPv4 prefix
}

const listed4 = 1 << 7

func newListed(p netip.Prefix) listed {
	l := listed{addr: addrOf(p.Addr()), bits: uint8(p.Bits())}
	if p.Addr().Is4() {
		l.kind = listed4
	}
	return l
}

func (l *listed) prefix() netip.Prefix {
	if l.kind&listed4 != 0 {
		return netip.PrefixFrom(l.addr.Addr(), int(l.bits))
	}
	var b [16]byte
	l.addr.put(b[:])
	return netip.PrefixFrom(netip.AddrFrom16(b), int(l.bits))
}

// order compares by prefix, then by place.
func (l *listed) order(o *listed) int {
	return cmp.Or(l.orderPrefix(o), cmp.Compare(l.file, o.file), cmp.Compare(l.line, o.line))
}

func (l *listed) orderPrefix(o *listed) int {
	return cmp.Or(
		cmp.Compare(l.kind&listed4, o.kind&listed4), cmp.Compare(l.addr.hi, o.addr.hi),
		cmp.Compare(l.addr.lo, o.addr.lo), cmp.Compare(l.bits, o.bits))
}

// compile makes the table of all entries. One that stands in a list twice counts once; one that is both
// allowed and denied is a mistake.
func (r *listReader) compile(all []listed, deny bool) *sourceTable {
	slices.SortFunc(all, func(a, b listed) int { return a.order(&b) })
	routes := make([]gpukern.Route, 0, len(all))
	for i := range all {
		l := &all[i]
		if i > 0 && l.orderPrefix(&all[i-1]) == 0 {
			if l.kind != all[i-1].kind {
				r.conflict(l, &all[i-1])
			}
			continue
		}
		routes = append(routes, gpukern.Route{Prefix: l.prefix(), NextHop: uint16(l.kind &^ listed4)})
	}
	lpm, err := gpukern.CompileLPM(routes)
	if err != nil {
		panic(err) // prefixes are checked, and each is there once
	}
	return &sourceTable{prefixes: lpm, deny: deny}
}

// conflict notes that l says another thing than before.
func (r *listReader) conflict(l, before *listed) {
	where := fmt.Sprintf("%s:%d", r.files[before.file], before.line)
	if before.file == 0 {
		where = "the configuration"
	}
	word := [...]string{sourceAllow: "allowed", sourceDeny: "denied"}[before.kind&^listed4]
	r.fail(l, fmt.Sprintf("%s is already %s by %s", l.prefix(), word, where))
}
