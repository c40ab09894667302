package proxy

import (
	"github.com/millrace/millrace/http1"
)

// bypassLeast is the content for which it pays to move it without reading: below, a read and a write are cheaper.
const bypassLeast = 64 << 10

// bypass moves content of one connection to another past the protocol machines.
type bypass struct {
	sender   Direct
	r        *relay
	from     *http1.Machine
	to       *http1.Machine
	receiver *link
}

// startBypass has the rest of content move from one connection to the other by itself, where both are plain and it pays.
func (x *exchange) startBypass(r *relay) {
	a, b := x.caps.Direct, x.direct
	if r == &x.down {
		a, b = b, a
	}
	if a == nil || b == nil || r.to == nil || len(r.held)+len(r.kept) > 0 { // what is kept goes through the relay
		return
	}
	l, from := a.plain()
	receiver, to := b.plain()
	if from.Left() < bypassLeast || to.Sending() != http1.Length || l.engine != nil || receiver.engine != nil || l.moves == moveUnsupported {
		return
	}
	r.bypassed = bypass{sender: a, r: r, from: from, to: to, receiver: receiver}
	l.bypass = &r.bypassed
}

// path implements mover.
func (s *bypass) path() (to *link, most int) { return s.receiver, int(min(s.from.Left(), bypassMost)) }

// moved implements mover: content ends with its length.
func (s *bypass) moved(n int, _ bool) (over bool) {
	if n > 0 {
		s.from.Bypassed(int64(n))
		s.receiver.out, _ = s.to.AppendDataHeader(s.receiver.out, n) // counts them; content with a length has no framing
		s.r.bytes += uint64(n)
		*s.r.progress = s.receiver.w.now
		s.sender.progress()
	}
	return s.from.Left() == 0 // the session has the end of the message to report
}
