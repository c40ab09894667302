package filter

import (
	"encoding/binary"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// NoPort reports that packets cannot be redirected to a device.
const NoPort = 255

// Filter processes the packets of one loop behind the engine: checks, then rules. It
// belongs to that loop, and so do its token buckets: with several loops, each lets a rate's packets through.
type Filter struct {
	Checks Checks
	List   *List    // nil passes everything; Swap changes it
	Hits   []uint64 // packets that rule i+1 has decided; counted as far as the slice reaches
	Ports  []uint8  // by List.Devices, the device of the loop; NoPort and what is missing drop with packet.DropLinkDown
	Seed   uint64   // of the table of sources: a number that senders do not know

	Over    []uint64 // by rule as Hits: packets beyond its rate
	Crowded uint64   // packets dropped since the table of sources had no place for theirs

	buckets []bucket // by line
	started bool     // buckets are full at the first packet
	sources sources
	asked   [][]int32 // by line that asks for prefix lists: packets of the batch
	who     []int32   // packets of one line and family, with their tuples:
	tuples  []tuple.Tuple
	found   [tuple.ChunkSize]uint16
	lacks   [tuple.ChunkSize]uint16 // lists of the line that lack the packet's address
	match   *acl.Matcher
}

// everyone is all packets of a chunk.
var everyone = func() (all [tuple.ChunkSize]uint8) {
	for i := range all {
		all[i] = uint8(i)
	}
	return all
}()

// NewFilter returns a filter with counters for every rule of l, which may be nil.
func NewFilter(c Checks, l *List) *Filter {
	f := &Filter{Checks: c, List: l}
	if l != nil {
		f.Hits, f.Over = make([]uint64, len(l.rules)), make([]uint64, len(l.rules))
		f.size()
	}
	return f
}

// size makes what the list needs.
func (f *Filter) size() {
	f.buckets, f.asked = nil, nil
	if f.List.limited {
		f.buckets = make([]bucket, len(f.List.rates))
		for i := range f.buckets {
			f.buckets[i].tokens = unused
		}
	}
	if f.List.rest != nil {
		f.asked, f.match = make([][]int32, len(f.List.rest)), new(acl.Matcher)
	}
}

// Apply sets the verdict of packets in b that a check or a rule drops or redirects; other packets, and those
// that are dropped already, keep theirs. The engine has been through b with List's rules; checks of
// checksums need gpukern.OpChecksum. The pieces of a packet (packet.FlagMore) share its verdict.
// Rates count with the time of arrival, b.Time. Desc.Rule is that of the rule that decided, then.
func (f *Filter) Apply(b *packet.Batch) {
	if f.List != nil && f.List.rest != nil {
		f.lookUp(b)
	}
	for i := 0; i < len(b.D); i++ {
		d, first := &b.D[i], i
		if !d.Verdict.Dropped() {
			f.decide(b, i)
		}
		for d.Flags&packet.FlagMore != 0 && i+1 < len(b.D) {
			b.D[i+1].Verdict, b.D[i+1].Port = b.D[first].Verdict, b.D[first].Port
			i++
			d = &b.D[i]
		}
	}
}

// Mark returns the mark of the rule that decided about a packet, 0 for none.
func (f *Filter) Mark(d *packet.Desc) uint32 {
	if r := f.rule(d); r != nil {
		return r.Mark
	}
	return 0
}

// Captures reports whether the rule that decided about a packet asks for it to be captured.
func (f *Filter) Captures(d *packet.Desc) bool {
	r := f.rule(d)
	return r != nil && r.Capture
}

// rule returns the rule that decided about a packet, nil for none. What a check dropped has none.
func (f *Filter) rule(d *packet.Desc) *Rule {
	if d.Rule == 0 || f.List == nil || int(d.Rule) > len(f.List.rules) || f.Checks.verdict(d) != packet.Undecided {
		return nil
	}
	return &f.List.rules[d.Rule-1]
}

// decide sets the verdict of packet i.
func (f *Filter) decide(b *packet.Batch, i int) {
	d := &b.D[i]
	if v := f.Checks.verdict(d); v != packet.Undecided {
		d.Verdict = v
		return
	}
	if d.Rule == 0 || f.List == nil {
		return
	}
	at := int(d.Rule) - 1
	if at < len(f.Hits) {
		f.Hits[at]++
	}
	r := &f.List.rules[at]
	if r.Rate.PerSecond != 0 && !f.within(b, i, r) {
		if d.Verdict = packet.DropRateLimit; at < len(f.Over) {
			f.Over[at]++
		}
		return
	}
	switch r.Action {
	case Drop:
		d.Verdict = packet.DropRule
	case Redirect:
		f.redirect(d, int(f.List.device[at]))
	}
}

// redirect sends a packet to a device of the list.
func (f *Filter) redirect(d *packet.Desc, device int) {
	if device >= len(f.Ports) || f.Ports[device] == NoPort {
		d.Verdict = packet.DropLinkDown
		return
	}
	d.Verdict, d.Port = packet.Forward, f.Ports[device]
}

// within takes the tokens for packet i and reports whether they were there.
func (f *Filter) within(b *packet.Batch, i int, r *Rule) bool {
	now, bytes := clock.Time(b.Time(i)), 0
	if !f.started {
		f.fill(now)
	}
	if r.Rate.Bytes {
		_, n := packet.Count(b.D[i : i+max(1, packet.Chain(b.D[i:]))])
		bytes = int(n)
	}
	var t tuple.Tuple
	if r.Rate.PerSource {
		t = tupleOf(b, i)
	}
	return f.take(int(b.D[i].Rule), t.SrcHi, t.SrcLo, b.D[i].Flags&packet.FlagIPv4 != 0, bytes, now)
}

// take takes the tokens of a rule's packet and reports whether they were there. The address counts for rates per source,
// bytes for rates of bytes.
func (f *Filter) take(rule int, hi, lo uint64, v4 bool, bytes int, now clock.Time) bool {
	line, r, n := f.List.line[rule-1], &f.List.rules[rule-1].Rate, 1
	if r.Bytes {
		n = bytes
	}
	if !r.PerSource {
		return f.buckets[line].take(r, n, now)
	}
	p := f.sources.find(f.List.rates, line, hi, lo, v4, now)
	if p == nil {
		f.Crowded++
		return false
	}
	return p.take(r, n, now)
}

// fill fills the buckets that were not used yet.
func (f *Filter) fill(now clock.Time) {
	for i := range f.buckets {
		if f.buckets[i].tokens == unused {
			f.buckets[i] = f.List.rates[i].full(now)
		}
	}
	f.started, f.sources.seed = true, f.Seed
}

// lookUp looks addresses up where rules ask for prefix lists. Packets that the lists lack are matched with the rules
// behind. Both is done for all packets of a line at once, so that the reads of many are under way together.
func (f *Filter) lookUp(b *packet.Batch) {
	for i := 0; i < len(b.D); i += max(1, packet.Chain(b.D[i:])) {
		f.ask(b, int32(i))
	}
	for line := range f.asked {
		for list := f.asked[line]; len(list) > 0; list = list[min(len(list), tuple.ChunkSize):] {
			f.askLine(b, list[:min(len(list), tuple.ChunkSize)], &f.List.rest[line])
		}
		f.asked[line] = f.asked[line][:0]
	}
}

// ask notes a packet whose rule requests a prefix list.
func (f *Filter) ask(b *packet.Batch, i int32) {
	rule := int(b.D[i].Rule)
	if rule == 0 || rule > len(f.List.rules) {
		return
	}
	if line := f.List.line[rule-1]; f.List.rest[line].acl != nil {
		f.asked[line] = append(f.asked[line], i)
	}
}

// askLine looks up the packets of one line, of a chunk at most. Those that its lists lack get the rules behind, which
// may ask again, in later lines.
func (f *Filter) askLine(b *packet.Batch, list []int32, r *rest) {
	for _, v4 := range [2]bool{true, false} {
		f.tuples, f.who = f.tuples[:0], f.who[:0]
		for _, i := range list {
			if (b.D[i].Flags&packet.FlagIPv4 != 0) == v4 {
				f.tuples, f.who = append(f.tuples, tupleOf(b, int(i))), append(f.who, i)
			}
		}
		clear(f.lacks[:len(f.who)])
		if r.src != nil {
			f.lookUpIn(r.src, v4, func(t *tuple.Tuple) (hi, lo uint64) { return t.SrcHi, t.SrcLo })
		}
		if r.dst != nil {
			f.lookUpIn(r.dst, v4, func(t *tuple.Tuple) (hi, lo uint64) { return t.DstHi, t.DstLo })
		}
		lacking := 0
		for k := range f.who {
			if f.lacks[k] != 0 {
				f.who[lacking], f.tuples[lacking] = f.who[k], f.tuples[k]
				lacking++
			}
		}
		r.acl.Places(f.match, v4, f.tuples, everyone[:lacking], &f.found)
		for k, i := range f.who[:lacking] {
			d := &b.D[i]
			if d.Rule = f.found[k] + 1; d.Rule != 0 { // 65535 is none
				d.Rule += uint16(r.first)
			}
			f.ask(b, i)
		}
	}
}

// lookUpIn counts in f.lacks the packets of f.tuples whose address a list lacks.
func (f *Filter) lookUpIn(l *PrefixList, v4 bool, addr func(*tuple.Tuple) (hi, lo uint64)) {
	w := &f.match.Walk
	for k := range f.tuples {
		w.X[k], w.Lo[k] = addr(&f.tuples[k])
	}
	for k, hop := range l.table.LookupChunk(w, v4, len(f.tuples))[:len(f.tuples)] {
		f.lacks[k] += 1 - hop
	}
}

// tupleOf returns the tuple that the engine matched packet i by: it has a rule, thus addresses.
func tupleOf(b *packet.Batch, i int) (t tuple.Tuple) {
	d, p := &b.D[i], b.Bytes(i)
	t.Proto, t.Known = d.Proto, tuple.Addresses
	if d.Flags&packet.FlagIPv4 != 0 {
		h := wire.IPv4(p[d.L3:])
		src, dst := h.Src(), h.Dst()
		t.SrcHi, t.DstHi = uint64(binary.BigEndian.Uint32(src[:]))<<32, uint64(binary.BigEndian.Uint32(dst[:]))<<32
	} else {
		h := p[d.L3:]
		t.SrcHi, t.SrcLo = binary.BigEndian.Uint64(h[8:]), binary.BigEndian.Uint64(h[16:])
		t.DstHi, t.DstLo = binary.BigEndian.Uint64(h[24:]), binary.BigEndian.Uint64(h[32:])
	}
	if d.Payload != 0 && d.Proto != wire.ProtoICMP && d.Proto != wire.ProtoICMPv6 {
		t.Ports, t.Known = binary.BigEndian.Uint32(p[d.L4:]), tuple.Ports
	}
	return t
}

// Swap puts a list in the place of another, between two batches: those that went through the engine with the rules of
// the old list have been applied. Lines of the same text keep their counters and their buckets.
func (f *Filter) Swap(l *List) {
	old, hits, over, buckets := f.List, f.Hits, f.Over, f.buckets
	*f = Filter{Checks: f.Checks, List: l, Ports: f.Ports, Seed: f.Seed, Crowded: f.Crowded, sources: f.sources, started: f.started}
	if l == nil {
		f.sources = sources{}
		return
	}
	f.Hits, f.Over = make([]uint64, len(l.rules)), make([]uint64, len(l.rules))
	f.size()
	f.started = false // what is new gets full buckets
	if old == nil {
		return
	}
	lines := map[string]int32{} // of l, by file and text
	first := map[int32]int{}    // the first rule of a line
	for i := len(l.rules) - 1; i >= 0; i-- {
		lines[l.rules[i].File+"\x00"+l.rules[i].Text], first[l.line[i]] = l.line[i], i
	}
	moved := make([]int32, len(old.rates)) // the line of l, and one more
	for i := len(old.rules) - 1; i >= 0; i-- {
		r, from := &old.rules[i], old.line[i]
		to, ok := lines[r.File+"\x00"+r.Text]
		if !ok || r.Text == "" {
			continue
		}
		moved[from] = to + 1
		if i < len(hits) && i < len(over) {
			f.Hits[first[to]] += hits[i]
			f.Over[first[to]] += over[i]
		}
		if buckets != nil && f.buckets != nil && old.rates[from] == l.rates[to] {
			f.buckets[to] = buckets[from]
		}
	}
	f.sources.renumber(moved)
}
