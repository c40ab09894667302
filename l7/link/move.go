package link

import (
	"errors"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/transport"
)

// BypassMost bounds what one call moves, so that other connections of the loop get their time.
const BypassMost = 192 << 10

// Mover receives the input of a connection that goes to another one without being read.
type Mover interface {
	// Path returns where it goes, and how many bytes of it at most.
	Path() (to *Link, most int)
	// Moved counts bytes that have gone there, and reports whether what follows is to be read. dry says that no more has arrived.
	Moved(n int, dry bool) (over bool)
}

// move moves what has arrived at l, past its session. What the other link has gathered goes first: bytes that are moved enter the
// socket directly, and would overtake the header of their message.
func (l *Link) move() {
	to, most := l.Bypass.Path()
	if !to.Open() { // what follows has nowhere to go: the end of the exchange, or of l, is near
		l.Pause()
		return
	}
	if to.Unsent() > 0 {
		to.Touch() // what follows a flush, and an error, comes after the batch
		if err := to.flushPlain(); err != nil {
			l.Pause()
			return
		}
	}
	if to.Blocked {
		l.waitFor(to)
		return
	}
	taken, in, out := l.Conn.Relay(to.Conn, most)
	over := l.Bypass.Moved(taken, in == transport.ErrAgain)
	if l.Moves = NotHeld; out == transport.ErrAgain {
		l.Moves = Holding
	}
	switch {
	case errors.Is(out, errors.ErrUnsupported):
		l.Moves, over = Unsupported, true
	case l.Moves == Holding:
		l.waitFor(to)
		return
	case out != nil:
		to.failure = out
		to.Touch()
		l.Pause()
		return
	case in == transport.ErrAgain:
		l.Input = InputDrained
	case in != nil:
		over = true // the next read reports it
	}
	if over {
		l.Bypass, l.Demand = nil, Recalled
	}
}

// waitFor has l go on when another connection takes more.
func (l *Link) waitFor(to *Link) {
	l.Demand, to.Blocked, to.bypassFrom = Paused, true, l
	if to.outputBy == clock.Never {
		to.Deadline(&to.outputBy, to.OutputTime)
	}
}
