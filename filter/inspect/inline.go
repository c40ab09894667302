package inspect

import "github.com/millrace/millrace/filter/signature"

// A caller that forwards packets asks before each leaves (Inspect). The packet in which a match completes is the one
// that Result is about, so that the receiver never has all of the bytes that a rule drops. A rule that drops blocks
// its flow: nothing of it passes any more, and retransmissions neither.
//
// Bounds. What an attacker can fill must not become a way past the rules. With Config.Refuse a packet that meets a
// bound is not taken: nothing of what is known changes, and the caller drops the packet (Result.Bound). Without it
// the engine abandons the oldest, as it does for captures.
//
// Connections. Forged segments end nothing: with Config.Inline a RST or FIN counts only at the sequence number that the
// receiver expects (RFC 5961 3.2), and a SYN opens another flow on the same ports only where the caller's connection
// tracking says so (Input.Fresh).

// Outcome is the action of the rules that a packet has matched. The larger one counts.
type Outcome uint8

// The outcomes.
const (
	Pass   Outcome = iota
	Drop           // the packet, and all that follows in its flow
	Reject         // the same, and both ends learn it
)

// String returns the name of an outcome.
func (o Outcome) String() string { return [...]string{"pass", "drop", "reject"}[o] }

// Input is a packet of a connection that the caller tracks. The zero values of Dir, Fresh and Conn are those of one that
// it does not.
type Input struct {
	Now   int64               // nanoseconds, from any begin
	Frame []byte              // Ethernet, borrowed
	Dir   signature.Direction // of the packet, not of what is in a tunnel
	Fresh bool                // it opens a connection: another one with its addresses and ports is over

	Number uint64 // of the packet, for its alerts, from 1; 0: they are counted

	Layers Layers // of the frame
	Conn   uint32 // number of the connection, from 1; 0: none
	Search Search // what a packet engine has found in the frame
}

// Result is the decision of an engine on one packet.
type Result struct {
	Outcome Outcome
	Rule    *signature.Rule // that has led to the outcome; nil for none, and for an anomaly
	Blocked bool            // its flow was blocked before
	Bound   bool            // it met a bound: not all of it was inspected, or none with Config.Refuse
	Anomaly bool            // an anomaly was reported
	Taken   bool            // what a packet engine has found was used
	Partial bool            // it lists not all that it has found: the payload was searched again
}

// Inspect inspects a packet, which it borrows.
func (e *Engine) Inspect(in *Input) Result {
	e.in, e.result = *in, Result{}
	e.searched, e.searchedFrame = in.Search, in.Frame
	e.now = in.Now
	e.stats.Packets++
	e.stats.Bytes += uint64(len(in.Frame))
	if e.packet = in.Number; e.packet == 0 {
		e.packet = e.stats.Packets
	}
	e.sweepFragments()
	if in.Layers.known(len(in.Frame)) {
		e.layered(in.Frame, &in.Layers)
	} else {
		e.frame(in.Frame, 0)
	}
	if e.result.Bound {
		e.stats.Bounds++
	}
	e.in.Frame, e.searched, e.searchedFrame = nil, Search{}, nil
	return e.result
}

// leastKeep is the kept part of a stream that is quiet while memory is short: patterns that are cut by segments are found in it,
// and nearly all rules. relieveEvery bounds how often streams are looked through in vain.
const (
	leastKeep    = 2 << 10
	relieveEvery = 10e6 // ns
	relieveMost  = 4096 // flows at once
)

// relieve frees n bytes of memory for a flow: less is kept of the streams that have been quiet for longest, and then nothing
// of what parsers hold of them. Where nothing can be given back, segments meet the bound.
func (e *Engine) relieve(of *flow, n int) {
	if e.budget.Used()+n <= e.budget.Max || e.relieved != 0 && e.now-e.relieved < relieveEvery {
		return
	}
	if e.cfg.Inline {
		e.shorten(n)
	}
	if e.budget.Used()+n > e.budget.Max {
		e.giveUpParsers(of, n)
	}
	if e.relieved = 0; e.budget.Used()+n > e.budget.Max {
		e.relieved = e.now
	}
}

// missing returns how many bytes are to be freed for n to fit, and some more so that the next need not look again.
func (e *Engine) missing(n int) int { return max(e.budget.Used()+n-e.budget.Max, e.budget.Max/64) }

// shorten keeps less of quiet streams, until n bytes fit.
func (e *Engine) shorten(n int) {
	want, left := e.missing(n), relieveMost
	for f := e.oldest; f != nil && want > 0 && left > 0; f, left = f.newer, left-1 {
		for i := range f.sides {
			s := &f.sides[i]
			if freed := s.stream.Shrink(leastKeep); freed > 0 {
				want -= freed
				e.stats.Shortened++
			}
		}
	}
}

// Expire ends flows that have been quiet for their time, at most n, the quietest first, and abandons packets whose fragments
// are too late.
func (e *Engine) Expire(now int64, n int) {
	e.now, e.packet = now, 0
	e.sweepFragments()
	for ; n > 0 && e.oldest != nil && now-e.oldest.linked > e.oldest.timeout(); n-- {
		if f := e.oldest; f.last > f.linked {
			e.unlink(f)
			e.relink(f)
		} else {
			e.end(f)
		}
	}
}

// Flows returns how many flows there are, and how many bytes their streams hold.
func (e *Engine) Flows() (flows, bytes int) { return e.flows.n, e.budget.Used() }

// knownDir returns the direction of a packet that the caller tracks; 0 for others, such as those in a tunnel.
func (e *Engine) knownDir(p *packet) signature.Direction {
	if p.depth > 0 {
		return 0
	}
	return e.in.Dir
}

// takes reports whether the receiver takes a RST or FIN at a sequence number. In captures, which may lack segments, all
// count.
func (e *Engine) takes(s *side, seq uint32) bool {
	return !e.cfg.Inline || !s.stream.Started() || s.stream.Expects(seq)
}

// bound notes that the packet has met a bound.
func (e *Engine) bound() {
	if !e.ending {
		e.result.Bound = true
	}
}

// giveUp notes that the bytes of a flow were not evaluated to the end. They will not be evaluated again when the packet is sent
// again, so with Refuse the flow passes no more.
func (e *Engine) giveUp(f *flow) {
	e.bound()
	if e.cfg.Refuse && !e.ending {
		e.blockFlow(f)
	}
}

// release gives back what a flow holds that is not inspected any more.
func (e *Engine) release(f *flow) {
	for i := range f.sides {
		f.sides[i].stream.Close()
		f.sides[i].pending, f.sides[i].fired = nil, nil
	}
	e.dropParsers(f)
}

// decide notes what is to be done with the packet.
func (e *Engine) decide(o Outcome) { e.result.Outcome = max(e.result.Outcome, o) }

// block does what a rule that drops asks for.
func (e *Engine) block(p *packet, o Outcome) {
	if e.ending { // the bytes have left
		return
	}
	e.decide(o)
	e.blockFlow(p.flow)
}

// blockFlow lets nothing of a flow pass any more, with Block. f is nil for a packet of no flow.
func (e *Engine) blockFlow(f *flow) {
	if e.cfg.Block && f != nil && !f.blocked {
		f.blocked = true
		e.stats.Blocked++
	}
}
