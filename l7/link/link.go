package link

import (
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/tls"
)

// Marks of the bytes that wait for a connection to take them. Above high its session accepts no content, and below low it does
// again. With one mark for both, each few bytes that leave would wake the sender for as few.
const (
	High = 128 << 10
	low  = 32 << 10
)

// Session is a protocol on a link.
type Session interface {
	// Input takes bytes of the peer, and returns how many. It takes fewer when it has to wait for something else; it
	// calls Link.Resume later. fin is whether the input ends with p.
	Input(p []byte, fin bool) int
	// Writable says that the link accepts content again.
	Writable()
	// Expired says that the deadline of the input, or of the output, has passed.
	Expired(output bool)
	// Failed says that the connection has ended before its input did, or by an error.
	Failed(err error)
}

// Handshake receives the report of a handshake of TLS.
type Handshake interface {
	Arrived() // something of the peer
	Established()
}

// Dialer receives the report that the transport to a backend is established.
type Dialer interface{ Connected() }

// Link is a connection with its buffers. One that has nothing to send and nothing received has none: idle connections outnumber
// busy ones by far, and their memory would decide how many a gateway holds.
//
// It belongs to the goroutine of its Runner. The order of its states is Connecting, Handshaking, Open, Closing, Closed, of which
// it may skip some and repeats none. After Closed nothing may touch Conn: its descriptor may be another connection's.
type Link struct {
	Runner  *Runner
	Conn    transport.Conn
	Engine  *tls.Engine    // nil without TLS
	Watch   func(p []byte) // gets ciphertext before the engine does, nil if nothing wants it
	Session Session

	Raw []byte // ciphertext that was received and not decrypted yet
	In  []byte // what the session has not taken yet

	Out    []byte // what the session sends, before TLS
	Sealed []byte // ciphertext that the connection has not taken yet
	sent   int    // bytes of Out, or of Sealed with TLS, that the connection has taken

	Bypass     Mover // its input goes to another connection; nil if not
	bypassFrom *Link // whose input goes to this one, and waits until it takes more
	Moves      MoveState
	Dial       Dialer      // while it is a connection to a backend that is being established
	Opening    Handshake   // of TLS
	OnClosed   func(*Link) // of a client, nil otherwise
	timer      uint32
	armed      clock.Time // when the timer fires: not after the deadlines
	InputBy    clock.Time
	outputBy   clock.Time
	OutputTime time.Duration // how long output may wait without progress
	Remote     netip.AddrPort
	failure    error  // that the next flush reports
	Written    uint64 // bytes that the connection has taken
	tasks      TaskSet
	Stage      Stage
	Mode       CloseMode
	Input      InputState
	Demand     Demand
	output     OutputState
	Blocked    bool // the connection takes no more for now
	Full       bool // the session was refused content, and waits for Session.Writable
}

// New returns a link for conn, which is nil while it is dialed.
func New(w *Runner, conn transport.Conn) *Link {
	l := &Link{Runner: w, Conn: conn, armed: clock.Never, InputBy: clock.Never, outputBy: clock.Never}
	l.timer = w.NewTimer(l)
	if conn != nil {
		l.Remote = conn.Remote()
	}
	return l
}

// Ready is called by the loop.
func (l *Link) Ready(_ transport.Conn, ev transport.Events) {
	l.Runner.Enter()
	if l.Closed() {
		return
	}
	if ev&transport.Failed != 0 {
		l.readLast()
		l.Fail(l.Conn.Err())
		return
	}
	if ev&transport.Writable != 0 {
		l.Blocked = false
		if l.Stage == Connecting {
			l.Stage = Open
			if l.Engine != nil {
				l.Stage = Handshaking
			}
			l.Dial.Connected()
		}
		l.flush()
		if from := l.bypassFrom; from != nil && !l.Closed() {
			l.bypassFrom = nil
			if from.Bypass != nil { // otherwise its exchange has ended, and another one may have paused it
				from.Resume()
			}
		}
	}
	if ev&transport.Readable != 0 && !l.Closed() {
		l.arrived()
		l.advance()
	}
}

// readLast reads what arrived before the connection failed. It may be a response: a backend that has not read all of a request
// resets the connection after it (RFC 9112 9.6).
func (l *Link) readLast() {
	if l.Dial != nil {
		return
	}
	l.arrived()
	for i := 0; i < maxLast && l.Input == InputReadable && l.Demand != Paused && !l.Closed(); i++ {
		l.advance()
	}
}

// arrived notes that there may be more to read.
func (l *Link) arrived() {
	if l.Input == InputDrained {
		l.Input = InputReadable
	}
}

// Run implements Runnable.
func (l *Link) Run(t Task) {
	if l.tasks.Clear(t); t == Flush {
		l.flush()
		return
	}
	l.advance()
}

// Resume has the loop read the link again, soon.
func (l *Link) Resume() {
	l.Demand = Recalled
	if !l.Closed() {
		l.Runner.Run.Add(Read, l, &l.tasks)
	}
}

