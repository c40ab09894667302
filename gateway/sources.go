package gateway

import (
	"net/netip"

	"github.com/millrace/millrace/gpukern/lpm"
)

// sourceTable says which clients may use a service: the longest prefix that holds one decides.
type sourceTable struct {
	prefixes *lpm.Table
	denied   uint16 // what prefixes of denied clients lead to; 0 is the result for clients that no prefix holds
	deny     bool   // clients that no prefix holds are denied
}

// Denies reports whether client a may not pass; a nil table denies none.
func (t *sourceTable) Denies(a netip.Addr) bool { return t.denies(addrOf(a)) }

// denies reports whether client a may not pass; a nil table denies none.
func (t *sourceTable) denies(a addr) bool {
	if t == nil {
		return false
	}
	v4 := a.is4()
	if v4 {
		a = addr{hi: a.lo << 32}
	}
	if hop := t.prefixes.LookupWords(a.hi, a.lo, v4); hop != 0 {
		return hop == t.denied
	}
	return t.deny
}

// sources are the lists of a snapshot.
type sources struct {
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

// next returns the state of the lists after s: the same where they are unchanged.
func (s *sources) next(all *sourceTable, services []*sourceTable, changed bool) sources {
	n := sources{all: all, services: services, round: s.round, mark: s.mark}
	if changed && n.mark == lastMark {
		n.mark, n.round = 1, n.round+1
	} else if changed {
		n.mark++
	}
	return n
}
