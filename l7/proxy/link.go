package proxy

import (
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/tls"
)

// Marks of the bytes that wait for a connection to take them. Above high its session accepts no content.
const (
	high = 128 << 10
	low  = 32 << 10
)

// session is a protocol on a link.
type session interface {
	// input takes bytes of the peer, and returns how many. It takes fewer when it has to wait for something else; it
	// calls link.resume later. fin says that the input ends with p.
	input(p []byte, fin bool) int
	// writable says that the link accepts content again.
	writable()
	// expired says that the deadline of the input, or of the output, has passed.
	expired(output bool)
	// failed says that the connection has ended before its input did, or by an error.
	failed(err error)
}

// handshake is what a handshake of TLS is reported to.
type handshake interface {
	arrived() // something of the peer
	established()
}

// dialer is what it is reported to that the transport to a backend is established.
type dialer interface{ connected() }

// link is a connection with its buffers. One that has nothing to send and nothing received has none.
type link struct {
	w       *runner
	conn    transport.Conn
	engine  *tls.Engine    // nil without TLS
	watch   func(p []byte) // gets ciphertext before the engine does, nil if nothing wants it
	session session

	raw []byte // ciphertext that was received and not decrypted yet
	in  []byte // what the session has not taken yet

	out    []byte // what the session sends, before TLS
	sealed []byte // ciphertext that the connection has not taken yet
	sent   int    // bytes of out, or of sealed with TLS, that the connection has taken

	bypass     mover // its input goes to another connection; nil if not
	bypassFrom *link // whose input goes to this one, and waits until it takes more
	moves      moveState
	dial       dialer      // while it is a connection to a backend that is being established
	opening    handshake   // of TLS
	onClosed   func(*link) // of a client, nil otherwise
	timer      uint32
	armed      clock.Time // when the timer fires: not after the deadlines
	inputBy    clock.Time
	outputBy   clock.Time
	outputTime time.Duration // how long output may wait without progress
	remote     netip.AddrPort
	failure    error  // that the next flush reports
	written    uint64 // bytes that the connection has taken
	tasks      taskSet
	stage      linkStage
	mode       closeMode
	input      inputState
	demand     demand
	output     outputState
	blocked    bool // the connection takes no more for now
	full       bool // the session was refused content, and waits for writable
}

// newLink returns a link for conn, which is nil while it is dialed.
func newLink(w *runner, conn transport.Conn) *link {
	l := &link{w: w, conn: conn, armed: clock.Never, inputBy: clock.Never, outputBy: clock.Never}
	l.timer = w.newTimer(l)
	if conn != nil {
		l.remote = conn.Remote()
	}
	return l
}

// Ready is called by the loop.
func (l *link) Ready(_ transport.Conn, ev transport.Events) {
	l.w.enter()
	if l.closed() {
		return
	}
	if ev&transport.Failed != 0 {
		if l.dial == nil { // what arrived before the error counts: a response, and then a reset
			l.arrived()
			for i := 0; i < maxLast && l.input == inputReadable && l.demand != paused && !l.closed(); i++ {
				l.advance()
			}
		}
		l.fail(l.conn.Err())
		return
	}
	if ev&transport.Writable != 0 {
		l.blocked = false
		if l.stage == linkConnecting {
			l.stage = linkOpen
			if l.engine != nil {
				l.stage = linkHandshaking
			}
			l.dial.connected()
		}
		l.flush()
		if from := l.bypassFrom; from != nil && !l.closed() {
			l.bypassFrom = nil
			if from.bypass != nil { // otherwise its exchange has ended, and another one may have paused it
				from.resume()
			}
		}
	}
	if ev&transport.Readable != 0 && !l.closed() {
		l.arrived()
		l.advance()
	}
}

// arrived notes that there may be more to read.
func (l *link) arrived() {
	if l.input == inputDrained {
		l.input = inputReadable
	}
}

// run implements runnable.
func (l *link) run(t task) {
	if l.tasks.clear(t); t == taskFlush {
		l.flush()
		return
	}
	l.advance()
}

// resume has the loop read the link again, soon.
func (l *link) resume() {
	l.demand = recalled
	if !l.closed() {
		l.w.run.add(taskRead, l, &l.tasks)
	}
}

