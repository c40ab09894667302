package socket

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
)

// Shutdown ends the stack without loss. It closes the listeners, lets blocked writes finish, sends a FIN behind what
// was written on every connection, and waits until the peers have acknowledged all of it, also on connections
// that the program has closed before. Then it is Close. If ctx ends first, the connections that are left are reset,
// and the error is that of ctx.
//
// New dials and listeners fail with net.ErrClosed, and so do dials that have not ended. Reads work until
// the end. A write that begins after the FIN fails with EPIPE, so a program shuts its servers down first
// (http.Server.Shutdown). UDP sockets are closed at the end.
func (s *Stack) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	var listeners []*Listener
	for c := range s.sockets {
		if l, ok := c.(*Listener); ok {
			listeners = append(listeners, l)
		}
	}
	s.mu.Unlock()
	// Not under mu: Close of a socket calls unregister, which takes it.
	for _, l := range listeners {
		_ = l.Close() // the program may have closed it meanwhile
	}
	err := s.drain(ctx)
	return errors.Join(err, s.Close())
}

// Between two looks at all connections, as in http.Server.Shutdown: a FIN is acknowledged within a round trip, and a
// look at a million connections takes long.
const (
	firstLook = time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// peerFINTime is the time that Shutdown waits for the FIN of peers that have acknowledged all. A peer that only waits for
// the end answers at once, and is spared a reset; one that goes on sending has no claim to be waited for.
const peerFINTime = 500 * time.Millisecond

// drain waits until the peers have acknowledged all data and the FIN of every connection.
func (s *Stack) drain(ctx context.Context) error {
	var acknowledged time.Time // since when all is
	look := time.NewTimer(0)
	defer look.Stop()
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done: // the loops have ended; never if nil
			return nil
		case <-look.C:
		}
		unacked, open := s.finishConns()
		switch {
		case unacked > 0:
			acknowledged = time.Time{}
		case open == 0:
			return nil
		case acknowledged.IsZero():
			acknowledged = time.Now()
		case time.Since(acknowledged) > peerFINTime:
			return nil
		}
		look.Reset(wait)
	}
}

// finishConns sends a FIN on the connections whose writes have finished. It returns how many connections have
// something that is not acknowledged, and how many wait for the peer's FIN only.
func (s *Stack) finishConns() (unacked, open int) {
	_ = s.group.Each(func(now clock.Time, h *host.Host) error {
		for _, c := range connsOf(h) {
			switch {
			case c.flags&connecting != 0:
				c.abort(now)
			case c.wq.head == nil:
				_ = c.closeWrite(now) // it is open
			}
		}
		h.TCP.Each(func(t *tcp.Conn) {
			c, _ := t.Owner().(*TCPConn)
			switch {
			case t.Unacked() > 0 || c != nil && c.wq.head != nil:
				unacked++
			case c != nil && t.State() == tcp.StateFinWait2:
				open++
			}
		})
		return nil
	})
	return unacked, open
}

// connsOf returns the connections of a loop that the program has not closed.
func connsOf(h *host.Host) (all []*TCPConn) {
	h.TCP.Each(func(t *tcp.Conn) {
		if c, ok := t.Owner().(*TCPConn); ok {
			all = append(all, c)
		}
	})
	return all
}

// Close closes all sockets at once. All connections are reset, also those that the program has closed before
// and whose data the peer has not acknowledged: Shutdown delivers that. Blocked calls return net.ErrClosed. It
// then ends the loops that New started, and returns the error that ended them before. Last it calls
// AttachConfig.Release. It may be called twice.
func (s *Stack) Close() error {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		if s.own != nil {
			<-s.done
		}
		return nil
	}
	s.closed, s.ended = true, true
	open := s.sockets
	s.sockets = nil
	s.mu.Unlock()
	for c := range open {
		_ = c.Close() // it was open
	}
	s.resetAll()
	var err error
	if s.own != nil {
		s.own.stop()
		<-s.done
		err = errors.Join(s.own.err, stack.CloseAll(s.own.loops...))
	}
	if s.release != nil {
		err = errors.Join(err, s.release())
	}
	return err
}

// resetAll resets all connections, and gives the RSTs time to leave.
func (s *Stack) resetAll() {
	_ = s.group.Each(func(now clock.Time, h *host.Host) error {
		for _, c := range connsOf(h) {
			c.abort(now)
		}
		h.TCP.ResetAll()
		return nil
	})
	for end := time.Now().Add(resetTime); !s.sentAll() && time.Now().Before(end); {
		select {
		case <-s.done:
			return
		case <-time.After(firstLook):
		}
	}
}

// resetTime bounds how long Close waits for a device that takes no packets.
const resetTime = 250 * time.Millisecond

// sentAll reports whether no connection has anything to send.
func (s *Stack) sentAll() bool {
	idle := true
	_ = s.group.Each(func(_ clock.Time, h *host.Host) error {
		idle = idle && h.TCP.Idle()
		return nil
	})
	return idle
}
