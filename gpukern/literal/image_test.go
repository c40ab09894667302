package literal

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/gpukern/image"
)

// kernel is a search written from what tables.go and image.go say alone, over the bytes of an Image.
type kernel struct {
	filter, slots, records       []byte
	bits, shift, mask, classFlag uint32
}

func newKernel(t testing.TB, m image.Image) kernel {
	t.Helper()
	if len(m.Struct) != 40 || len(m.Parts) != 3 {
		t.Fatalf("a struct of %d bytes and %d parts", len(m.Struct), len(m.Parts))
	}
	for i, p := range m.Parts {
		if p.At != 8*i {
			t.Errorf("the pointer to part %d is at %d", i, p.At)
		}
	}
	u := func(at int) uint32 { return binary.LittleEndian.Uint32(m.Struct[at:]) }
	return kernel{m.Parts[0].Data, m.Parts[1].Data, m.Parts[2].Data, u(24), u(28), u(32), u(36)}
}

func word32(b []byte, i uint32) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }

func (k kernel) scan(text []byte) (found []Occurrence) {
	padded := slices.Concat(text, make([]byte, 8))
	for p := range text {
		lo := binary.LittleEndian.Uint32(padded[p:]) | 0x20202020
		hi := binary.LittleEndian.Uint32(padded[p+4:]) | 0x20202020
		h4 := lo * 0x9e3b24c5
		h8 := h4 + hi*0x85ebca6b
		w := word32(k.filter, h4<<8>>(32-k.bits))
		bit := func(n uint32) bool { return w>>(n&31)&1 != 0 }
		if k.classFlag&4 != 0 && bit(h8>>27) && bit(h8>>22) {
			found = k.anchor(text, p, h8^0xa54ff53a, found)
		}
		if k.classFlag&2 != 0 && bit(h4>>27) && bit(h4>>24) {
			found = k.anchor(text, p, h4, found)
		}
		if k.classFlag&1 != 0 && w == 0xffffffff {
			found = k.anchor(text, p, h4<<8^0x3c6ef372, found)
		}
	}
	slices.SortFunc(found, func(a, b Occurrence) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	return slices.Compact(found)
}

func (k kernel) anchor(text []byte, p int, tag uint32, found []Occurrence) []Occurrence {
	tag ^= tag >> 15
	tag *= 0xc2b2ae35
	tag ^= tag >> 16
	for i := tag >> k.shift; ; i = (i + 1) & k.mask {
		at := word32(k.slots, 2*i+1)
		if at == 0 {
			return found
		}
		if word32(k.slots, 2*i) == tag {
			return k.chain(text, p, at, found)
		}
	}
}

func (k kernel) chain(text []byte, p int, at uint32, found []Occurrence) []Occurrence {
	for more := byte(1); more != 0; {
		r := k.records[16*at:]
		rule, size, before, quads := word32(r, 0), int(r[4]), int(r[5]), r[7]
		more = r[6]
		fold := binary.LittleEndian.Uint64(r[8:])
		start := p - before
		same := start >= 0 && start+size <= len(text)
		for i := 0; same && i < size; i++ {
			c, want := text[start+i], r[16+i]
			same = c == want || fold>>i&1 != 0 && c == want&^0x20
		}
		if same {
			found = append(found, Occurrence{uint32(start + size), rule})
		}
		at += uint32(quads)
	}
	return found
}

func TestImageIsWhatIsWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	found := 0
	for i := range 1500 {
		alphabet := alphabets[i%len(alphabets)]
		n := 1 + r.IntN(40)
		if i == 0 {
			n = 20000 // the filter of kernels is smaller than the CPU's then
		}
		set := randomSet(r, n, alphabet)
		text := append(randomText(r, 200, alphabet), set[0].Bytes...)
		got := newKernel(t, compile(t, set).Image()).scan(text)
		want := Reference(set).Scan(nil, text, 0, nil)
		if !slices.Equal(got, want) {
			t.Fatalf("%v in %q:\ngot  %v\nwant %v", set, text, got, want)
		}
		found += len(want)
	}
	if found < 10000 {
		t.Errorf("only %d matches", found)
	}
}

func TestImageSizes(t *testing.T) {
	if m := (*Set)(nil).Image(); len(m.Struct) != 40 || len(m.Parts) != 0 {
		t.Errorf("of no set: %d bytes, %d parts", len(m.Struct), len(m.Parts))
	}
	set := make([]Pattern, MaxPatterns)
	for i := range set {
		set[i] = Pattern{binary.LittleEndian.AppendUint64(nil, uint64(i)*0x9e3779b97f4a7c15), false, 1}
	}
	s := compile(t, set)
	k := newKernel(t, s.Image())
	if len(k.filter) != 64<<10 || k.bits != 14 || len(k.slots) != int(8*(k.mask+1)) || 1<<(32-k.shift) != k.mask+1 {
		t.Errorf("a filter of %d bytes, %d bits; %d bytes of slots, mask %d, shift %d", len(k.filter), k.bits, len(k.slots), k.mask, k.shift)
	}
	if k.classFlag != 1<<class4 {
		t.Errorf("classes %b, want those of 4 bytes alone", k.classFlag)
	}
	if all := s.Size(); all < len(k.filter)+len(k.slots)+len(k.records) {
		t.Errorf("size %d is less than the image's", all)
	}
}