// advance moves input to the session until there is none or the session waits. After much of it other connections get their
// time first: a sender that is as fast as the loop would keep it for ever.
func (l *link) advance() {
	for steps := 0; !l.closed() && l.demand != paused; steps++ {
		if steps == maxSteps {
			l.w.run.add(taskLater, l, &l.tasks)
			return
		}
		switch {
		case l.bypass != nil && (l.input == inputReadable || l.moves == moveHolding):
			l.move()
		case l.demand == recalled && len(l.in) == 0:
			l.demand = wanted
			l.session.input(nil, false)
		case len(l.in) > 0:
			l.demand = wanted
			n := l.session.input(l.in, l.ended() && len(l.raw) == 0)
			if l.closed() {
				return
			}
			rest := copy(l.in, l.in[n:])
			if l.in = l.in[:rest]; rest > 0 {
				return
			}
			l.w.putBuffer(&l.in)
		case len(l.raw) > 0:
			raw := l.raw
			l.raw = nil
			l.decrypt(raw)
			l.w.putBuffer(&raw)
		case l.input == inputReadable:
			l.read()
		case l.input == inputEnded:
			l.input = inputReported
			l.endInput()
		default:
			return
		}
	}
}

// read reads once and passes on what came.
func (l *link) read() {
	buf := l.w.buf
	n, err := l.conn.Read(buf)
	switch {
	case err == transport.ErrAgain:
		l.input = inputDrained
		return
	case err == io.EOF:
		l.input = inputEnded
		return
	case err != nil:
		l.fail(err)
		return
	}
	if n < len(buf) {
		l.input = inputDrained
	}
	if l.engine != nil {
		l.decrypt(buf[:n])
		return
	}
	l.deliver(buf[:n])
}

// deliver gives plaintext to the session, and keeps what it does not take. It borrows p.
func (l *link) deliver(p []byte) {
	if n := l.session.input(p, false); n < len(p) && !l.closed() {
		if l.in == nil {
			l.in = l.w.getBuffer()
		}
		l.in = append(l.in, p[n:]...)
	}
}

var errCut = errors.New("proxy: the connection ended without close_notify")

// endInput tells the session that the peer sends no more.
func (l *link) endInput() {
	if l.engine != nil {
		if err := l.engine.InputClosed(); err != nil {
			l.fail(errCut)
			return
		}
	}
	l.session.input(nil, true)
}

// touch has the link flushed after the batch.
func (l *link) touch() {
	if !l.closed() {
		l.w.run.add(taskFlush, l, &l.tasks)
	}
}

// buffer returns the buffer that a session appends to. The caller sets l.out and calls touch.
func (l *link) buffer() []byte {
	if l.out == nil {
		l.out = l.w.getBuffer()
	}
	return l.out
}

// unsent returns how many bytes wait.
func (l *link) unsent() int { return len(l.out) + len(l.sealed) - l.sent }

// accepts reports whether the link takes content. Otherwise writable follows.
func (l *link) accepts() bool {
	if l.unsent() < high {
		return true
	}
	l.full = true
	return false
}

// send writes to the connection.
func (l *link) send(p []byte) (int, error) {
	n, err := l.conn.Write(p)
	l.written += uint64(max(n, 0))
	return n, err
}

// through sends content without gathering it, if it is large and nothing else waits, and returns how much was sent.
func (l *link) through(p []byte) int {
	if len(p) < 8<<10 || l.engine != nil || l.blocked || l.conn == nil || l.endsOutput() {
		return 0
	}
	if l.unsent() > 0 {
		l.touch() // what follows a flush, and an error, wait until the session's call is over
		if err := l.flushPlain(); err != nil || l.unsent() > 0 {
			return 0
		}
	}
	n, err := l.send(p)
	if err != nil && err != transport.ErrAgain {
		return 0 // the next flush reports it
	}
	l.blocked = n < len(p)
	return n
}

