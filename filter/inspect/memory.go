package inspect

// What parsers hold of messages that are not complete counts against Config.MemoryBytes, as streams do: a client could
// otherwise have a head, a body and a handshake kept for each of its flows without a bound.

// charge makes n bytes the part of the budget that the parsers of a flow have. They hold the bytes already, so the budget may
// be exceeded by those of one segment: the next one makes room (relieve), or is not taken.
func (e *Engine) charge(f *flow, n int) {
	e.budget.Charge(n - f.held)
	f.held = n
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
		n += len(h.methods) * sliceSize
		for i := range h.sides {
			s := &h.sides[i]
			n += cap(s.line) + cap(s.msg.head) + cap(s.msg.body) + len(s.msg.headers)*headerSize
		}
	}
	if t := p.tls; t != nil {
		for i := range t.sides {
			n += cap(t.sides[i].records) + cap(t.sides[i].message)
		}
		for _, c := range t.certs {
			n += len(c)
		}
	}
	return n
}

// parsersQuiet is how long a flow has been quiet before its parsers make room for others, in nanoseconds.
const parsersQuiet = 1e9

// giveUpParsers inspects what the parsers hold of the flows that have been quiet for longest, but for one, and gives it back
// until about n bytes are free. What follows in such a flow is not parsed: with Refuse it passes no more.
func (e *Engine) giveUpParsers(but *flow, n int) {
	want := max(n, e.budget.Max/64)
	for f, left := e.oldest, relieveMost; f != nil && want > 0 && left > 0; f, left = f.newer, left-1 {
		if f == but || f.held == 0 || e.now-f.last < parsersQuiet {
			continue
		}
		want -= f.held
		was := e.ending
		e.ending = true
		e.finish(f)
		e.ending = was
		f.proto = nil
		e.charge(f, 0)
		e.stats.Shortened++
		if e.cfg.Refuse && e.cfg.Block && !f.blocked {
			f.blocked = true
			e.stats.Blocked++
		}
	}
}
