package filter

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/gpukern/lpm"
)

// PrefixList is a set of addresses as prefixes, of up to a million and more. It is immutable.
type PrefixList struct {
	Name  string
	table *lpm.Table
	read  int
}

// NewPrefixList compiles a list. Prefixes may occur twice and lie in others. The prefixes are sorted in place.
func NewPrefixList(name string, prefixes []netip.Prefix) (*PrefixList, error) {
	p := &PrefixList{Name: name, read: len(prefixes)}
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	routes := make([]lpm.Route, 0, len(prefixes)) // a prefix that begins in the one before lies in it: the shorter stands first
	for _, n := range prefixes {
		if k := len(routes); k == 0 || !routes[k-1].Prefix.Contains(n.Addr()) {
			routes = append(routes, lpm.Route{Prefix: n, NextHop: 1})
		}
	}
	var err error
	p.table, err = lpm.Compile(routes)
	return p, err
}

// Contains reports whether the list has an address: of 128 bits in two words, an IPv4 address in the upper half of
// the first.
func (p *PrefixList) Contains(hi, lo uint64, v4 bool) bool {
	return p.table.LookupWords(hi, lo, v4) != 0
}

// Len returns the number of prefixes that were given.
func (p *PrefixList) Len() int { return p.read }

// Size returns the memory that the list takes, in bytes.
func (p *PrefixList) Size() int { return p.table.Size() }
