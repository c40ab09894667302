package literal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// hardSets are sets that a careless choice of anchors would pile up.
func hardSets() map[string][]Pattern {
	sets := map[string][]Pattern{}
	add := func(name string, b []byte) {
		n := uint32(len(sets[name]))
		sets[name] = append(sets[name], Pattern{b, n%2 == 0, n + 1})
	}
	for size := MinLen; size <= MaxLen; size++ {
		add("zeros", make([]byte, size))
		add("a", bytes.Repeat([]byte("a"), size))
		add("ab", bytes.Repeat([]byte("ab"), 32)[:size])
		long := []byte("the quick brown fox jumps over the lazy dog, and so on and so fo")
		add("prefixes", long[:size])
		add("suffixes", long[MaxLen-size:])
	}
	body := bytes.Repeat([]byte("Content-Type: "), 5)[:60]
	for i := range 10000 {
		var four [4]byte
		binary.LittleEndian.PutUint32(four[:], uint32(i)*2654435761)
		add("body first", append(bytes.Clone(body), four[:]...))
		add("body last", append(four[:], body...))
		add("body around", append(append(bytes.Clone(body[:30]), four[:]...), body[30:]...))
	}
	for i := range 3000 {
		add("short", fmt.Appendf(nil, "%03x", i))
	}
	for range 200 {
		add("one", body[:40])
	}
	return sets
}

func TestHardSets(t *testing.T) { forms(t, hardSetsForm) }

func hardSetsForm(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for name, set := range hardSets() {
		s := compile(t, set)
		var text []byte
		for range 5 {
			p := bytes.ToUpper(set[r.IntN(len(set))].Bytes)
			text = append(text, p[:r.IntN(len(p))]...)
			text = append(text, set[r.IntN(len(set))].Bytes...)
		}
		cut := r.IntN(len(text) - MinLen + 1) // the last pattern ends behind it
		text = append(text, bytes.Repeat([]byte{text[0]}, 100)...)
		for _, limit := range []int{0, 1, 16} {
			if agree(t, s, set, text[:cut], text[cut:], limit) == 0 {
				t.Errorf("%s: nothing was found", name)
			}
		}
	}
}

// TestAnchorsAreNotShared counts the records behind each anchor: a text that has an anchor everywhere must
// not make a search compare thousands of patterns.
func TestAnchorsAreNotShared(t *testing.T) {
	for name, set := range hardSets() {
		most := 2
		switch name { // these have no other windows
		case "zeros", "a", "ab", "short":
			most = 128
		case "prefixes", "suffixes":
			most = 8
		case "one": // 14 windows share them, 7 of each parity
			most = 40
		}
		if n := longestChain(compile(t, set)); n > most {
			t.Errorf("%s: %d records share an anchor, at most %d are wanted", name, n, most)
		}
	}
}

func longestChain(s *Set) (longest int) {
	for _, v := range s.slots {
		n := 1
		for at := v.at; at != 0 && s.records[2*at]>>48&1 != 0; at += uint32(s.records[2*at] >> 56) {
			n++
		}
		longest = max(longest, n)
	}
	return longest
}

// TestFiltersPassLittle bounds what the filters pass of noise.
func TestFiltersPassLittle(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	set := make([]Pattern, 10000)
	for i := range set {
		b := make([]byte, 4+r.IntN(40))
		for k := range b {
			b[k] = byte(r.Uint32())
		}
		set[i] = Pattern{b, false, 1}
	}
	s := compile(t, set)
	const positions = 1 << 18
	cpu, kernel := 0, 0
	for p := range positions {
		w := r.Uint64() | lowerCase
		h4, h8 := hashes(w)
		may8, may4 := s.pairs.at(p, w, h4, h8)
		cpu += int(may8 | may4)
		v := s.filter[word(h4, s.bits())]
		if v&bits8(h8) == bits8(h8) || v&bits4(h4) == bits4(h4) {
			kernel++
		}
	}
	if share := float64(cpu) / positions; share > 0.006 {
		t.Errorf("the CPU's filter passes %.2f%%", 100*share)
	}
	if share := float64(kernel) / positions; share > 0.025 {
		t.Errorf("the kernels' filter passes %.2f%%", 100*share)
	}
}

// TestLimitAtTheEndOfAChunk: a long pattern is found in one chunk and fills the list, a short one that ends
// before it in the next.
func TestLimitAtTheEndOfAChunk(t *testing.T) {
	long := make([]byte, MaxLen)
	for i := range long {
		long[i] = byte(100 + i)
	}
	set := []Pattern{{long, false, 1}, {long, false, 2}, {long[54:57], false, 3}, {long[58:63], false, 4}}
	s := compile(t, set)
	for at := chunk - MaxLen - 2; at < chunk+2; at++ {
		text := make([]byte, chunk+3*MaxLen)
		copy(text[at:], long)
		agree(t, s, set, nil, text, 1)
		agree(t, s, set, nil, text, 2)
	}
}

// TestAnchorsAtTheEnds cuts patterns at every place whose anchors are their first or their last bytes.
func TestAnchorsAtTheEnds(t *testing.T) {
	rare, common := []byte("\x81\x93\xa5\xb7\xc9\xdb\xed\xff"), bytes.Repeat([]byte("e"), MaxLen-8)
	for _, p := range [][]byte{append(bytes.Clone(rare), common...), append(bytes.Clone(common), rare...)} {
		set := []Pattern{{p, false, 1}}
		s := compile(t, set)
		for cut := range MaxLen {
			agree(t, s, set, p[:cut], p[cut:], 0)
		}
	}
}
