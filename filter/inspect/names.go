package inspect

import "strings"

// nameTable numbers the names of bits and counters. The number of a name is the same in the rules that follow, so that a bit of a
// flow outlives a reload.
//
// A table keeps the names of its rules and of those before, and no others: rules that bring new names at each reload would else
// fill the memory. A name that one generation lacks has its number again in the next, one that two lack gets another. Numbers are
// not used twice, as flows have bits by the numbers of rules that are gone.
type nameTable struct {
	own    map[string]int // of these rules
	before map[string]int // of the rules before them
	next   int            // the first number that no name has had
}

// nameNumbering gives the names of new rules their numbers.
type nameNumbering struct {
	nameTable
	earlier map[string]int // of the rules before nameTable.before
}

// newNumbering begins the numbers of the rules behind r, nil for none.
func newNumbering(r *Rules) *nameNumbering {
	n := &nameNumbering{nameTable: nameTable{own: map[string]int{}}}
	if r != nil {
		n.before, n.earlier, n.next = r.names.own, r.names.before, r.names.next
	}
	return n
}

// number returns the number of a name, and gives it one where it has none. The name is copied: it is a part of the text of all rules,
// which the table would keep in memory.
func (n *nameNumbering) number(name string) int {
	id, ok := n.own[name]
	if ok {
		return id
	}
	if id, ok = n.before[name]; !ok {
		id, ok = n.earlier[name]
	}
	if !ok {
		id = n.next
		n.next++
	}
	n.own[strings.Clone(name)] = id
	return id
}
