package expr

import "github.com/millrace/millrace/packet"

// Matcher evaluates a filter on batches. It belongs to one goroutine; several may use one Filter.
//
// It asks what decides packets for least, first: the descriptors, as the engine's header pass has written
// them, then a table of all tests of the first 64 bytes, then the tests of 64 packets at once, and for what
// none of these decides, the program that Match of a Filter runs.
type Matcher struct {
	f      *Filter
	always uint8        // verdict of a filter without tests, or verdictUndecided
	parsed *parsedTable // nil where it decides nothing
	rest   int          // batches for which parsed is not asked, since it decided too few packets
	header *headerTable // nil where tests are not for it, or the processor
	vector *vectorState // likewise

	verdicts []uint8  // by descriptor
	list     []uint32 // descriptors that parsed does not decide
	scratch  []byte   // a packet of several frames
}

// NewMatcher returns a matcher for batches. Its tables take up to 136 KiB, or 8 KiB and as much
// again for each list of ports, or of addresses with a test of their own each.
func (f *Filter) NewMatcher() *Matcher {
	m := &Matcher{f: f, always: verdictUndecided, scratch: make([]byte, 0, maxPacket)}
	g := newGraph(f.tree)
	g.fuse()
	if g.entry < 0 {
		m.always = verdictReject
		if g.entry == accept {
			m.always = verdictAccept
		}
		return m
	}
	if f.link == LinkEthernet {
		m.parsed = newParsedTable(g)
	}
	if haveVectors() {
		if m.header = newHeaderTable(g); m.header != nil {
			return m
		}
	}
	if p := newVectorProgram(g); p != nil && (haveVectors() || p.lists()) {
		m.vector = newVectorState(p)
	}
	return m
}

// maxPacket is the longest packet of several frames, in bytes. Bytes beyond it are not looked at.
const maxPacket = 1 << 16

// Match reports for each descriptor of b whether f matches its packet: 1, or 0; the frames of a packet that
// has several share the result. The slice is valid until the next call. Match borrows b, and allocates only
// when a batch is longer than all before.
//
// Where the engine's header pass has gone over b, what it wrote must still be true of the packets.
func (m *Matcher) Match(b *packet.Batch) []uint8 {
	n := len(b.D)
	if n > len(m.verdicts) {
		m.verdicts = make([]uint8, max(n, packet.BatchSize))
		m.list = make([]uint32, len(m.verdicts)+16)
	}
	verdicts := m.verdicts[:n]
	if n == 0 || m.decide(b, verdicts) {
		return verdicts
	}
	for i := 0; i < n; {
		i += m.one(b, i, verdicts)
	}
	return verdicts
}

// decide writes all verdicts. False means that it has no form for the filter but the program.
func (m *Matcher) decide(b *packet.Batch, verdicts []uint8) bool {
	if m.always != verdictUndecided {
		for i := range verdicts {
			verdicts[i] = m.always
		}
		return true
	}
	left, asked := m.decideParsed(b, verdicts)
	switch {
	case asked && len(left) == 0:
		return true
	case m.header != nil:
		if !m.header.decide(b.Arena, b.D, left, verdicts) {
			m.complete(b, verdicts)
		}
	case asked && len(left) <= len(b.D)/32: // which the program decides in less time than the other forms all
		m.complete(b, verdicts)
	case m.vector == nil:
		return false
	default:
		if !m.vector.decideBatch(b, verdicts) {
			m.complete(b, verdicts)
		}
	}
	return true
}

// restAfter is for how many batches the descriptors are not asked after one in which they decided too few.
const restAfter = 63

// decideParsed writes the verdicts of the packets that the descriptors decide, and lists the others. asked is false
// where it has not done so.
func (m *Matcher) decideParsed(b *packet.Batch, verdicts []uint8) (left []uint32, asked bool) {
	if m.parsed == nil {
		return nil, false
	}
	if m.rest > 0 {
		m.rest--
		return nil, false
	}
	left = m.parsed.find(b.D, verdicts, m.list)
	if len(left) > len(b.D)-len(b.D)/8 {
		m.rest = restAfter
	}
	return left, true
}

// complete decides the packets that are undecided, and those of several frames, of which only the first
// has been looked at.
func (m *Matcher) complete(b *packet.Batch, verdicts []uint8) {
	for i := 0; i < len(verdicts); {
		if verdicts[i] != verdictUndecided && b.D[i].Flags&packet.FlagMore == 0 {
			i++
			continue
		}
		i += m.one(b, i, verdicts)
	}
}

// one runs the program on the packet of descriptor i and returns how many descriptors it has.
func (m *Matcher) one(b *packet.Batch, i int, verdicts []uint8) int {
	d := b.D[i:]
	n := max(1, packet.Chain(d))
	pkt := b.Arena.Bytes(&d[0])
	length := len(pkt)
	if n > 1 {
		for j := 1; j < n; j++ {
			length += int(d[j].Len)
		}
		pkt = b.Arena.Gather(m.scratch[:0], d[:n], maxPacket)
	}
	v := uint8(verdictReject)
	if m.f.Match(pkt, length) {
		v = verdictAccept
	}
	for j := range n {
		verdicts[i+j] = v
	}
	return n
}
