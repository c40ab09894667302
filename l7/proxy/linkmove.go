package proxy

import (
	"errors"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/transport"
)

// bypassMost bounds what one call moves, so that other connections of the loop get their time.
const bypassMost = 192 << 10

// mover is what the input of a connection is for that goes to another one without being read.
type mover interface {
	// path returns where it goes, and how many bytes of it at most.
	path() (to *link, most int)
	// moved counts bytes that have gone there, and reports whether what follows is to be read. dry says that no more has arrived.
	moved(n int, dry bool) (over bool)
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
