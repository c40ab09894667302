package acl

import (
	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/gpukern/tuple"
)

// decision finds the rules of one family by lists that are short: the source address of a packet leads to
// the rules that name it and to no others, in order, its destination to those that name no source, and
// its ports to those that name neither. Where such a list is long still, it is split by another field.
//
//	source ------> trie -> list                     rules that name a source
//	                    -> trie of destinations -> list
//	destination -> trie -> list                     rules that name no source
//	ports -------> trie -> list                     rules that name no address
//
// A rule stands in the list of every longer prefix below its own; that is what bounds the form. Lists that
// would need too much memory, or stay long, have bit vectors instead (classifier).
type decision struct {
	trie  lpm.Trie[uint16] // of all fields; each fork has a row of its own
	refs  []uint32         // by the values of tries: a list or a fork; the first is 0
	forks []fork           // the first is none
	items []item           // the lists; the first is none
	flat  []flatRule       // by place, for items that say "may match"
	v6    bool
	deep  bool      // addresses of more than 64 bits count
	top   [3]uint32 // where to begin; all lead somewhere
}

// fork is a field that chooses among lists, or among further forks.
type fork struct {
	row, wide uint32 // of the trie
	key       uint32 // keySrc and so on
	other     uint32 // for packets that have no ports, where the key is one
}

// The keys of forks.
const (
	keySrc = iota
	keyDst
	keySrcPort
	keyDstPort
	keyProto
	keys
)

// forkBit marks a fork among references; others are the place of a list. 0 is no list.
const forkBit = 1 << 31

// item is a rule in a list: what is left to compare, in 16 bytes.
type item struct {
	dst            uint32 // the first 32 bits
	sports, dports uint32 // the first port, and how many follow << 16
	place          uint16 // in the caller's list, from 0
	proto          uint8  // 0 is any
	marks          uint8  // how many last bits of dst do not count, and the marks below
}

const (
	itemShift = 1<<6 - 1
	itemAsks  = 1 << 6 // packets without ports do not match
	itemLast  = 1 << 7
	itemMay   = 33 // for 32 bits: compare the whole rule, whose source is short
)

// may reports whether a packet that matches m has to be compared with the whole rule: its source is short,
// or its destination may be longer than the 32 bits of the item.
func (d *decision) may(m *item) bool {
	shift := m.marks & itemShift
	return shift == itemMay || shift == 0 && d.v6
}

// choose returns the list or fork that a packet's value of the field of s leads to.
func (d *decision) choose(s *fork, t *tuple.Tuple) uint32 {
	var hi, lo uint64
	switch s.key {
	case keySrc:
		hi, lo = t.SrcHi, t.SrcLo
	case keyDst:
		hi, lo = t.DstHi, t.DstLo
	case keyProto:
		hi = uint64(t.Proto) << 56
	default:
		if t.Known != tuple.Ports {
			return s.other
		}
		hi = uint64(t.Ports) << 48
		if s.key == keySrcPort {
			hi = uint64(t.Ports>>16) << 48
		}
	}
	return d.refs[d.trie.FindFrom(s.row, uint(s.wide), hi, lo)]
}

// scan returns the place of the first rule of a list that matches t, or best if that is lower.
func (d *decision) scan(t *tuple.Tuple, at uint32, best uint16) uint16 {
	asks := uint64(itemAsks)
	if t.Known == tuple.Ports {
		asks = 0
	}
	dst, sport, dport := uint32(t.DstHi>>32), t.Ports>>16, t.Ports&0xffff
	for i := range d.items[at:] {
		m := &d.items[int(at)+i]
		if m.place >= best {
			break
		}
		miss := uint64(m.dst^dst)>>(m.marks&itemShift) | uint64(m.marks)&asks | outside(m.sports, sport) | outside(m.dports, dport)
		if miss == 0 && (m.proto == 0 || m.proto == t.Proto) && (!d.may(m) || d.flat[m.place].matches(t)) {
			return m.place
		}
		if m.marks&itemLast != 0 {
			break
		}
	}
	return best
}

// outside has its top bit set where port is not in the range.
func outside(ports, port uint32) uint64 {
	return (uint64(ports>>16) - uint64((port-ports)&0xffff)) & (1 << 63)
}

// matches compares a tuple of the rule's family with the rule, field by field.
func (r *flatRule) matches(t *tuple.Tuple) bool {
	if r.asks != 0 && (t.Known != tuple.Ports || outside(r.sports, t.Ports>>16)|outside(r.dports, t.Ports&0xffff) != 0) {
		return false
	}
	return (r.proto == 0 || r.proto == t.Proto) &&
		lpm.Alike(t.SrcHi, t.SrcLo, r.srcHi, r.srcLo, r.srcBits) && lpm.Alike(t.DstHi, t.DstLo, r.dstHi, r.dstLo, r.dstBits)
}

// size returns the bytes that d takes.
func (d *decision) size() int {
	return d.trie.Size() + len(image.Bytes(d.forks)) + 4*len(d.refs) + len(image.Bytes(d.items)) + len(image.Bytes(d.flat))
}