// advance moves input to the session until there is none or the session waits. After much of it other connections get their
// time first: a sender that is as fast as the loop would keep it for ever.
func (l *Link) advance() {
	for steps := 0; !l.Closed() && l.Demand != Paused; steps++ {
		if steps == MaxSteps {
			l.Runner.Run.Add(Later, l, &l.tasks)
			return
		}
		switch {
		case l.Bypass != nil && (l.Input == InputReadable || l.Moves == Holding):
			l.move()
		case l.Demand == Recalled && len(l.In) == 0:
			l.Demand = Wanted
			l.Session.Input(nil, false)
		case len(l.In) > 0:
			l.Demand = Wanted
			n := l.Session.Input(l.In, l.Ended() && len(l.Raw) == 0)
			if l.Closed() {
				return
			}
			rest := copy(l.In, l.In[n:])
			if l.In = l.In[:rest]; rest > 0 {
				return
			}
			l.Runner.PutBuffer(&l.In)
		case len(l.Raw) > 0:
			raw := l.Raw
			l.Raw = nil
			l.decrypt(raw)
			l.Runner.PutBuffer(&raw)
		case l.Input == InputReadable:
			l.read()
		case l.Input == InputEnded:
			l.Input = InputReported
			l.endInput()
		default:
			return
		}
	}
}

// read reads once and passes on what came.
func (l *Link) read() {
	buf := l.Runner.buf
	n, err := l.Conn.Read(buf)
	switch {
	case err == transport.ErrAgain:
		l.Input = InputDrained
		return
	case err == io.EOF:
		l.Input = InputEnded
		return
	case err != nil:
		l.Fail(err)
		return
	}
	if n < len(buf) {
		l.Input = InputDrained
	}
	if l.Engine != nil {
		l.decrypt(buf[:n])
		return
	}
	l.deliver(buf[:n])
}

// deliver gives plaintext to the session, and keeps what it does not take. It borrows p.
func (l *Link) deliver(p []byte) {
	if n := l.Session.Input(p, false); n < len(p) && !l.Closed() {
		if l.In == nil {
			l.In = l.Runner.GetBuffer()
		}
		l.In = append(l.In, p[n:]...)
	}
}

// ErrCut is the failure of a TLS connection that ends without close_notify: its last message may be truncated (RFC 8446 6.1).
var ErrCut = errors.New("link: the connection ended without close_notify")

// endInput tells the session that the peer sends no more.
func (l *Link) endInput() {
	if l.Engine != nil {
		// FIN is not authenticated: without close_notify anyone on the path could have cut the message (RFC 8446 6.1).
		if err := l.Engine.InputClosed(); err != nil {
			l.Fail(ErrCut)
			return
		}
	}
	l.Session.Input(nil, true)
}

// Close ends the connection after what is gathered. No more methods of the session are called. The output deadline then ends it by
// a reset: a peer that takes nothing could hold a closing connection, and its buffers, for ever.
func (l *Link) Close() {
	if !l.Open() {
		return
	}
	l.Stage = Closing
	if l.OutputTime == 0 {
		l.OutputTime = closeTime
	}
	l.Deadline(&l.outputBy, l.OutputTime)
	l.InputBy = clock.Never
	l.Touch()
}

// Abort ends the connection at once.
func (l *Link) Abort() {
	l.Mode = Reset
	l.Finish()
}

// Finish returns the connection.
func (l *Link) Finish() {
	if l.Closed() {
		return
	}
	l.Stage = Closed
	if l.Conn != nil {
		// A close with unread input makes the kernel send RST, which may delete the last response from the peer's buffer
		// before its program reads it. Lingering reads for a while after FIN (RFC 9112 9.6).
		switch {
		case l.Mode == Reset:
			l.Conn.Abort()
		case l.Mode == Linger && !l.Ended():
			l.Conn.Linger()
		default:
			l.Conn.Close()
		}
	}
	if l.Engine != nil {
		l.Engine.Close()
	}
	l.Runner.FreeTimer(l.timer)
	if l.OnClosed != nil {
		l.OnClosed(l)
	}
	l.Runner.PutBuffer(&l.In)
	l.Runner.PutBuffer(&l.Raw)
	l.Runner.PutBuffer(&l.Out)
	l.Runner.PutBuffer(&l.Sealed)
}

// Fail ends the connection by an error, and reports it to the session unless that has closed the link itself.
func (l *Link) Fail(err error) {
	if l.Closed() {
		return
	}
	closing := l.Stage == Closing         // by the session
	if l.Engine != nil && l.Conn != nil { // an alert says why
		if p := l.Engine.Pending(); len(p) > 0 && !l.Blocked && l.Unsent() == 0 {
			_, _ = l.Conn.Write(p)
		}
	}
	l.Finish()
	if !closing {
		l.Session.Failed(err)
	}
}

// Deadline sets InputBy or outputBy to a time from now.
func (l *Link) Deadline(which *clock.Time, d time.Duration) {
	if d <= 0 {
		*which = clock.Never
		return
	}
	if *which = l.Runner.Now.Add(d); *which < l.armed {
		l.armed = *which
		l.Runner.Wheel.Arm(l.timer, l.armed)
	}
}

// Fired is called by the runner at the time that the timer was armed for, or later. Most deadlines move on before they pass, and
// moving them does not touch the timer: it fires early, finds none passed, and is armed for the next. A request then
// costs hardly any operation of the wheel.
func (l *Link) Fired() {
	l.armed = clock.Never
	switch now := l.Runner.Now; {
	case l.outputBy <= now && l.Stage == Closing:
		l.Abort()
	case l.outputBy <= now:
		l.outputBy = clock.Never
		l.Session.Expired(true)
	case l.InputBy <= now:
		l.InputBy = clock.Never
		l.Session.Expired(false)
	}
	if by := min(l.InputBy, l.outputBy); by != clock.Never && !l.Closed() && by < l.armed {
		l.armed = by
		l.Runner.Wheel.Arm(l.timer, by)
	}
}
