package literal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFormsAgree compares what this machine's form of the filter passes with what the plain one does, for
// every length up to some blocks, at every place in a cache line.
func TestFormsAgree(t *testing.T) { forms(t, formsAgree) }

func formsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, bits := range []uint32{4, 12, 16} {
		f := &pairFilter{make([]uint32, 1<<bits), bits}
		for i := range f.words { // half of the bits
			f.words[i] = r.Uint32()
		}
		memory := make([]byte, 64+400)
		for i := range memory {
			memory[i] = byte(r.Uint32())
		}
		for size := 1; size <= 300; size++ {
			text := memory[size%64:][:size:size]
			from := r.IntN(size) &^ 1
			end := from + 1 + r.IntN(size-from)
			masks := (end - from + 63) / 64
			got, want := make([]uint64, masks), make([]uint64, masks)
			f.candidates(text, from, end, got)
			f.plain(text, from, end, want)
			if !slices.Equal(got, want) {
				t.Fatalf("%d bits, %d bytes from %d to %d:\ngot  %x\nwant %x", bits, size, from, end, got, want)
			}
		}
	}
}

// TestPlainAsAt compares the plain form's blocks with the rule for one position.
func TestPlainAsAt(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	f := &pairFilter{make([]uint32, 1<<10), 10}
	for i := range f.words {
		f.words[i] = r.Uint32()
	}
	text := randomText(r, 1000, "abcdefghij\x00\xff")
	masks := make([]uint64, 16)
	f.plain(text, 0, len(text), masks)
	for p := range text {
		w := load(text, p) | lowerCase
		h4, h8 := hashes(w)
		may8, may4 := f.at(p, w, h4, h8)
		if masks[p/64]>>(p%64)&1 != uint64(may8|may4) {
			t.Fatalf("position %d: may be of 8: %d, of 4: %d, mask %x", p, may8, may4, masks[p/64])
		}
	}
}

func TestEqualForms(t *testing.T) { forms(t, equalForms) }

func equalForms(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	for size := MinLen; size <= MaxLen; size++ {
		for _, noCase := range []bool{false, true} {
			set := []Pattern{{randomText(r, size, "aZ@`[{\x00\xff"), noCase, 1}}
			s := compile(t, set)
			record := s.records[2:]
			for i := range size {
				for _, flip := range []byte{0, 0x20, 0x01, 0x80} {
					memory := slices.Concat([]byte("."), set[0].Bytes)
					memory[1+i] ^= flip
					text := memory[1:]
					want := len(Reference(set).Scan(nil, text, 0, nil)) == 1
					if equal(record, text) != want || equalPlain(record, text) != want {
						t.Fatalf("%v and %q: %v, plain %v, want %v", set, text, equal(record, text), equalPlain(record, text), want)
					}
				}
			}
		}
	}
}

func TestListKeepsTheFirst(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	for i := range 2000 {
		limit := i % 8
		l := list{m: []Occurrence{{1, 1}}, base: 1, limit: limit}
		var all []Occurrence
		for range r.IntN(20) {
			m := Occurrence{1 + r.Uint32N(6), 1 + r.Uint32N(4)}
			all = append(all, m)
			l.add(m)
		}
		slices.SortFunc(all, func(a, b Occurrence) int {
			return int(a.End<<8+a.Rule) - int(b.End<<8+b.Rule)
		})
		all = slices.Compact(all)
		if limit > 0 && len(all) > limit {
			if all = all[:limit+1]; !l.complete(int(all[limit].End)+1) || l.complete(int(all[limit].End)) {
				t.Fatalf("limit %d, %v: settled is wrong", limit, all)
			}
			all[limit].Rule = 0
		} else if l.complete(1 << 30) {
			t.Fatalf("limit %d: settled with %v", limit, l.m)
		}
		if got := l.result()[1:]; fmt.Sprint(got) != fmt.Sprint(all) {
			t.Fatalf("limit %d: %v, want %v", limit, got, all)
		}
	}
}
