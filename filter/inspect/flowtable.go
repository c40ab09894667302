package inspect

import "hash/maphash"

// flowTable finds flows by their keys: a hash table with open addressing. A place has a part of the hash beside the flow, so
// that a lookup touches two lines of memory: the place, and the flow that is needed anyway. Go's map has a third.
//
// The hash is keyed: who sends packets cannot make keys that collide.
type flowTable struct {
	seed   maphash.Seed
	places []flowPlace // a power of two, at most three quarters of them used
	n      int
}

type flowPlace struct {
	hash uint64
	flow *flow // nil where the place is free
}

func (t *flowTable) hash(k *flowKey) uint64 { return maphash.Comparable(t.seed, *k) }

// find returns the flow of a key, whose hash is h; nil where there is none.
func (t *flowTable) find(k *flowKey, h uint64) *flow {
	mask := uint64(len(t.places) - 1)
	for i := h; len(t.places) > 0; i++ {
		p := &t.places[i&mask]
		if p.flow == nil {
			return nil
		}
		if p.hash == h && p.flow.key == *k {
			return p.flow
		}
	}
	return nil
}

// insert adds a flow that is not there.
func (t *flowTable) insert(f *flow, h uint64) {
	if 4*(t.n+1) > 3*len(t.places) {
		t.grow()
	}
	t.n++
	f.hash = h
	t.put(flowPlace{h, f})
}

// put enters a flow at the first free place from that of its hash on (linear probing).
func (t *flowTable) put(p flowPlace) {
	mask := uint64(len(t.places) - 1)
	i := p.hash
	for t.places[i&mask].flow != nil {
		i++
	}
	t.places[i&mask] = p
}

// grow doubles the table.
func (t *flowTable) grow() {
	old := t.places
	if old == nil {
		t.seed = maphash.MakeSeed()
	}
	t.places = make([]flowPlace, max(64, 2*len(old)))
	for _, p := range old {
		if p.flow != nil {
			t.put(p)
		}
	}
}

// remove removes a flow that is there, and moves up those that it has kept from their places.
func (t *flowTable) remove(f *flow) {
	mask := uint64(len(t.places) - 1)
	free := f.hash & mask
	for t.places[free].flow != f {
		free = (free + 1) & mask
	}
	for i := (free + 1) & mask; t.places[i].flow != nil; i = (i + 1) & mask {
		if home := t.places[i].hash & mask; (i-home)&mask >= (i-free)&mask { // it may stand at the free place
			t.places[free] = t.places[i]
			free = i
		}
	}
	t.places[free] = flowPlace{}
	t.n--
}
