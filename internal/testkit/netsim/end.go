package netsim

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp"
)

// EndConfig is the behaviour of the program at one end of a flow. The zero value sends nothing, reads everything as it
// comes, and closes when the other end has.
type EndConfig struct {
	Bytes    uint64        // to send
	Chunk    int           // bytes of a write; 0 is 64 KiB
	Pause    time.Duration // after each write
	ZeroCopy bool          // writes by WriteZeroCopy where there is room
	More     bool          // every second write announces more
	Mark     uint64        // the byte before this offset is sent as urgent, 0 for none

	ReadChunk int           // bytes of a read; 0 is all there is
	ReadPause time.Duration // after each read
	ReadDelay time.Duration // before the first
	Peek      bool          // read by Peek and Discard

	Wait    bool   // send nothing, and no FIN, before the other end's FIN was read (half close)
	Hold    bool   // never close
	AbortAt uint64 // reset when so many bytes were written; 0 is never
}

// End is the program at one end of a flow: an owner of a connection. It sends a known stream and
// verifies the one that it receives.
type End struct {
	Conn *tcp.Conn // nil before there is one, and after it was given back

	Sent, Received uint64 // bytes written and read
	Seen           tcp.Events
	Err            error // of the connection, or what was wrong with the bytes
	Ended          bool  // the connection was given back
	ConnectedAt    clock.Time
	EndedAt        clock.Time

	cfg         EndConfig
	host        *Host
	out, in     stream
	buf         []byte
	writeAt     clock.Time // not before
	readAt      clock.Time
	writes      int
	outstanding int // zero-copy writes that are not released
	shut        bool
	atTimer     clock.Time
	received    func(n int)
}

func newEnd(h *Host, cfg EndConfig, out, in stream) *End {
	if cfg.Chunk == 0 {
		cfg.Chunk = tileMore
	}
	cfg.Chunk = min(cfg.Chunk, tileMore)
	return &End{cfg: cfg, host: h, out: out, in: in, atTimer: clock.Never, readAt: h.net.now.Add(cfg.ReadDelay)}
}

// Ready implements tcp.Owner.
func (e *End) Ready(ev tcp.Events) {
	e.Seen |= ev
	if ev&tcp.Connected != 0 && e.ConnectedAt == 0 {
		e.ConnectedAt = e.host.net.now
	}
	e.act()
}

// act does all that can be done now.
func (e *End) act() {
	if e.Conn == nil || e.Ended {
		return
	}
	e.read()
	if !e.Ended {
		e.write()
	}
	if !e.Ended {
		e.leave()
	}
}

// later has the end act again at t.
func (e *End) later(t clock.Time) {
	if t >= e.atTimer {
		return
	}
	e.atTimer = t
	e.host.net.At(t, func() {
		if e.atTimer == t {
			e.atTimer = clock.Never
			e.act()
			e.host.Kick()
		}
	})
}

// read takes what has come, as fast as the program is.
func (e *End) read() {
	now := e.host.net.now
	for e.Conn.Readable() > 0 {
		if now < e.readAt {
			e.later(e.readAt)
			return
		}
		if !e.take(now) {
			return
		}
		if e.cfg.ReadPause > 0 {
			e.readAt = now.Add(e.cfg.ReadPause)
		}
	}
}

// take reads once and verifies what came.
func (e *End) take(now clock.Time) bool {
	n := e.Conn.Readable()
	if e.cfg.ReadChunk > 0 {
		n = min(n, e.cfg.ReadChunk)
	}
	if e.cfg.Peek {
		return e.peek(now, n)
	}
	n = min(n, tileMore)
	if cap(e.buf) < n {
		e.buf = make([]byte, max(n, 4096))
	}
	got := e.Conn.Read(now, e.buf[:n])
	if got != n && (got == 0 || !e.Conn.AtMark()) { // reads end before an urgent byte
		e.fail(fmt.Errorf("read %d bytes of %d that are readable", got, n))
		return false
	}
	return e.verify(e.buf[:got])
}

