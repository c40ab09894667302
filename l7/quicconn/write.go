package quicconn

import (
	"errors"
	"os"
	"time"

	"github.com/millrace/millrace/quic"
)

const (
	// MaxHeld bounds what a stream holds that QUIC has not taken, in bytes: see Stream.Room.
	MaxHeld = 64 << 10
	// MaxConnHeld is the amount that a connection holds in all before each of its streams may hold no more than leastHeld.
	MaxConnHeld = 1 << 20
	leastHeld   = 16 << 10
	// maxDirect is the amount written to QUIC without a goroutine. It queues that whatever its congestion window is.
	maxDirect = 16 << 10
)

// Room returns how many bytes may be written. Once it was 0, Handler.Writable is called when it is more.
func (s *Stream) Room() int {
	most := MaxHeld
	if s.conn.held.Load() >= MaxConnHeld {
		most = leastHeld
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.writing {
		return most
	}
	room := most - s.held.size()
	s.starved = room <= 0
	return max(0, room)
}

// Write sends p, in a copy, and the end of the stream after it if fin. It takes all of it, whatever Room is. After the peer
// has stopped the stream, or the connection has ended, it is dropped.
func (s *Stream) Write(p []byte, fin bool) {
	if s.closed || s.reset {
		return
	}
	if s.closed = fin; fin {
		s.unwatch() // a write that fails says the same
	}
	if !s.tryDirect(p) {
		s.hold(p, fin)
		return
	}
	if fin {
		_ = s.out.Close()
	}
}

// WriteFirst sends the first bytes of a stream, by which the peer knows its kind. They arrive also if the stream is reset, where both ends
// of the connection have quic.Config.ResetAt.
func (s *Stream) WriteFirst(p []byte) {
	if s.tryDirect(p) {
		s.out.SetReliableBoundary()
		return
	}
	s.mu.Lock()
	s.bound = true
	s.mu.Unlock()
	s.hold(p, false)
}

// tryDirect gives p to QUIC, if that is little and nothing waits before it.
func (s *Stream) tryDirect(p []byte) bool {
	s.mu.Lock()
	busy := s.writing
	s.mu.Unlock()
	if busy || s.direct+len(p) > maxDirect {
		return false
	}
	if len(p) == 0 {
		return true
	}
	err := s.out.TryWrite(p)
	switch {
	case err == nil:
		s.direct += len(p)
	case errors.Is(err, quic.ErrWouldBlock):
		return false
	default:
		s.stopped(err)
	}
	return true
}

// stopped reports that nothing more can be written.
func (s *Stream) stopped(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stoppedLocked(err)
}

func (s *Stream) stoppedLocked(err error) {
	if !s.failed {
		// QUIC keeps a stream that the peer has stopped until its owner has learned of it, and lets the peer open no other in its place.
		s.out.CancelWrite(0)
		s.failed, s.stopErr = true, err
		s.notifyLocked(stopped)
	}
}

// unwatch ends Watch.
func (s *Stream) unwatch() {
	if s.unstop != nil {
		s.unstop()
		s.unstop = nil
	}
}

// hold leaves p to a goroutine, which may wait.
func (s *Stream) hold(p []byte, fin bool) {
	s.direct = 0 // the goroutine ends when QUIC's queue is empty
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed {
		return
	}
	s.held = s.held.add(p)
	s.conn.held.Add(int64(len(p)))
	s.end = fin
	if !s.writing {
		s.writing = true
		go s.writeHeld()
	}
}

// writeHeld writes until there is nothing left.
func (s *Stream) writeHeld() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.held != nil {
		c := s.held
		s.held = nil
		s.wakeLocked()
		s.mu.Unlock()
		err := s.writeAll(c.b)
		s.conn.held.Add(-int64(len(c.b)))
		c.free()
		s.mu.Lock()
		if s.bound && err == nil {
			s.bound = false
			s.out.SetReliableBoundary()
		}
		if err != nil {
			s.stoppedLocked(err)
			s.conn.held.Add(-int64(s.held.size()))
			s.held.free()
			s.held = nil
		}
	}
	s.writing = false
	s.wakeLocked()
	if s.end && !s.failed {
		_ = s.out.Close()
	}
}

// writeAll writes b, and waits for QUIC to take it. The time-out begins again with whatever is taken: QUIC says how much only at a
// deadline, so that there are several within it.
func (s *Stream) writeAll(b []byte) error {
	const steps = 4
	for idle := 0; ; {
		if t := s.conn.timeout.Load(); t > 0 {
			_ = s.out.SetWriteDeadline(time.Now().Add(time.Duration(t) / steps))
		}
		n, err := s.out.Write(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if idle++; n > 0 {
			idle = 0
		}
		if idle == steps {
			if s.conn.counted {
				s.conn.hub.timeouts.Add(1)
			}
			s.out.CancelWrite(s.conn.resetCode.Load())
			return ErrWriteTimeout
		}
		b = b[n:]
	}
}

// wakeLocked reports that there is room, if the loop waits for it.
func (s *Stream) wakeLocked() {
	if s.starved {
		s.starved = false
		s.notifyLocked(writable)
	}
}

// Reset ends the sending with a code: what was written may be lost.
func (s *Stream) Reset(code uint64) {
	s.reset = true
	s.unwatch()
	if s.out != nil {
		s.out.CancelWrite(code)
	}
}

// Watch has Handler.Stopped called if the peer stops the stream before it ends here.
func (s *Stream) Watch() {
	if s.unstop == nil && !s.closed && !s.reset {
		s.unstop = s.out.AfterEnd(s.stopped)
	}
}
