package script

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// file is what a descriptor stands for: a socket as programs know it, over the calls of a Mux.
type file struct {
	r               *run
	opts            tcp.Options
	port            uint16
	listener        *tcp.Listener
	conn            *tcp.Conn
	seen            tcp.Events
	nonblock        bool
	deferred        bool // the SYN waits for the first write (TCP_FASTOPEN_CONNECT)
	linger          bool // close resets
	accepted        bool // by accept
	shut            bool // for writing
	shutRead        bool
	errReported     bool // the connection's error was reported
	connectReported bool // connect has reported its success
	deferAccept     time.Duration
	wrote           uint32
	got             uint32 // sequence number of the next byte to read, from the peer's SYN
}

func (r *run) newFile() *file {
	f := &file{r: r, opts: r.defaults, wrote: 1, got: 1}
	f.opts.UrgentOutOfBand = true // as programs expect unless they set SO_OOBINLINE
	return f
}

// Ready implements tcp.Owner.
func (f *file) Ready(ev tcp.Events) { f.seen |= ev }

// outcome is what a call returns.
type outcome struct {
	n     int64
	errno string
}

func fail(errno string) outcome { return outcome{-1, errno} }

// blocked is a call that has not returned yet.
type blocked struct {
	event *Event
	call  *Call
	end   clock.Time // when it should
	try   attempt
}

// attempt does a call if that is possible now, and reports whether it was.
type attempt func() (outcome, bool)

// begin makes a call. base is what its times count from.
func (r *run) begin(e *Event, c *Call, try attempt, base clock.Time) error {
	b := &blocked{event: e, call: c, end: base.Add(e.When.End), try: try}
	o, done := try()
	if !done && e.When.Blocks {
		r.pending = append(r.pending, b)
		return nil
	}
	if !done {
		return fmt.Errorf("%s blocks", c.Name)
	}
	if e.When.Blocks && b.end > r.now.Add(r.tolerance()) {
		return fmt.Errorf("%s does not block", c.Name)
	}
	r.wake = r.now
	return c.check(o)
}

// check compares what a call returned with what the script says.
func (c *Call) check(o outcome) error {
	if c.Any || c.Result == o.n && c.Result < 0 && c.Errno == "" || c.Result == o.n && (c.Errno == o.errno || c.Errno == "" && o.n >= 0) {
		return nil
	}
	return fmt.Errorf("%s returns %d %s, not %d %s", c.Name, o.n, o.errno, c.Result, c.Errno)
}

// retry tries what blocks again, and reports whether something returned.
func (r *run) retry() (again bool, err error) {
	for _, b := range append([]*blocked(nil), r.pending...) {
		o, done := b.try()
		late := r.now > b.end.Add(r.tolerance())
		switch {
		case !done && late:
			return false, r.wrong(b.event, "%s still blocks", b.call.Name)
		case !done:
			continue
		case late || r.now < b.end.Add(-r.tolerance()):
			return false, r.wrong(b.event, "%s returns at %s, not at %s", b.call.Name, seconds(r.now), seconds(b.end))
		}
		r.drop(b)
		again = true
		if err := b.call.check(o); err != nil {
			return false, r.wrong(b.event, "%s", err)
		}
	}
	return again, nil
}

// await lets time pass until a call has returned.
func (r *run) await(b *blocked) error {
	if err := r.until(b.end.Add(r.tolerance() + 1)); err != nil {
		return err
	}
	for _, p := range r.pending {
		if p == b {
			return fmt.Errorf("%s still blocks", b.call.Name)
		}
	}
	return nil
}

// listen begins to listen.
func (f *file) listen(backlog int) outcome {
	f.opts.FastOpen = f.opts.FastOpen || f.r.listenFastOpen
	if f.listener != nil { // a second call changes the backlog
		f.listener.SetBacklog(backlog)
		return outcome{}
	}
	opts := f.opts
	l, err := f.r.mux.Listen(wire.Addr{}, f.port, max(backlog, 1), &opts, f)
	if err != nil {
		return fail(errno(err))
	}
	l.SetDeferAccept(f.deferAccept)
	f.listener = l
	if f.r.upstream {
		f.r.localPort = f.port
		f.r.forget()
	}
	return outcome{}
}

// accept takes a connection from the listener.
func (f *file) accept(name int64, flags int64) attempt {
	return func() (outcome, bool) {
		c := f.listener.Accept()
		if c == nil {
			return fail("EAGAIN"), f.nonblock
		}
		g := f.r.newFile()
		g.opts, g.conn, g.nonblock, g.accepted, g.connectReported = f.opts, c, flags&nonBlocking != 0, true, true
		c.SetOwner(g)
		f.r.files[name] = g
		f.r.last = g
		return outcome{n: name}, true
	}
}

// dial begins to connect; "" where that worked.
func (f *file) dial() string {
	t := wire.Tuple{Local: f.r.local, Remote: f.r.remote, LocalPort: f.port, RemotePort: listenPort}
	c, err := f.r.mux.Connect(f.r.now, t, &f.opts, f)
	if err != nil {
		return errno(err)
	}
	f.r.forget()
	f.conn, f.r.last = c, f
	f.r.wake = f.r.now
	return ""
}

// connect is connect(2): a second call of it asks how the first went.
func (f *file) connect() attempt {
	fresh := f.conn == nil
	return func() (outcome, bool) {
		if f.conn == nil {
			if e := f.dial(); e != "" {
				return fail(e), true
			}
			if f.deferred && f.conn.HoldSYN(f.r.now) {
				f.connectReported = true
				return outcome{}, true
			}
			if f.nonblock {
				return fail("EINPROGRESS"), true
			}
			return outcome{}, false
		}
		switch {
		case f.connectReported && !fresh:
			return fail("EISCONN"), true
		case f.seen&tcp.Connected != 0 && f.conn.Err() == nil:
			f.connectReported = true
			return outcome{}, true
		case f.conn.Err() != nil:
			f.errReported = true
			return fail(errno(f.conn.Err())), true
		}
		return fail("EALREADY"), f.nonblock
	}
}