func (e *End) peek(now clock.Time, n int) bool {
	left := n
	for _, part := range e.Conn.Peek() {
		k := min(left, len(part))
		if !e.verify(part[:k]) {
			return false
		}
		left -= k
	}
	e.Conn.Discard(now, n-left)
	if left != 0 && (left == n || !e.Conn.AtMark()) {
		e.fail(fmt.Errorf("peek shows %d bytes of %d that are readable", n-left, n))
		return false
	}
	return true
}

func (e *End) verify(b []byte) bool {
	if i := e.in.mismatch(e.Received, b); i >= 0 {
		e.fail(fmt.Errorf("byte %d of the stream is wrong", e.Received+uint64(i)))
		return false
	}
	e.Received += uint64(len(b))
	if e.received != nil {
		e.received(len(b))
	}
	return true
}

// write gives the connection what it has room for, as fast as the program is.
func (e *End) write() {
	if e.cfg.Wait && !e.Conn.Finished() || e.Seen&tcp.Connected == 0 && e.Conn.State() == tcp.StateSynSent {
		return
	}
	now := e.host.net.now
	for e.Sent < e.cfg.Bytes {
		if now < e.writeAt {
			e.later(e.writeAt)
			return
		}
		n := e.put(now)
		if n == 0 || e.abort(now) {
			return
		}
		if e.cfg.Pause > 0 {
			e.writeAt = now.Add(e.cfg.Pause)
		}
	}
	if !e.shut && !e.cfg.Hold {
		e.shut = true
		e.Conn.CloseWrite(now)
	}
}

// put writes once and returns how many bytes were taken.
func (e *End) put(now clock.Time) int {
	n := int(min(uint64(e.cfg.Chunk), e.cfg.Bytes-e.Sent))
	mark := e.cfg.Mark > e.Sent && e.cfg.Mark <= e.Sent+uint64(n)
	if mark {
		n = int(e.cfg.Mark - e.Sent)
	}
	b := e.out.at(e.Sent, n)
	e.writes++
	switch {
	case mark && (n == 1 || e.Conn.Writable() >= n):
		n = e.Conn.WriteUrgent(now, b)
	case e.cfg.ZeroCopy && e.Conn.WriteZeroCopy(now, b, func() { e.outstanding-- }):
		e.outstanding++
	case e.cfg.More && e.writes%2 == 0 && e.Sent+uint64(n) < e.cfg.Bytes:
		n = e.Conn.WriteMore(now, b)
	case mark:
		n = e.Conn.Write(now, b[:n-1])
	default:
		n = e.Conn.Write(now, b)
	}
	e.Sent += uint64(n)
	return n
}

// abort resets the connection if it is time to.
func (e *End) abort(now clock.Time) bool {
	if e.cfg.AbortAt == 0 || e.Sent < e.cfg.AbortAt {
		return false
	}
	e.Conn.Abort(now)
	e.end(nil)
	return true
}

// leave returns the connection when there is nothing more to do.
func (e *End) leave() {
	over := e.Conn.Err() != nil || e.Seen&tcp.Closed != 0
	if !over && (e.cfg.Hold || !e.shut || !e.Conn.Finished()) || e.Conn.Readable() > 0 {
		return
	}
	err := e.Conn.Err()
	e.Conn.Close(e.host.net.now)
	e.end(err)
}

func (e *End) fail(err error) {
	e.Conn.Abort(e.host.net.now)
	e.end(err)
}

func (e *End) end(err error) {
	e.Err, e.Ended, e.EndedAt, e.Conn = err, true, e.host.net.now, nil
}

// Stop resets the connection and ends.
func (e *End) Stop() {
	if e.Conn != nil && !e.Ended {
		e.Conn.Abort(e.host.net.now)
		e.end(nil)
		e.host.Kick()
	}
}
