package acl

import (
	"encoding/binary"
	"slices"

	"github.com/millrace/millrace/gpukern/lpm"
)

// Bounds of a decision. Past them a list has bit vectors: a rule is compared in about a nanosecond, so that
// vectors, which take some hundred for ten thousand rules, are slower than any list of listMost.
const (
	shortPrefix = 8       // names no address
	listShort   = 16      // not split any further
	listMost    = 48      // the longest that may remain
	itemsMost   = 1 << 19 // in all lists, 8 MiB
	workMost    = 1 << 23 // rules looked at while compiling
)

// decider makes a decision.
type decider struct {
	d      *decision
	p      lpm.Builder[uint16]
	rules  []Rule
	lists  map[string]uint32 // by the places in them
	values map[uint32]uint32 // by reference
	key    []byte
	work   int
	fits   bool
}

// decide returns the decision of the rules of a family, nil where it would pass the bounds.
func decide(rules []Rule, v4 bool) *decision {
	mine := (*Rule).for6
	if v4 {
		mine = (*Rule).for4
	}
	b := decider{d: &decision{v6: !v4, forks: make([]fork, 1), items: make([]item, 1)}, rules: rules, lists: map[string]uint32{}, values: map[uint32]uint32{0: 0}, fits: true}
	b.d.refs = []uint32{0}
	var named [3][]uint16 // by source, by destination, by neither
	b.d.flat = make([]flatRule, len(rules))
	for i := range rules {
		r := &rules[i]
		if !mine(r) {
			continue
		}
		b.d.flat[i] = r.flat()
		b.d.deep = b.d.deep || b.d.flat[i].srcBits > 64 || b.d.flat[i].dstBits > 64
		k := 0
		if r.Src.Bits() < shortPrefix { // -1 for the zero value
			k++
			if r.Dst.Bits() < shortPrefix {
				k++
			}
		}
		named[k] = append(named[k], uint16(i))
	}
	for k, list := range named[:2] {
		if len(list) > 0 {
			b.d.top[k] = b.by(keySrc+k, list, 1<<keySrc)
		}
	}
	b.d.top[2] = b.build(named[2], 1<<keySrc)
	if !b.fits {
		return nil
	}
	b.d.items = append(b.d.items, make([]item, 3)...) // four are read at once
	b.d.trie = b.p.Done()
	return b.d
}

// build returns a reference to a list, split by fields that are not in used as far as that helps.
func (b *decider) build(list []uint16, used uint) uint32 {
	if b.work += len(list); b.work > workMost {
		b.fits = false
	}
	if !b.fits || len(list) == 0 {
		return 0
	}
	if len(list) > listShort {
		if key := b.best(list, used); key >= 0 {
			return b.by(key, list, used|1<<key)
		}
		if len(list) > listMost {
			b.fits = false
			return 0
		}
	}
	return b.store(list)
}

// best returns the field that leaves the shortest lists, -1 where none makes them a quarter shorter.
func (b *decider) best(list []uint16, used uint) int {
	best, least := -1, len(list)*3/4
	for key := range keys {
		if used>>key&1 != 0 {
			continue
		}
		n := 0
		for _, p := range b.pieces(key, list) {
			n = max(n, len(p.list))
		}
		if n <= least {
			best, least = key, n-1
		}
	}
	return best
}

// piece is a prefix of a field and the rules that match it.
type piece struct {
	lpm.Prefix
	list []uint16
}

// by returns a split by a field.
func (b *decider) by(key int, list []uint16, used uint) uint32 {
	at := len(b.d.forks)
	b.d.forks = append(b.d.forks, fork{key: uint32(key)})
	var all []lpm.Prefix
	for _, p := range b.pieces(key, list) {
		p.Val = b.value(b.build(p.list, used|1<<key))
		if n := len(all); n == 0 || key < keySrcPort || all[n-1].Val != p.Val {
			all = append(all, p.Prefix)
		}
		if !b.fits {
			return 0
		}
	}
	s := fork{key: uint32(key)}
	if key == keySrcPort || key == keyDstPort {
		s.other = b.build(b.portless(list), used|1<<key)
		all = prefixesOf(all)
	}
	if key == keyProto {
		all = prefixesOf(all)
	}
	row, wide := b.p.Start(all, 0)
	s.row, s.wide = uint32(row), uint32(wide)
	b.d.forks[at] = s
	return forkBit | uint32(at)
}

// value returns what tries keep for a reference.
func (b *decider) value(ref uint32) uint32 {
	if v, ok := b.values[ref]; ok {
		return v
	}
	v := uint32(len(b.d.refs))
	if v > 1<<16-1 {
		b.fits = false
		return 0
	}
	b.d.refs = append(b.d.refs, ref)
	b.values[ref] = v
	return v
}

// portless returns the rules of a list that packets without ports can match.
func (b *decider) portless(list []uint16) []uint16 {
	var out []uint16
	for _, i := range list {
		if b.d.flat[i].asks == 0 {
			out = append(out, i)
		}
	}
	return out
}

