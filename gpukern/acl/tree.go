package acl

import (
	"math/bits"

	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/gpukern/tuple"
)

// tree finds rules of IPv4 without a branch that depends on a packet: a decision tree over bits of the
// packet's 5-tuple leads to a block of at most four rules, and the packet is compared with all of them at
// once. A node takes a window of bits of one word of the key, at any place, and has a word for each value:
//
//	inner: | width 4 | first word of the node / 4: 21 | word of the key 2 | place of the window 5 |
//	leaf:  | 0       | further blocks 4 | block 24 |
//
// Windows lie where rules differ (bit selection, as BitCuts, INFOCOM 2018), not at the next bits as in
// HiCuts. What no window asked for, the block compares, so that trees stay shallow: 2 to 6 steps for ten
// thousand rules. Rules that leave an address open would stand in every branch; they have trees of their own
// (as EffiCuts, SIGCOMM 2010), and the least place wins.
//
// Only the CPU has this form. Kernels read a decision or bit vectors of the same rules.
type tree struct {
	roots  [][2]uint32          // where to begin, for packets with ports and for those without
	words  []uint32             // of nodes
	blocks []block              // the first matches nothing
	places [][blockRules]uint16 // of the rules, inverted
}

// blockRules is the number of rules that a block has.
const blockRules = 4

// block is rules as ranges of eight numbers of 16 bits: the halves of the key's words. A prefix is a range
// in either half.
type block struct {
	lo, span [blockRules][2 * keyWords]uint16
}

// treeKey is a packet as trees see it: source, destination, ports, protocol.
type treeKey [keyWords]uint32

const keyWords = 4

// The parts of a word of a tree.
const (
	windowWord  = 5 // where the number of the key's word begins; the place of the window is below
	nodeFirst   = 7 // where the number of the node's first word / 4 begins
	nodeUnit    = 4 // words
	nodesMost   = 1 << 21
	windowWidth = 28 // where the width begins; a leaf has none
	leafMore    = 24 // where the number of further blocks begins
	blocksMost  = 1 << leafMore
	moreMost    = 15
)

// match stores in best the places of the first rules that match the packets of who in tuples.
func (t *tree) match(m *Matcher, tuples []tuple.Tuple, who []uint8, best *[tuple.ChunkSize]uint16) {
	if len(who) == 0 {
		return
	}
	keys := m.key[:len(who)]
	portless := 0
	for j, k := range who {
		p := &tuples[k]
		ports := p.Ports
		if p.Known != tuple.Ports {
			ports = 0
			portless++
		}
		keys[j] = treeKey{uint32(p.SrcHi >> 32), uint32(p.DstHi >> 32), ports, uint32(p.Proto)}
	}
	found := m.found[:len(who)]
	for i := range found {
		found[i] = none
	}
	for i := range t.roots {
		root := &t.roots[i]
		at := m.at[:len(who)]
		for j := range at {
			at[j] = root[0]
		}
		if portless > 0 && root[0] != root[1] {
			for j, k := range who {
				if tuples[k].Known != tuple.Ports {
					at[j] = root[1]
				}
			}
		}
		t.descend(keys, at)
		t.compare(keys, at, found)
	}
	for j, k := range who {
		best[k] = found[j]
	}
}

// descendPlain is descend for every machine.
func (t *tree) descendPlain(keys []treeKey, at []uint32) {
	for j := range keys {
		k, e := &keys[j], at[j]
		for e>>windowWidth != 0 {
			x := bits.RotateLeft32(k[e>>windowWord&(keyWords-1)], -int(e&31)) &^ (^uint32(0) << (e >> windowWidth))
			e = t.words[e>>nodeFirst&(nodesMost-1)*nodeUnit+x]
		}
		at[j] = e
	}
}

// comparePlain is compare for every machine.
func (t *tree) comparePlain(keys []treeKey, at []uint32, found []uint16) {
	for j := range keys {
		n, more := at[j]&(blocksMost-1), at[j]>>leafMore
		for ; ; n++ {
			if place := t.blocks[n].first(&keys[j], &t.places[n]); place < found[j] {
				found[j] = place
				break
			}
			if more == 0 {
				break
			}
			more--
		}
	}
}

// first returns the place of the first rule in a block that matches, none where none does.
func (b *block) first(k *treeKey, places *[blockRules]uint16) uint16 {
rules:
	for i := range b.lo {
		for f := range b.lo[i] {
			if uint16(k[f/2]>>(16*(f&1)))-b.lo[i][f] > b.span[i][f] {
				continue rules
			}
		}
		return ^places[i]
	}
	return none
}

// size returns the bytes that t takes.
func (t *tree) size() int {
	return 8*len(t.roots) + 4*len(t.words) + len(image.Bytes(t.blocks)) + len(image.Bytes(t.places))
}
