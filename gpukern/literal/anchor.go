package literal

import "math/bits"

// chooser chooses anchors: windows that few texts have and few patterns share.
type chooser struct {
	bits   uint32
	filter []uint32
	shared []uint16       // by tag: how many windows of all patterns have it
	chain  map[uint32]int // by tag: how many patterns have that anchor
}

// sharedBits is the size of chooser.shared: tags that meet in one count as one.
const sharedBits = 20

func newChooser(bits uint32, entries []entry) *chooser {
	c := &chooser{
		bits:   bits,
		filter: make([]uint32, 1<<bits),
		shared: make([]uint16, 1<<sharedBits),
		chain:  make(map[uint32]int, len(entries)),
	}
	for i := range entries {
		e := &entries[i]
		for at := range e.windows() {
			if n := &c.shared[e.tagAt(at)>>(32-sharedBits)]; *n < 1<<16-1 {
				*n++
			}
		}
	}
	return c
}

// windows returns how many windows e has.
func (e *entry) windows() int { return len(e.text) - window[e.class()] + 1 }

// hashAt returns h4, and h8 where e has windows of eight, of the window at offset at.
func (e *entry) hashAt(at int) (h4, h8 uint32) {
	return hashes(load(e.text[:at+window[e.class()]], at))
}

// tagAt returns the tag of the window at offset at.
func (e *entry) tagAt(at int) uint32 {
	h4, h8 := e.hashAt(at)
	switch e.class() {
	case class8:
		return mix(class8, h8)
	case class4:
		return mix(class4, h4)
	}
	return mix(class3, h4<<8)
}

// need returns the word of the filter for the window at offset at, and the bits that it sets there.
func (e *entry) need(at int, filter uint32) (i, set uint32) {
	h4, h8 := e.hashAt(at)
	switch i = word(h4, filter); e.class() {
	case class8:
		return i, bits8(h8)
	case class4:
		return i, bits4(h4)
	}
	return i, ^uint32(0)
}

// take makes the window at e.before the anchor of e and returns its tag.
func (c *chooser) take(e *entry) uint32 {
	i, set := e.need(e.before, c.bits)
	c.filter[i] |= set
	tag := e.tagAt(e.before)
	c.chain[tag]++
	return tag
}

// choose returns the offset of the window that costs least.
func (c *chooser) choose(e *entry) int {
	best, least := 0, c.cost(e, 0)
	for at := 1; at < e.windows(); at++ {
		if cost := c.cost(e, at); cost < least {
			best, least = at, cost
		}
	}
	return best
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
	i, set := e.need(at, c.bits)
	tag := e.tagAt(at)
	was, is := passes(c.filter[i]), passes(c.filter[i]|set)
	begin := 1/float64(len(c.filter)) + likely(e.text[at:at+3]) // texts that come to this word
	whole := likely(e.text[at:at+window[e.class()]]) + perPattern*float64(c.shared[tag>>(32-sharedBits)])
	return costPass*(is-was)*begin + whole*(costPass+costRecord*float64(1+c.chain[tag]))
}

// passes returns how likely a word of the filter passes what comes to it by chance.
func passes(w uint32) float64 {
	p := float64(bits.OnesCount32(w)) / 32
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

// frequency is how often a byte is expected in payloads, with bit 0x20 set: half of them text, fields of
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