// pieces divides a field where the rules of a list change. Those of addresses are prefixes, in order, each
// with the rules of those above it; those of numbers begin at hi and reach to the next.
func (b *decider) pieces(key int, list []uint16) []piece {
	b.work += len(list)
	if key <= keyDst {
		return b.prefixes(key, list)
	}
	shift := 48
	if key == keyProto {
		shift = 56
	}
	starts := []int{0}
	for _, i := range list {
		lo, hi := b.number(key, i)
		starts = append(starts, lo, hi+1)
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	if starts[len(starts)-1] == 1<<(64-shift) {
		starts = starts[:len(starts)-1]
	}
	out := make([]piece, len(starts))
	for k, v := range starts {
		out[k].Hi = uint64(v) << shift
	}
	for _, i := range list {
		lo, hi := b.number(key, i)
		from, _ := slices.BinarySearch(starts, lo)
		for k := from; k < len(starts) && starts[k] <= hi; k++ {
			out[k].list = append(out[k].list, i)
			if b.work++; b.work > workMost {
				b.fits = false
				return nil
			}
		}
	}
	return out
}

// number returns the range of a rule in a field of numbers.
func (b *decider) number(key int, i uint16) (lo, hi int) {
	r := &b.rules[i]
	if key == keyProto {
		if r.Proto == 0 {
			return 0, 255
		}
		return int(r.Proto), int(r.Proto)
	}
	ports := r.SrcPorts
	if key == keyDstPort {
		ports = r.DstPorts
	}
	if !ports.Set {
		return 0, 65535
	}
	return int(ports.Lo), int(ports.Hi)
}

// prefixes are the pieces of addresses.
func (b *decider) prefixes(key int, list []uint16) []piece {
	own := make([]lpm.Prefix, 0, len(list))
	for _, i := range list {
		f := &b.d.flat[i]
		r := lpm.Prefix{Hi: f.srcHi, Lo: f.srcLo, Bits: f.srcBits, N: uint32(i)}
		if key == keyDst {
			r.Hi, r.Lo, r.Bits = f.dstHi, f.dstLo, f.dstBits
		}
		own = append(own, r)
	}
	lpm.Sort(own) // rules of one prefix stay in order
	var out []piece
	var above []int // of out, that contain the next
	for i := 0; i < len(own); {
		r := own[i]
		for len(above) > 0 && !out[above[len(above)-1]].Contains(&r) {
			above = above[:len(above)-1]
		}
		p := piece{Prefix: r}
		for ; i < len(own) && own[i].Same(&r); i++ {
			p.list = append(p.list, uint16(own[i].N))
		}
		if len(above) > 0 {
			p.list = append(p.list, out[above[len(above)-1]].list...)
			slices.Sort(p.list)
		}
		if b.work += len(p.list); b.work > workMost {
			b.fits = false
			return nil
		}
		above = append(above, len(out))
		out = append(out, p)
	}
	return out
}

// prefixesOf turns pieces of numbers into prefixes, in order.
func prefixesOf(starts []lpm.Prefix) []lpm.Prefix {
	var out []lpm.Prefix
	for i, s := range starts {
		end := uint64(1) << 16
		if i+1 < len(starts) {
			end = starts[i+1].Hi >> 48
		}
		for at := s.Hi >> 48; at < end; {
			n := uint8(0) // bits that are free
			for n < 16 && at>>n&1 == 0 && at+2<<n <= end {
				n++
			}
			out = append(out, lpm.Prefix{Hi: at << 48, Bits: 16 - n, Val: s.Val})
			at += 1 << n
		}
	}
	return out
}

// store keeps a list, once.
func (b *decider) store(list []uint16) uint32 {
	b.key = b.key[:0]
	for _, i := range list {
		b.key = binary.LittleEndian.AppendUint16(b.key, i)
	}
	if at, ok := b.lists[string(b.key)]; ok {
		return at
	}
	at := uint32(len(b.d.items))
	if len(b.d.items)+len(list) > itemsMost {
		b.fits = false
		return 0
	}
	b.lists[string(b.key)] = at
	for _, i := range list {
		b.d.items = append(b.d.items, b.item(i))
	}
	b.d.items[len(b.d.items)-1].marks |= itemLast
	return at
}

// item makes the entry of a rule. Its source is compared by the way to the list, where it names one.
func (b *decider) item(i uint16) item {
	f := &b.d.flat[i]
	m := item{dst: uint32(f.dstHi >> 32), sports: f.sports, dports: f.dports, place: i, proto: f.proto}
	m.marks = 32 - min(f.dstBits, 32)
	if f.srcBits > 0 && f.srcBits < shortPrefix {
		m.marks = itemMay
	}
	if f.asks != 0 {
		m.marks |= itemAsks
	}
	return m
}
