package kernbench

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// expectation is the required result of every run over a load. The CPU form gave it; a sample of it has been
// compared with the reference, all where the reference is fast enough.
type expectation struct {
	before  []packet.Desc // poisoned
	after   []packet.Desc
	sampled int // packets compared with the reference

	flow    []uint32 // of each packet its flow, counted from 1, and direction as Desc.Flow has it; nil without
	text    bool
	matches []packet.Match // in the order of packets; D is the packet's place in the load
}

// referenceBudget is the number of comparisons of rules and routes that the reference may take.
const referenceBudget = 20_000_000

// expect runs the CPU form over the load, and the reference over a sample of it.
func expect(l *load, o *Op, t *tables) (*expectation, error) {
	e := &expectation{before: make([]packet.Desc, len(l.desc)), after: make([]packet.Desc, len(l.desc)), text: o.text()}
	for i := range l.desc {
		e.before[i] = poisoned
		e.before[i].Off, e.before[i].Len = l.desc[i].Off, l.desc[i].Len
	}
	l.text = 0
	if err := e.learn(l, o, t); err != nil {
		return nil, err
	}
	for i := range e.after {
		l.text += len(textOf(l.arena.View().Bytes(&e.after[i]), &e.after[i]))
	}
	if o.ops&gpukern.OpFlow != 0 {
		e.flow = flowsOf(l, e.after)
		if err := e.compareFlows(e.after, 0, newFlowsSeen()); err != nil {
			return nil, err
		}
	}
	if err := e.sample(l, o, t); err != nil {
		return nil, err
	}
	return e, nil
}

// learn takes the results of the CPU form.
func (e *expectation) learn(l *load, o *Op, t *tables) error {
	copy(e.after, e.before)
	r, err := openCPU(o, t)
	if err != nil {
		return err
	}
	for at := 0; at < len(e.after); at += packet.BatchSize {
		b := &packet.Batch{Arena: l.arena.View(), D: e.after[at:min(at+packet.BatchSize, len(e.after))]}
		if err := pump(r, []*packet.Batch{b}); err != nil {
			return err
		}
		for _, m := range b.Matches {
			m.D += uint32(at)
			e.matches = append(e.matches, m)
		}
	}
	return r.Close()
}

// sample compares evenly spread packets with the reference, which gets copies of them.
func (e *expectation) sample(l *load, o *Op, t *tables) error {
	n := len(e.after)
	cost := 10 + len(t.lists.Rules) + len(t.lists.Routes) + len(t.lists.Literals)*l.text/n
	k := min(n, max(32, referenceBudget/cost))
	mem := make([]byte, 0, k*slot)
	b := &packet.Batch{Arena: &packet.Arena{Shift: 16}}
	which := make([]int, k)
	for s := range k {
		i := s * n / k
		which[s] = i
		d := e.before[i]
		mem = append(mem, l.arena.Mem[d.Off:][:d.Len]...)
		d.Off = uint32(len(mem) - int(d.Len))
		b.D = append(b.D, d)
	}
	b.Arena.Mem = mem
	kernref.Reference(b, o.ops, t.lists)
	if err := e.sampledMatches(b, which); err != nil {
		return err
	}
	for s, i := range which {
		want := b.D[s]
		want.Off, want.Flow = e.after[i].Off, e.after[i].Flow
		if want != e.after[i] {
			return fmt.Errorf("the CPU form against the reference: %w", differ(i, &e.after[i], &want))
		}
	}
	e.sampled = k
	return nil
}

// compare compares descriptors, of which the first is the load's descriptor at.
func (e *expectation) compare(got []packet.Desc, at int, seen *flowsSeen) error {
	want := e.after[at : at+len(got)]
	if e.flow == nil && bytes.Equal(descBytes(got), descBytes(want)) || seen.same(got, at) {
		return nil
	}
	for i := range got {
		w := want[i]
		if e.flow != nil {
			w.Flow = got[i].Flow
		}
		if got[i] != w {
			return differ(at+i, &got[i], &w)
		}
	}
	if err := e.compareFlows(got, at, seen); err != nil {
		return err
	}
	seen.keep(got, at, len(e.after))
	return nil
}

