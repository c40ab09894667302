package inspect

// What parsers hold of messages that are not complete counts against Config.MemoryBytes, as streams do: a client could
// otherwise have a head, a body and a handshake kept for each of its flows without a bound.

// charge makes n bytes the part of the budget that the parsers of a flow have. They hold the bytes already, so the budget may
// be exceeded by those of one segment: the next one frees memory (relieve), or is not taken.
func (e *Engine) charge(f *flow, n int) {
	e.budget.Charge(n - f.held)
	f.held = n
}

// dropParsers gives back what the parsers of a flow hold. What follows in it is not parsed.
func (e *Engine) dropParsers(f *flow) {
	f.proto = nil
	e.charge(f, 0)
}

// Sizes of what has no bytes of packets in it.
const (
	headerSize = 56 // an httpHeader
	sliceSize  = 24
)

// size returns how many bytes the parsers hold.
func (p *protocol) size() (n int) {
	if p == nil {
		return 0
	}
	for i := range p.dns {
		n += cap(p.dns[i]) + cap(p.ssh[i].text)
	}
	if h := p.http; h != nil {
		for _, m := range h.methods {
			n += sliceSize + len(m)
		}
		for i := range h.sides {
			n += h.sides[i].size()
		}
	}
	if p.http2 != nil {
		n += p.http2.size()
	}
	if t := p.tls; t != nil {
		for i := range t.sides {
			n += cap(t.sides[i].records) + cap(t.sides[i].message)
		}
		n += cap(t.certs) * sliceSize
		for _, c := range t.certs {
			n += cap(c)
		}
	}
	return n
}

// size returns how many bytes a direction of HTTP holds.
func (s *httpSide) size() int {
	m := &s.msg
	return cap(s.line) + cap(m.head) + cap(m.body) + m.coding.size() + cap(m.headers)*headerSize
}

// parsersQuiet is how long a flow has been quiet before its parsers are given up for others, in nanoseconds.
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
