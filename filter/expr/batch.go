package expr

import "github.com/millrace/millrace/packet"

// Matcher evaluates a filter on batches. It belongs to one goroutine; several may use one Filter.
type Matcher struct {
	f        *Filter
	header   *headerTable // nil where the program decides all packets
	verdicts []uint8      // by descriptor
	scratch  []byte       // a packet of several frames
}

// NewMatcher returns a matcher for batches. Where the filter looks only at the first 64 bytes, and the
// processor has AVX-512, it decides by a table of all results of the tests, which costs at most 64 KiB.
func (f *Filter) NewMatcher() *Matcher {
	return &Matcher{f: f, header: newHeaderTable(newGraph(f.tree)), scratch: make([]byte, 0, maxPacket)}
}

// maxPacket is the longest packet of several frames, in bytes. Bytes beyond it are not looked at.
const maxPacket = 1 << 16

// Match reports for each descriptor of b whether f matches its packet; the frames of a packet that has
// several share the result. The slice is valid until the next call. Match borrows b, and allocates only
// when a batch is longer than all before.
func (m *Matcher) Match(b *packet.Batch) []uint8 {
	n := len(b.D)
	if n > len(m.verdicts) {
		m.verdicts = make([]uint8, max(n, packet.BatchSize))
	}
	if n == 0 {
		return nil
	}
	verdicts := m.verdicts[:n]
	if m.header != nil {
		if whole, ok := m.header.decide(b.Arena, b.D, verdicts); ok {
			if !whole {
				m.complete(b, verdicts)
			}
			return verdicts
		}
	}
	for i := 0; i < n; {
		i += m.one(b, i, verdicts)
	}
	return verdicts
}

// complete decides the packets that the table has not, and those of several frames, of which it has
// seen only the first.
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
