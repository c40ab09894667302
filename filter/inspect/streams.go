package inspect

import (
	"github.com/millrace/millrace/filter/inspect/applayer"
	"github.com/millrace/millrace/filter/reassembly"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// segment follows TCP's states, puts the payload in order and inspects what is in order now.
//
// Its order is that of RFC 9293 3.10.7.4: SYN, payload, ACK, FIN. The ACK is about the stream of the other direction. RST and
// FIN count with Config.Inline only at the number that the receiver expects (RFC 5961 3.2): otherwise one forged segment would end
// inspection while the connection goes on.
func (e *Engine) segment(p *packet) {
	f, t := p.flow, p.tcp
	me, peer := &f.sides[signature.SideOf(p.dir)], &f.sides[1-signature.SideOf(p.dir)]
	flags := t.Flags()
	seq := t.Seq()
	switch {
	case flags.Has(wire.FlagSYN):
		if !me.stream.Started() {
			me.stream.Start(&e.streams, seq+1)
		}
		if f.state < tcpSYN {
			f.state = tcpSYN
		}
		if flags.Has(wire.FlagACK) && f.state == tcpSYN && peer.stream.Started() {
			f.state = tcpSYNACK
		}
		seq++ // data behind a SYN: TCP Fast Open
	case flags.Has(wire.FlagACK) && f.state == tcpSYNACK && p.dir == signature.ToServer:
		f.state = tcpEstablished
	case f.state == tcpNone && e.cfg.Midstream:
		f.state = tcpEstablished
	}
	if e.cfg.Midstream && !me.stream.Started() {
		me.stream.Start(&e.streams, seq)
	}
	if me.stream.Started() && len(p.payload) > 0 && f.state != tcpNone {
		e.take(p, &me.stream, seq)
	}
	// What the receiver has acknowledged and the stream has not seen was lost on the way to here: it never comes.
	if flags.Has(wire.FlagACK) {
		if n, ev := peer.stream.Acked(t.Ack()); n > 0 || ev != 0 {
			e.streamed(p, signature.BothWays-p.dir, n, ev)
		}
	}
	if flags.Has(wire.FlagFIN) && e.takes(me, seq+uint32(len(p.payload))) {
		me.fin = true
	}
	if flags.Has(wire.FlagRST) && e.takes(me, seq) || me.fin && peer.fin {
		if f.state == tcpEstablished {
			e.finish(f)
		}
		f.state = tcpClosed
	}
}

// streamed inspects n bytes that are in order now, and what has happened to the stream. The rules on bytes come before the parsers,
// since a rule on the payload may set a bit that one on the message asks for.
func (e *Engine) streamed(p *packet, d signature.Direction, n int, ev reassembly.Event) {
	f := p.flow
	s := &f.sides[signature.SideOf(d)]
	if ev&reassembly.Conflict != 0 {
		e.anomaly(p, StreamOverlap)
	}
	if ev&reassembly.Full != 0 {
		e.stats.Full++
		e.bound()
	}
	if ev&reassembly.Gap != 0 {
		e.stats.Gaps++
		e.bound()
		s.broken = true           // for good: parsers cannot find the begin of a message again
		s.pending = s.pending[:0] // their contents lie before the gap
	}
	if n == 0 {
		return
	}
	q := p
	if d != p.dir {
		q = packetOf(f, d)
	}
	q.stateOK = f.established()
	w, from := s.stream.Window()
	if e.recognise(f) {
		e.late(f, signature.BothWays-d)
	}
	e.stream(q, s, w, from, n)
	e.parse(q, w[len(w)-n:])
	e.charge(f)
}

// late evaluates the rules that have waited for the protocol of a flow on a direction that is not the one which has shown it.
func (e *Engine) late(f *flow, d signature.Direction) {
	s := &f.sides[signature.SideOf(d)]
	if w, from := s.stream.Window(); len(w) > 0 {
		e.stream(packetOf(f, d), s, w, from, 0)
	}
}

// stream evaluates the stream's rules on a window whose last n bytes are new. A rule that has matched is evaluated
// on what comes after: the same bytes match once.
//
// A rule stays pending from the first content of it that is found until that content leaves the window. A text that is cut into
// segments at any place, in any order, then meets the same rules as one segment: cutting hides nothing (see FuzzCuts).
func (e *Engine) stream(p *packet, s *side, w []byte, from uint64, n int) {
	old, fresh := w[:len(w)-n], w[len(w)-n:]
	end := from + uint64(len(w))
	e.begin()
	for _, r := range s.pending {
		if q := e.rules.current(r.ruleRef); q != nil && r.at > from {
			e.add(q, r.at)
		}
	}
	if n > 0 {
		e.inStream(p, old, fresh, end-uint64(n))
	}
	s.pending = s.pending[:0]
	e.unsearched(inStreams, p)
	s.pay(n)
	short := uint32(0)
	for _, c := range e.rotated(s) {
		q := c.q
		if q.app != signature.AppAny && p.flow.appFinal && !q.about(p.flow.app) || q.dir&p.dir == 0 {
			continue
		}
		if (q.app != signature.AppAny || len(q.AppIs) > 0) && !p.flow.appFinal { // until the protocol is known
			s.wait(c)
			continue
		}
		if !s.afford() { // later, with the work that the next bytes pay for: the first that was put off begins then
			if short == 0 {
				short = q.id + 1
			}
			s.wait(c)
			continue
		}
		text, base := w, from
		if done := s.fired[q.key]; done > from {
			text, base = w[done-from:], done
		}
		if !e.admits(q, p) { // for good: what bits and headers say is about this segment
			continue
		}
		before := e.eval.work
		hit := e.payload(q, p, text, int(base)) && (!q.FTPBounce || applayer.Bounces(text, p.src))
		s.spent += e.eval.work - before
		if hit {
			e.hits[q.id] = e.serial
			if s.fired == nil {
				s.fired = map[ruleKey]uint64{}
			}
			s.fired[q.key] = end
			e.matched(q, p, fresh)
		} else {
			s.wait(c)
		}
	}
	if s.resume = short; short > 0 {
		e.postponed(p.flow)
	}
}

// wait keeps a candidate for the next bytes, where a content of it was found.
func (s *side) wait(c candidate) {
	if c.at > 0 {
		s.pending = append(s.pending, pendingRule{c.q.ref(), c.at})
	}
}
