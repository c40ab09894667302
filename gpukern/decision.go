package gpukern

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
	trie[uint16]            // of all fields; each fork has a row of its own
	refs         []uint32   // by the values of tries: a list or a fork; the first is 0
	forks        []fork     // the first is none
	items        []item     // the lists; the first is none
	flat         []flatRule // by place, for items that say "may match"
	v6           bool
	deep         bool      // addresses of more than 64 bits count
	top          [3]uint32 // where to begin; all lead somewhere
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
// or its destination may be longer than the item tells.
func (d *decision) may(m *item) bool {
	shift := m.marks & itemShift
	return shift == itemMay || shift == 0 && d.v6
}

// find returns the number of the first rule that matches t, 0 where none does.
func (d *decision) find(t *tuple) uint16 {
	var refs [len(d.top)]uint32
	d.lists(t, &refs)
	return d.first(t, &refs)
}

// lists stores where the lists of t begin.
func (d *decision) lists(t *tuple, refs *[3]uint32) {
	for i, ref := range d.top {
		for ref&forkBit != 0 {
			ref = d.choose(&d.forks[ref&^forkBit], t)
		}
		refs[i] = ref
	}
}

func (d *decision) choose(s *fork, t *tuple) uint32 {
	var hi, lo uint64
	switch s.key {
	case keySrc:
		hi, lo = t.srcHi, t.srcLo
	case keyDst:
		hi, lo = t.dstHi, t.dstLo
	case keyProto:
		hi = uint64(t.proto) << 56
	default:
		if t.known != knowsPorts {
			return s.other
		}
		hi = uint64(t.ports) << 48
		if s.key == keySrcPort {
			hi = uint64(t.ports>>16) << 48
		}
	}
	return d.refs[d.findFrom(s.row, uint(s.wide), hi, lo)]
}

// first returns the lowest number of the rules that match t in its lists, 0 where none does.
func (d *decision) first(t *tuple, refs *[3]uint32) uint16 {
	best := uint16(none)
	for _, ref := range refs {
		if ref != 0 {
			best = d.scan(t, ref, best)
		}
	}
	return best + 1
}

// scan returns the place of the first rule of a list that matches t, or best if that is lower.
func (d *decision) scan(t *tuple, at uint32, best uint16) uint16 {
	asks := uint64(itemAsks)
	if t.known == knowsPorts {
		asks = 0
	}
	dst, sport, dport := uint32(t.dstHi>>32), t.ports>>16, t.ports&0xffff
	for i := range d.items[at:] {
		m := &d.items[int(at)+i]
		if m.place >= best {
			break
		}
		miss := uint64(m.dst^dst)>>(m.marks&itemShift) | uint64(m.marks)&asks | outside(m.sports, sport) | outside(m.dports, dport)
		if miss == 0 && (m.proto == 0 || m.proto == t.proto) && (!d.may(m) || d.flat[m.place].matches(t)) {
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
func (r *flatRule) matches(t *tuple) bool {
	if r.asks != 0 && (t.known != knowsPorts || outside(r.sports, t.ports>>16)|outside(r.dports, t.ports&0xffff) != 0) {
		return false
	}
	return (r.proto == 0 || r.proto == t.proto) &&
		above(t.srcHi, t.srcLo, r.srcHi, r.srcLo, r.srcBits) && above(t.dstHi, t.dstLo, r.dstHi, r.dstLo, r.dstBits)
}

// above reports whether the first n bits of two addresses are alike.
func above(hi, lo, hi2, lo2 uint64, n uint8) bool {
	if n <= 64 {
		return (hi^hi2)>>(64-n) == 0
	}
	return hi == hi2 && (lo^lo2)>>(128-n) == 0
}

// size returns the bytes that d takes.
func (d *decision) size() int {
	return d.trie.size() + len(bytesOf(d.forks)) + 4*len(d.refs) + len(bytesOf(d.items)) + len(bytesOf(d.flat))
}
