package config

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/gpukern/lpm"
)

// SourceTable selects which clients may use a service: the longest prefix that holds one decides.
type SourceTable struct {
	Prefixes *lpm.Table // each leads to SourceAllow or SourceDeny
	Deny     bool       // clients that no prefix holds are denied
}

// What the prefixes of a SourceTable lead to.
const (
	SourceAllow = 1 + iota
	SourceDeny
)

// SourceTables are the compiled lists of a configuration. Tables are nil where there are no lists.
type SourceTables struct {
	All      *SourceTable
	Services map[string]*SourceTable // by name

	Listeners, Routes map[string]*SourceTable // the same
}

// listed is an entry of a list: 24 bytes, so that a million are modest.
type listed struct {
	hi, lo uint64 // address: IPv4 in its IPv6 form
	line   uint32 // in the file
	file   uint16 // by its place in listReader.files; 0 is the configuration itself
	bits   uint8
	kind   uint8 // SourceAllow or SourceDeny, and listed4 for an IPv4 prefix
}

const listed4 = 1 << 7

func newListed(p netip.Prefix) listed {
	b := p.Addr().As16()
	l := listed{hi: binary.BigEndian.Uint64(b[:]), lo: binary.BigEndian.Uint64(b[8:]), bits: uint8(p.Bits())}
	if p.Addr().Is4() {
		l.kind = listed4
	}
	return l
}

func (l *listed) prefix() netip.Prefix {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], l.hi)
	binary.BigEndian.PutUint64(b[8:], l.lo)
	a := netip.AddrFrom16(b)
	if l.kind&listed4 != 0 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, int(l.bits))
}

// order compares by prefix, then by place.
func (l *listed) order(o *listed) int {
	return cmp.Or(l.orderPrefix(o), cmp.Compare(l.file, o.file), cmp.Compare(l.line, o.line))
}

func (l *listed) orderPrefix(o *listed) int {
	return cmp.Or(
		cmp.Compare(l.kind&listed4, o.kind&listed4), cmp.Compare(l.hi, o.hi),
		cmp.Compare(l.lo, o.lo), cmp.Compare(l.bits, o.bits))
}

// compile makes the table of all entries. One that stands in a list twice counts once; one that is both
// allowed and denied is an error.
func (r *listReader) compile(all []listed, deny bool) *SourceTable {
	slices.SortFunc(all, func(a, b listed) int { return a.order(&b) })
	routes := make([]lpm.Route, 0, len(all))
	for i := range all {
		l := &all[i]
		if i > 0 && l.orderPrefix(&all[i-1]) == 0 {
			if l.kind != all[i-1].kind {
				r.conflict(l, &all[i-1])
			}
			continue
		}
		routes = append(routes, lpm.Route{Prefix: l.prefix(), NextHop: uint16(l.kind &^ listed4)})
	}
	table, err := lpm.Compile(routes)
	if err != nil {
		panic(err) // prefixes are checked, and each is there once
	}
	return &SourceTable{Prefixes: table, Deny: deny}
}

// conflict notes that l says another thing than before.
func (r *listReader) conflict(l, before *listed) {
	where := fmt.Sprintf("%s:%d", r.files[before.file], before.line)
	if before.file == 0 {
		where = "the configuration"
	}
	word := [...]string{SourceAllow: "allowed", SourceDeny: "denied"}[before.kind&^listed4]
	r.fail(l, fmt.Sprintf("%s is already %s by %s", l.prefix(), word, where))
}
