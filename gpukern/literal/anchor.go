package literal

import mathbits "math/bits"

// chooser chooses anchors: windows that few texts have and few patterns share.
type chooser struct {
	pairFilter
	shared []uint16       // by tag: how many windows of all patterns have it; a power of two
	chain  map[uint32]int // by tag: how many patterns have that anchor
}

func newChooser(bits uint32, entries []entry) *chooser {
	c := &chooser{
		pairFilter: pairFilter{make([]uint32, 1<<bits), bits},
		shared:     make([]uint16, 32<<mathbits.Len(uint(len(entries)))),
		chain:      make(map[uint32]int, len(entries)),
	}
	for i := range entries {
		e := &entries[i]
		for at := range e.windows() {
			if n := c.count(e.tagAt(at)); *n < 1<<16-1 {
				*n++
			}
		}
	}
	return c
}

// count returns the counter of windows with the tag; tags that meet there count as one.
func (c *chooser) count(tag uint32) *uint16 { return &c.shared[tag&uint32(len(c.shared)-1)] }

// windows returns how many windows e has.
func (e *entry) windows() int { return len(e.text) - window[e.class()] + 1 }

// at returns the window at offset at, zeros in what is not of it.
func (e *entry) at(at int) uint64 { return load(e.text[:at+window[e.class()]], at) }

// tagAt returns the tag of the window at offset at.
func (e *entry) tagAt(at int) uint32 {
	h4, h8 := hashes(e.at(at))
	switch e.class() {
	case class8:
		return mix(class8, h8)
	case class4:
		return mix(class4, h4)
	}
	return mix(class3, h4<<8)
}

// choose returns the anchors of e, the better one first, and enters them in the filter.
func (c *chooser) choose(e *entry) []anchor {
	if e.class() != class8 {
		best, _ := c.cheapest(e, 0, 1)
		return []anchor{c.take(e, best)}
	}
	best, least := c.cheapest(e, 0, 2)
	other, cost := c.cheapest(e, 1, 2)
	if cost < least {
		best, other = other, best
	}
	return []anchor{c.take(e, best), c.take(e, other)}
}

// take makes the window of e at offset at an anchor.
func (c *chooser) take(e *entry, at int) anchor {
	c.marks(e.class(), e.at(at), func(m mark) { c.words[m.word] |= m.bits })
	a := anchor{e, at, e.tagAt(at)}
	c.chain[a.tag]++
	return a
}

// cheapest returns the offset of the window that costs least, of those from first on in steps, and its cost.
func (c *chooser) cheapest(e *entry, first, step int) (best int, least float64) {
	best, least = first, c.cost(e, first)
	for at := first + step; at < e.windows(); at += step {
		if cost := c.cost(e, at); cost < least {
			best, least = at, cost
		}
	}
	return best, least
}

// What a position of a text costs where the filter passes it, against comparing one record there, and
// how often a window that some patterns have is expected in a text for each of them.
const (
	costPass   = 1.0
	costRecord = 2.0
	perPattern = 1e-6
)

// cost estimates the work that the window of e at offset at makes for each byte of a text: positions that
// the filter passes for it in vain, and records that are compared where the text has it.
func (c *chooser) cost(e *entry, at int) float64 {
	if e.class() == class3 {
		return 0 // there is no choice
	}
	tag, text := e.tagAt(at), e.text[at:at+window[e.class()]]
	whole := likely(text) + perPattern*float64(*c.count(tag))
	sum := whole * (costPass + costRecord*float64(1+c.chain[tag]))
	begin := 1/float64(len(c.words)) + likely(text[1:4]) // texts that come to this word
	c.marks(e.class(), e.at(at), func(m mark) {
		w := c.words[m.word]
		sum += costPass * begin * (passes(w|m.bits) - passes(w))
	})
	return sum
}

// passes returns how likely a word of the filter passes what comes to it by chance.
func passes(w uint32) float64 {
	p := float64(mathbits.OnesCount32(w)) / 32
	return p * p
}

// likely returns how often text is expected at a position: the product of its bytes' frequencies.
func likely(text []byte) float64 {
	p := 1.0
	for _, c := range text {
		p *= frequency[c|0x20]
	}
	return p
}

// frequency is the interval at which a byte is expected in payloads, with bit 0x20 set: half of them text, fields of
// protocols and paddings, half of them compressed or encrypted.
var frequency = expected()

func expected() (f [256]float64) {
	var sum float64
	var weight [256]float64
	for c := range weight {
		weight[c|0x20] += commonness(byte(c))
	}
	for _, w := range weight {
		sum += w
	}
	for c := range f {
		f[c] = 0.5*weight[c]/sum + 0.5*2/256
	}
	return f
}

// commonness returns the weight of c among the bytes of texts and fields.
func commonness(c byte) float64 {
	switch {
	case c == 0:
		return 60
	case c == ' ':
		return 40
	case 'a' <= c && c <= 'z':
		return 15
	case '0' <= c && c <= '9', c == '.', c == '/', c == '-', c == '=', c == ':', c == '\r', c == '\n', c == 0xff:
		return 12
	case 'A' <= c && c <= 'Z':
		return 6
	case c < 0x80:
		return 3
	}
	return 1
}
