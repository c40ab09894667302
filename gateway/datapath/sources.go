package datapath

import (
	"net/netip"

	"github.com/millrace/millrace/gpukern/lpm"
)

// SourceTable says which clients may use a service: the longest prefix that holds one decides.
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
