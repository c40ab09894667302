package proxy

import (
	"errors"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/transport"
	"github.com/millrace/millrace/http1"
)

// bypassLeast is the content for which it pays to move it without reading: below, a read and a write are cheaper.
const bypassLeast = 64 << 10

// bypassMost bounds what one call moves, so that other connections of the loop get their time.
const bypassMost = 192 << 10

// mover moves input of a connection to another one without reading it.
type mover interface {
	// move moves what has arrived at l.
	move(l *link)
	// holds reports whether the loop has bytes that were taken and not sent.
	holds() bool
}

// bypass moves content of one connection to another past the protocol machines.
type bypass struct {
	sender   direct
	r        *relay
	from     *http1.Machine
	to       *http1.Machine
	receiver *link
	pending  bool // the loop holds bytes for the receiver
}

// direct is a stream that is all of a connection with HTTP/1.1.
type direct interface {
	plain() (*link, *http1.Machine)
	// progress says that content has arrived.
	progress()
}

func (f *front1) plain() (*link, *http1.Machine) { return f.l, f.m }
func (s *back1) plain() (*link, *http1.Machine)  { return s.l, s.m }

// startBypass has the rest of content move from one connection to the other by itself, where both are plain and it pays.
func (x *exchange) startBypass(r *relay) {
	if len(r.held)+len(r.kept) > 0 || r.to == nil { // what is kept goes through the relay
		return
	}
	a, ok := r.from.(direct)
	if !ok {
		return
	}
	b, ok := r.to.(direct)
	if !ok {
		return
	}
	l, from := a.plain()
	receiver, to := b.plain()
	if from.Left() < bypassLeast || to.Sending() != http1.Length || l.engine != nil || receiver.engine != nil || l.noBypass {
		return
	}
	l.bypass = &l.bypassed
	l.bypassed = bypass{sender: a, r: r, from: from, to: to, receiver: receiver}
}

// move moves what has arrived.
func (s *bypass) move(l *link) {
	to := s.receiver
	if to.unsent() > 0 {
		if to.flush(); to.closed {
			return
		}
	}
	if to.blocked {
		l.waitFor(to)
		return
	}
	n := int(min(s.from.Left(), bypassMost))
	taken, in, out := l.conn.Relay(to.conn, n)
	if taken > 0 {
		s.from.Bypassed(int64(taken))
		to.out, _ = s.to.AppendDataHeader(to.out, taken) // counts them; content with a length has no framing
		s.r.bytes += uint64(taken)
		*s.r.progress = l.w.now
		s.sender.progress()
	}
	s.pending = out == transport.ErrAgain
	switch {
	case errors.Is(out, errors.ErrUnsupported):
		l.noBypass, l.bypass = true, nil
	case s.pending:
		l.waitFor(to)
		return
	case out != nil:
		to.fail(out)
		return
	case in == transport.ErrAgain:
		l.readable = false
	case in != nil:
		l.bypass = nil // the next read reports it
	}
	if s.from.Left() == 0 {
		l.bypass, l.again = nil, true // the session has the end of the message to report
	}
}

func (s *bypass) holds() bool { return s.pending }

// waitFor has l go on when another connection takes more.
func (l *link) waitFor(to *link) {
	l.paused, to.blocked, to.bypassFrom = true, true, l
	if to.outputBy == clock.Never {
		to.deadline(&to.outputBy, to.outputTime)
	}
}
