package link

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/transport"
)

// Touch has the link flushed after the batch.
func (l *Link) Touch() {
	if !l.Closed() {
		l.Runner.Run.Add(Flush, l, &l.tasks)
	}
}

// Buffer returns the buffer that a session appends to. The caller sets l.Out and calls Touch.
func (l *Link) Buffer() []byte {
	if l.Out == nil {
		l.Out = l.Runner.GetBuffer()
	}
	return l.Out
}

// Unsent returns how many bytes wait.
func (l *Link) Unsent() int { return len(l.Out) + len(l.Sealed) - l.sent }

// Accepts reports whether the link takes content. If not, the session's Writable is called later.
func (l *Link) Accepts() bool {
	if l.Unsent() < High {
		return true
	}
	l.Full = true
	return false
}

// send writes to the connection. Behind the last bytes the output ends at once, so that they may leave with its end.
func (l *Link) send(p []byte) (n int, err error) {
	if l.endsSoon() {
		n, err = l.sendLast(p)
	} else {
		n, err = l.Conn.Write(p)
	}
	l.Written += uint64(max(n, 0))
	return n, err
}

// endsSoon reports whether flushed ends the output as soon as all that is gathered has left, in order.
func (l *Link) endsSoon() bool {
	return l.Stage == Closing && l.Mode != Reset || l.output == OutputEnding || l.output == OutputNotified
}

func (l *Link) sendLast(p []byte) (int, error) {
	if last, can := l.Conn.(transport.LastWriter); can {
		return last.WriteLast(p)
	}
	return l.Conn.Write(p)
}

// Through sends content without gathering it, if it is large and nothing else waits, and returns how much was sent.
func (l *Link) Through(p []byte) int {
	if len(p) < 8<<10 || l.Engine != nil || l.Blocked || l.Conn == nil || l.endsOutput() {
		return 0
	}
	if l.Unsent() > 0 {
		l.Touch() // Writable and errors are deferred until the session's call returns
		if err := l.flushPlain(); err != nil || l.Unsent() > 0 {
			return 0
		}
	}
	n, err := l.send(p)
	if err != nil && err != transport.ErrAgain {
		return 0 // the next flush reports it
	}
	l.Blocked = n < len(p)
	return n
}

// flush sends what is gathered.
func (l *Link) flush() {
	switch {
	case l.Closed() || l.Conn == nil:
		return
	case l.failure != nil:
		l.outputFailed(l.failure)
		return
	}
	if l.Blocked {
		if l.outputBy == clock.Never && l.Dial == nil && l.Unsent() > 0 { // the time limit of what Through could not send begins
			l.Deadline(&l.outputBy, l.OutputTime)
		}
		return
	}
	before := l.Unsent()
	var err error
	if l.Engine == nil {
		err = l.flushPlain()
	} else {
		err = l.flushTLS()
	}
	if err != nil {
		l.outputFailed(err)
		return
	}
	rest := l.Unsent()
	switch {
	case rest == 0:
		l.outputBy = clock.Never
		l.flushed()
	case rest < before || l.outputBy == clock.Never: // progress of any size prolongs the time: slow clients are served, stopped ones not
		if l.OutputTime > 0 {
			l.Deadline(&l.outputBy, l.OutputTime)
		}
	}
	if l.Full && rest <= low && !l.Closed() {
		l.Full = false
		l.Session.Writable()
	}
}

// outputFailed ends the connection by an error of its output. The input may still hold an answer.
func (l *Link) outputFailed(err error) {
	if l.Open() {
		l.readLast()
	}
	l.Fail(err)
}

// flushPlain sends out.
func (l *Link) flushPlain() error {
	for l.sent < len(l.Out) {
		n, err := l.send(l.Out[l.sent:])
		if err != nil && err != transport.ErrAgain {
			return err
		}
		if l.sent += n; l.sent < len(l.Out) {
			l.Blocked = true
			return nil
		}
	}
	l.sent = 0
	l.Runner.PutBuffer(&l.Out)
	return nil
}

// flushed acts on what was to happen after all is sent.
func (l *Link) flushed() {
	switch {
	case l.Stage == Closing:
		l.Finish()
	case l.output == OutputEnding || l.output == OutputNotified:
		l.output = OutputEnded
		l.Conn.CloseWrite()
	}
}

// CloseWrite ends the output after what is gathered.
func (l *Link) CloseWrite() {
	if l.endsOutput() || l.Closed() {
		return
	}
	l.output = OutputEnding
	l.Touch()
}
