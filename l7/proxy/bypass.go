package proxy

import (
	"errors"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/transport"
)

// bypassLeast is the content for which it pays to move it without reading: below, a read and a write are cheaper.
const bypassLeast = 64 << 10

// bypassMost bounds what one call moves, so that other connections of the loop get their time.
const bypassMost = 192 << 10

// mover is what the input of a connection is for that goes to another one without being read.
type mover interface {
	// path returns where it goes, and how many bytes of it at most.
	path() (to *link, most int)
	// moved counts bytes that have gone there, and reports whether what follows is to be read. dry says that no more has arrived.
	moved(n int, dry bool) (over bool)
}

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

// move moves what has arrived at l, past its session.
func (l *link) move() {
	to, most := l.bypass.path()
	if !to.open() { // what follows has nowhere to go: the end of the exchange, or of l, is near
		l.pause()
		return
	}
	if to.unsent() > 0 {
		to.touch() // what follows a flush, and an error, comes after the batch
		if err := to.flushPlain(); err != nil {
			l.pause()
			return
		}
	}
	if to.blocked {
		l.waitFor(to)
		return
	}
	taken, in, out := l.conn.Relay(to.conn, most)
	over := l.bypass.moved(taken, in == transport.ErrAgain)
	if l.moves = moveIdle; out == transport.ErrAgain {
		l.moves = moveHolding
	}
	switch {
	case errors.Is(out, errors.ErrUnsupported):
		l.moves, over = moveUnsupported, true
	case l.moves == moveHolding:
		l.waitFor(to)
		return
	case out != nil:
		to.failure = out
		to.touch()
		l.pause()
		return
	case in == transport.ErrAgain:
		l.input = inputDrained
	case in != nil:
		over = true // the next read reports it
	}
	if over {
		l.bypass, l.demand = nil, recalled
	}
}

// waitFor has l go on when another connection takes more.
func (l *link) waitFor(to *link) {
	l.demand, to.blocked, to.bypassFrom = paused, true, l
	if to.outputBy == clock.Never {
		to.deadline(&to.outputBy, to.outputTime)
	}
}
