package expression

import "math/bits"

// A block of a piece is what a filtered automaton sleeps through where no match can begin in it.
const (
	blockShift = 7
	BlockBytes = 1 << blockShift
)

// filter finds the literals of factors (factor) in a text, and marks for each automaton the blocks in which a match may begin. A
// bit of bloom says whether any literal has a hash; slots, by another hash and then one after the other, lead to the uses of each.
type filter struct {
	bloom                 []uint32
	slots                 []slot
	uses                  []use
	bloomShift, slotShift uint32
	tails                 []uint8 // of each filtered automaton: a match that begins so near to the end of a piece may not be seen in it
}

// slot leads to the uses of a literal: n of them from first on; none where the slot is empty.
type slot struct{ gram, first, n, spare uint32 }

// use is an automaton and the distance of a literal from where its match begins.
type use uint32

func (u use) group() int { return int(u >> 8) }
func (u use) at() int    { return int(u & 0xff) }

// The multipliers of the hashes.
const (
	bloomHash = 0x9e3779b1
	slotHash  = 0x85ebca6b
)

// newFilter makes the filter of the literals that each of some automata waits for.
func newFilter(groups [][]factor) filter {
	f := filter{tails: make([]uint8, len(groups))}
	users := map[uint32][]use{}
	var order []uint32
	for i, list := range groups {
		for _, x := range list {
			f.tails[i] = max(f.tails[i], uint8(x.at+gramSize-1))
			for _, gram := range x.grams {
				if users[gram] == nil {
					order = append(order, gram)
				}
				users[gram] = append(users[gram], use(i<<8|x.at))
			}
		}
	}
	size := max(bits.Len(uint(len(order))), 1)
	f.bloomShift, f.slotShift = uint32(32-max(size+6, 12)), uint32(32-(size+1))
	f.bloom, f.slots = make([]uint32, 1<<(32-f.bloomShift)/32), make([]slot, 1<<(32-f.slotShift))
	for _, gram := range order {
		h := gram * bloomHash >> f.bloomShift
		f.bloom[h/32] |= 1 << (h % 32)
		at := gram * slotHash >> f.slotShift
		for f.slots[at].n != 0 {
			at = (at + 1) % uint32(len(f.slots))
		}
		f.slots[at] = slot{gram: gram, first: uint32(len(f.uses)), n: uint32(len(users[gram]))}
		f.uses = append(f.uses, users[gram]...)
	}
	return f
}

// words returns the words of the marks of a piece, for one automaton.
func words(size int) int { return (size + 32*BlockBytes - 1) / (32 * BlockBytes) }

// mark sets the marks of a text: words of each filtered automaton, one behind the other.
func (f *filter) mark(text []byte, marks []uint32) {
	if len(text) < gramSize {
		return
	}
	gram := uint32(text[0])<<8 | uint32(text[1])<<16 | uint32(text[2])<<24
	bloom, shift := f.bloom, f.bloomShift&31
	for i, c := range text[gramSize-1:] {
		gram = gram>>8 | uint32(c)<<24
		if h := fold(gram) * bloomHash >> shift; bloom[h/32]>>(h%32)&1 != 0 {
			f.found(fold(gram), i, words(len(text)), marks)
		}
	}
}

// found marks the blocks of what begins in front of a literal, if it is one.
func (f *filter) found(gram uint32, at, words int, marks []uint32) {
	for i := gram * slotHash >> f.slotShift; f.slots[i].n != 0; i = (i + 1) % uint32(len(f.slots)) {
		if s := &f.slots[i]; s.gram == gram {
			for _, u := range f.uses[s.first : s.first+s.n] {
				if begin := at - u.at(); begin >= 0 { // else the automaton was awake at the end of the piece before
					marks[u.group()*words+begin>>(blockShift+5)] |= 1 << (begin >> blockShift & 31)
				}
			}
			return
		}
	}
}