// flush sends what is gathered.
func (l *link) flush() {
	switch {
	case l.closed() || l.conn == nil:
		return
	case l.failure != nil:
		l.fail(l.failure)
		return
	}
	if l.blocked {
		if l.outputBy == clock.Never && l.dial == nil && l.unsent() > 0 { // what through could not send waits from now on
			l.deadline(&l.outputBy, l.outputTime)
		}
		return
	}
	before := l.unsent()
	var err error
	if l.engine == nil {
		err = l.flushPlain()
	} else {
		err = l.flushTLS()
	}
	if err != nil {
		l.fail(err)
		return
	}
	rest := l.unsent()
	switch {
	case rest == 0:
		l.outputBy = clock.Never
		l.flushed()
	case rest < before || l.outputBy == clock.Never:
		if l.outputTime > 0 {
			l.deadline(&l.outputBy, l.outputTime)
		}
	}
	if l.full && rest <= low && !l.closed() {
		l.full = false
		l.session.writable()
	}
}

// flushPlain sends out.
func (l *link) flushPlain() error {
	for l.sent < len(l.out) {
		n, err := l.send(l.out[l.sent:])
		if err != nil && err != transport.ErrAgain {
			return err
		}
		if l.sent += n; l.sent < len(l.out) {
			l.blocked = true
			return nil
		}
	}
	l.sent = 0
	l.w.putBuffer(&l.out)
	return nil
}

// flushed acts on what was to happen after all is sent.
func (l *link) flushed() {
	switch {
	case l.stage == linkClosing:
		l.finish()
	case l.output == outputEnding || l.output == outputNotified:
		l.output = outputEnded
		l.conn.CloseWrite()
	}
}

// closeWrite ends the output after what is gathered.
func (l *link) closeWrite() {
	if l.endsOutput() || l.closed() {
		return
	}
	l.output = outputEnding
	l.touch()
}

// close ends the connection after what is gathered. No more methods of the session are called.
func (l *link) close() {
	if !l.open() {
		return
	}
	l.stage = linkClosing
	if l.outputTime == 0 {
		l.outputTime = closeTime
	}
	l.deadline(&l.outputBy, l.outputTime)
	l.inputBy = clock.Never
	l.touch()
}

// abort ends the connection at once.
func (l *link) abort() {
	l.mode = closeReset
	l.finish()
}

// finish gives the connection back.
func (l *link) finish() {
	if l.closed() {
		return
	}
	l.stage = linkClosed
	if l.conn != nil {
		switch {
		case l.mode == closeReset:
			l.conn.Abort()
		case l.mode == closeLinger && !l.ended():
			l.conn.Linger()
		default:
			l.conn.Close()
		}
	}
	if l.engine != nil {
		l.engine.Close()
	}
	l.w.freeTimer(l.timer)
	if l.onClosed != nil {
		l.onClosed(l)
	}
	l.w.putBuffer(&l.in)
	l.w.putBuffer(&l.raw)
	l.w.putBuffer(&l.out)
	l.w.putBuffer(&l.sealed)
}

// fail ends the connection by an error, and reports it to the session unless that has closed the link itself.
func (l *link) fail(err error) {
	if l.closed() {
		return
	}
	closing := l.stage == linkClosing     // by the session
	if l.engine != nil && l.conn != nil { // an alert says why
		if p := l.engine.Pending(); len(p) > 0 && !l.blocked && l.unsent() == 0 {
			_, _ = l.conn.Write(p)
		}
	}
	l.finish()
	if !closing {
		l.session.failed(err)
	}
}

// deadline sets inputBy or outputBy to a time from now.
func (l *link) deadline(which *clock.Time, d time.Duration) {
	if d <= 0 {
		*which = clock.Never
		return
	}
	if *which = l.w.now.Add(d); *which < l.armed {
		l.armed = *which
		l.w.wheel.Arm(l.timer, l.armed)
	}
}

// fired is called by the worker at the time that the timer was armed for, or later.
func (l *link) fired() {
	l.armed = clock.Never
	switch now := l.w.now; {
	case l.outputBy <= now && l.stage == linkClosing:
		l.abort()
	case l.outputBy <= now:
		l.outputBy = clock.Never
		l.session.expired(true)
	case l.inputBy <= now:
		l.inputBy = clock.Never
		l.session.expired(false)
	}
	if by := min(l.inputBy, l.outputBy); by != clock.Never && !l.closed() && by < l.armed {
		l.armed = by
		l.w.wheel.Arm(l.timer, by)
	}
}
