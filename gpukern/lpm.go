package gpukern

import (
	"fmt"
	"net/netip"
)

// Route sends the addresses of a prefix to a next hop.
type Route struct {
	Prefix  netip.Prefix // IPv4 or IPv6, without bits beyond its length
	NextHop uint16       // from 1; what the number means is the caller's affair
}

// LPM is a compiled routing table: longest prefix match over IPv4 and IPv6. It is immutable and may
// be shared by engines. The zero value finds nothing.
type LPM struct {
	v4, v6 trie
	n      int
}

// TableError says which entry of a table cannot be compiled, and why.
type TableError struct {
	Entry  string // "rule" or "route"
	N      int    // which, counted from 1
	Reason string
}

// Error implements error.
func (e *TableError) Error() string { return fmt.Sprintf("%s %d: %s", e.Entry, e.N, e.Reason) }

// CompileLPM compiles routes; their order means nothing. The error is a *TableError that names the
// first route in the way: a prefix that is not valid or occurs twice, or a next hop of 0.
func CompileLPM(routes []Route) (*LPM, error) {
	s4, s6 := newSapling(), newSapling()
	for i, r := range routes {
		if reason := checkPrefix(r.Prefix); reason != "" {
			return nil, &TableError{"route", i + 1, reason}
		}
		if r.NextHop == 0 {
			return nil, &TableError{"route", i + 1, "next hop 0 means none; count from 1"}
		}
		s := s6
		if r.Prefix.Addr().Is4() {
			s = s4
		}
		val := s.at(r.Prefix)
		if *val != 0 {
			return nil, &TableError{"route", i + 1, fmt.Sprintf("%v is there already", r.Prefix)}
		}
		*val = uint32(r.NextHop)
	}
	t := &LPM{n: len(routes)}
	if !s4.empty() {
		t.v4 = *s4.trie()
	}
	if !s6.empty() {
		t.v6 = *s6.trie()
	}
	return t, nil
}

// checkPrefix returns what is wrong with p, "" where nothing is.
func checkPrefix(p netip.Prefix) string {
	switch {
	case !p.IsValid():
		return "the prefix is not valid"
	case p != p.Masked():
		return fmt.Sprintf("%v has bits beyond its length; %v is meant", p, p.Masked())
	}
	return ""
}

// Lookup returns the next hop of a, 0 where no route has it. An IPv4 address in IPv6 form is an
// IPv6 address here, as it is in packets.
func (t *LPM) Lookup(a netip.Addr) uint16 {
	hi, lo := words(a)
	if a.Is4() {
		return uint16(t.v4.find(hi, lo))
	}
	return uint16(t.v6.find(hi, lo))
}

// Len returns the number of routes.
func (t *LPM) Len() int { return t.n }

// Size returns the memory that the table takes, in bytes.
func (t *LPM) Size() int { return t.v4.size() + t.v6.size() }