// compareBefore compares descriptors with what they were before the run.
func (e *expectation) compareBefore(got []packet.Desc, at int) error {
	for i := range got {
		if got[i] != e.before[at+i] {
			return differ(at+i, &got[i], &e.before[at+i])
		}
	}
	return nil
}

// differ says which field of a descriptor is wrong.
func differ(i int, got, want *packet.Desc) error {
	for _, f := range [...]struct {
		name      string
		got, want any
	}{
		{"off", got.Off, want.Off},
		{"len", got.Len, want.Len},
		{"port", got.Port, want.Port},
		{"l3", got.L3, want.L3},
		{"l4", got.L4, want.L4},
		{"payload", got.Payload, want.Payload},
		{"hash", got.Hash, want.Hash},
		{"flow", got.Flow, want.Flow},
		{"rule", got.Rule, want.Rule},
		{"next hop", got.NextHop, want.NextHop},
		{"stamp", got.Stamp, want.Stamp},
		{"flags", got.Flags, want.Flags},
		{"protocol", got.Proto, want.Proto},
		{"verdict", got.Verdict, want.Verdict},
	} {
		if f.got != f.want {
			return wrong(i, f.name, f.got, f.want)
		}
	}
	return wrong(i, "descriptor", *got, *want)
}

// compareMatches compares the matches of a batch whose first packet is packet `first` of the load.
func (e *expectation) compareMatches(b *packet.Batch, first int) error {
	from := e.matchesBefore(first)
	want := e.matches[from:e.matchesBefore(first+b.Len())]
	if len(b.Matches) != len(want) {
		return wrong(first, "number of matches of the batch", len(b.Matches), len(want))
	}
	for i, m := range b.Matches {
		m.D += uint32(first)
		if m != want[i] {
			return wrong(int(want[i].D), "match", m, want[i])
		}
	}
	return nil
}

// matchesBefore returns how many matches packets before packet i have.
func (e *expectation) matchesBefore(i int) int {
	n, _ := slices.BinarySearchFunc(e.matches, uint32(i), func(m packet.Match, d uint32) int { return int(int64(m.D) - int64(d)) })
	return n
}

// sampledMatches compares matches of the reference, of packets that are some of the load's, with those of
// the CPU form.
func (e *expectation) sampledMatches(b *packet.Batch, which []int) error {
	got := b.Matches
	for s, i := range which {
		for _, want := range e.matches[e.matchesBefore(i):e.matchesBefore(i+1)] {
			want.D = uint32(s)
			if len(got) == 0 || got[0] != want {
				return fmt.Errorf("the CPU form against the reference: %w", wrong(i, "match", want, got[:min(1, len(got))]))
			}
			got = got[1:]
		}
	}
	if len(got) > 0 {
		return fmt.Errorf("the CPU form against the reference: %w", wrong(which[got[0].D], "match", "none", got[0]))
	}
	return nil
}

// textOf returns the payload that literals are looked for in: from the payload, or from the transport
// header where the protocol has none that is known, to where IP ends.
func textOf(p []byte, d *packet.Desc) []byte {
	at := int(d.Payload)
	if at == 0 {
		at = int(d.L4)
	}
	if at == 0 {
		return nil
	}
	end := int(d.L3)
	if d.Flags.Has(packet.FlagIPv4) {
		end += int(wire.IPv4(p[d.L3:]).TotalLen())
	} else {
		end += wire.IPv6Len + int(wire.IPv6(p[d.L3:]).PayloadLen())
	}
	return p[min(at, len(p)):max(min(at, len(p)), min(end, len(p)))]
}
