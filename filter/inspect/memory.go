package inspect

import "github.com/millrace/millrace/filter/signature"

// What parsers hold of messages that are not complete counts against Config.MemoryBytes, as streams do: a client could
// otherwise have a head, a body and a handshake kept for each of its flows without a bound.

// charge makes what a flow holds beside its streams its part of the budget. It holds the bytes already, so the budget may be
// exceeded by those of one segment: the next one frees memory (relieve), or is not taken.
func (e *Engine) charge(f *flow) {
	n := f.proto.size() + mapSize(len(f.bits), 16) + mapSize(len(f.counters), 16)
	for i := range f.sides {
		s := &f.sides[i]
		n += cap(s.pending)*pendingSize + mapSize(len(s.fired), firedSize)
	}
	e.budget.Charge(n - f.held)
	f.held = n
}

// mapSize returns about how many bytes a map of n entries has allocated, of so many bytes each: groups of eight, at most seven of
// them used.
func mapSize(n, entry int) int {
	if n == 0 {
		return 0
	}
	groups := 1
	for 7*groups < n {
		groups *= 2
	}
	return 64 + groups*8*(entry+1)
}

// dropParsers gives back what the parsers of a flow hold. What follows in it is not parsed.
func (e *Engine) dropParsers(f *flow) {
	if f.proto != nil && f.proto.parser != nil {
		f.proto.parser.Close(e.call(packetOf(f, signature.ToServer)))
	}
	f.proto = nil
	e.charge(f)
}

// Sizes of what has no bytes of packets in it.
const (
	refSize     = 24 // a ruleRef
	keySize     = 8  // a ruleKey
	pendingSize = 32
	firedSize   = 16
	sliceSize   = 24
)

// size returns how many bytes the parsers hold.
func (p *protocol) size() (n int) {
	if p == nil {
		return 0
	}
	if p.parser != nil {
		n += p.parser.Size()
	}
	if h := p.http; h != nil {
		for i := range h.asked {
			n += 2*sliceSize + len(h.asked[i].method) + len(h.asked[i].name)
		}
		for i := range h.sides {
			n += h.sides[i].size()
		}
	}
	if p.http2 != nil {
		n += p.http2.size()
	}
	return n
}

// size returns how many bytes a direction of HTTP holds.
func (s *httpSide) size() int {
	m := &s.msg
	n := cap(s.line) + m.Size()
	for _, early := range [2]*earlyMessage{&m.early, &s.early} {
		n += cap(early.waiting)*refSize + cap(early.matched)*keySize
	}
	return n
}

// parsersQuiet is the time that a flow has been quiet before its parsers are dropped for others, in nanoseconds.
const parsersQuiet = 1e9

// giveUpParsers inspects what the parsers hold of the flows that have been quiet for longest, but for one, and gives it back
// until n bytes fit. With Refuse such a flow passes no more, as what follows in it is not parsed.
func (e *Engine) giveUpParsers(but *flow, n int) {
	want := e.missing(n)
	for f, left := e.oldest, relieveMost; f != nil && want > 0 && left > 0; f, left = f.newer, left-1 {
		if f == but || f.held == 0 || e.now-f.last < parsersQuiet {
			continue
		}
		want -= f.held
		e.conclude(f)
		e.dropParsers(f)
		e.stats.Shortened++
		if e.cfg.Refuse {
			e.blockFlow(f)
		}
	}
}
