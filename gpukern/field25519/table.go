package field25519

import "unsafe"

// A window of a table has 16 entries of three numbers each. Word i of all entries lies side by side: a limb of 52 bits in the forms of
// eight lanes, and two digits of AVX2 in the halves of a word.
const (
	Entries     = 16
	EntryWords  = 3 * rows
	WindowWords = EntryWords * Entries
)

// SetEntry sets number i of an entry to that of a lane.
func (f *Form) SetEntry(window []uint64, entry, i int, e Element, lane int) {
	var b [Size]byte
	f.Bytes(&b, e, lane)
	for j, v := range f.split(&b) {
		if f.lanes != MaxLanes {
			v = v&(1<<evenBits-1) | v>>evenBits<<32
		}
		window[(i*rows+j)*Entries+entry] = v
	}
}

// Choose sets dst, three elements side by side, to the entry that index names for each lane. It reads the whole window.
func (f *Form) Choose(dst []Row, window []uint64, index *Row) {
	_, _ = dst[3*rows-1], window[WindowWords-1]
	f.choose(&dst[0], &window[0], index)
}

// Gather is Choose for public indices. Each lane has a window of its own.
func (f *Form) Gather(dst []Row, windows *[MaxLanes][]uint64, index *Row) {
	_ = dst[3*rows-1]
	var offsets Row
	base := unsafe.Pointer(&windows[0][0])
	for lane := range f.lanes {
		offsets[lane] = uint64(uintptr(unsafe.Pointer(&windows[lane][:WindowWords][index[lane]]))) - uint64(uintptr(base))
	}
	f.gather(&dst[0], (*uint64)(base), &offsets, EntryWords, 8*Entries)
}

// Lookup sets dst, of n elements side by side, to the entry of a table that index names for each lane. The table has entries of
// n elements, one after the other. Indices are public.
func (f *Form) Lookup(dst, table []Row, n int, index *Row) {
	if f.lanes == MaxLanes {
		var offsets Row
		for lane, e := range index {
			offsets[lane] = (e*uint64(n*rows)*MaxLanes + uint64(lane)) * 8
		}
		f.gather(&dst[0], &table[0][0], &offsets, uint64(n*rows), 8*MaxLanes)
		return
	}
	for i := range n {
		for lane := range f.lanes {
			f.CopyLane(dst[i*rows:][:rows], lane, table[(int(index[lane])*n+i)*rows:][:rows], lane)
		}
	}
}