// connError reports the connection's error, once; after that it is as if both ends had closed.
func (f *file) connError() (string, bool) {
	err := f.conn.Err()
	if err == nil {
		return "", false
	}
	if f.errReported {
		return "", true
	}
	f.errReported = true
	return errno(err), true
}

// read is read(2) of at most n bytes.
func (f *file) read(n int, flags int64) attempt {
	return func() (outcome, bool) {
		if f.conn == nil {
			return fail("ENOTCONN"), true
		}
		if flags&msgOOB != 0 {
			return f.takeUrgent(flags), true
		}
		if f.conn.Readable() > 0 {
			return f.take(n, flags)
		}
		if e, bad := f.connError(); bad {
			if e != "" {
				return fail(e), true
			}
			return outcome{}, true
		}
		if f.conn.Finished() || f.shutRead {
			return outcome{}, true
		}
		return fail("EAGAIN"), f.nonblock || flags&msgDontWait != 0
	}
}

// takeUrgent is recv(2) with MSG_OOB.
func (f *file) takeUrgent(flags int64) outcome {
	at, _ := f.conn.ToMark()
	b, err := f.conn.ReadUrgent(flags&msgPeek != 0)
	if err != nil {
		return fail(errno(err))
	}
	if b != pattern(f.got+uint32(at)) {
		return fail("EWRONG (the urgent byte is not what arrived)")
	}
	return outcome{n: 1}
}

// atMark reports whether the next read leaves out an urgent byte.
func (f *file) atMark() bool {
	return f.conn != nil && f.opts.UrgentOutOfBand && f.conn.AtMark()
}

// take reads bytes that are there, and verifies them.
func (f *file) take(n int, flags int64) (outcome, bool) {
	b := make([]byte, min(n, f.conn.Readable()))
	if f.atMark() && flags&msgPeek == 0 {
		f.got++ // the byte is not in what follows
	}
	if flags&msgPeek != 0 {
		k := 0
		for _, part := range f.conn.Peek() {
			k += copy(b[k:], part)
		}
		b = b[:k]
	} else {
		b = b[:f.conn.Read(f.r.now, b)]
	}
	if i := mismatch(b, f.got); i >= 0 {
		return fail(fmt.Sprintf("EWRONG (byte %d is not what arrived)", i)), true
	}
	if flags&msgPeek == 0 {
		f.got += uint32(len(b))
	}
	return outcome{n: int64(len(b))}, true
}

// write is write(2) of n bytes.
func (f *file) write(n int, flags int64) attempt {
	done := 0
	return func() (outcome, bool) {
		if f.conn == nil {
			return fail("ENOTCONN"), true
		}
		if e, bad := f.connError(); bad || f.shut {
			if e == "" {
				e = "EPIPE"
			}
			return fail(e), true
		}
		if done < n {
			done += f.put(n-done, flags)
		}
		if done == n && (f.nonblock || f.conn.State() != tcp.StateSynSent) {
			return outcome{n: int64(n)}, true
		}
		if !f.nonblock && flags&msgDontWait == 0 {
			return outcome{}, false
		}
		if done == 0 {
			return fail("EAGAIN"), true
		}
		return outcome{n: int64(done)}, true
	}
}

// put writes as much of n bytes as there is room for.
func (f *file) put(n int, flags int64) int {
	b := make([]byte, n)
	fill(b, f.wrote)
	var k int
	switch {
	case flags&msgOOB != 0:
		k = f.conn.WriteUrgent(f.r.now, b)
	case flags&msgMore != 0:
		k = f.conn.WriteMore(f.r.now, b)
	default:
		k = f.conn.Write(f.r.now, b)
	}
	if flags&msgEOR != 0 && k == n {
		f.conn.EndRecord()
	}
	f.wrote += uint32(k)
	f.r.wake = f.r.now
	return k
}

// close is close(2).
func (f *file) close() outcome {
	now := f.r.now
	switch {
	case f.listener != nil:
		f.listener.Close(now)
	case f.conn != nil && f.linger:
		f.conn.Abort(now)
	case f.conn != nil:
		f.conn.Close(now)
	}
	f.conn, f.listener = nil, nil
	return outcome{}
}

// shutdown is shutdown(2).
func (f *file) shutdown(how int64) outcome {
	if f.conn == nil {
		return fail("ENOTCONN")
	}
	if how != 1 {
		f.shutRead = true
		f.conn.CloseRead(f.r.now)
	}
	if how != 0 {
		f.shut = true
		f.conn.CloseWrite(f.r.now)
	}
	return outcome{}
}

// events are what poll(2) says.
func (f *file) events() (ev int64) {
	if f.listener != nil {
		if f.seen&tcp.Acceptable != 0 {
			ev |= pollIn
		}
		return ev
	}
	c := f.conn
	if c == nil {
		return pollOut | pollHup
	}
	if c.Readable() > 0 || c.Finished() {
		ev |= pollIn
	}
	if c.PeerClosed() {
		ev |= pollRdHup | pollIn
	}
	if c.State() == tcp.StateClosed || f.shut && c.PeerClosed() {
		ev |= pollHup
	}
	if c.Err() != nil && !f.errReported {
		ev |= pollErr
	}
	if c.UrgentReady() {
		ev |= pollPri
	}
	if c.State() >= tcp.StateEstablished && c.WriteReady() || f.shut || c.State() == tcp.StateClosed {
		ev |= pollOut
	}
	return ev
}
