package http3

import (
	"context"
	"errors"
)

// errCredit ends a session whose peer does what its credit does not permit (draft 5.3, 5.4).
var errCredit = error(&StreamError{Code: WTFlowControlError, Text: "the peer exceeds the limits of the session"})

// credit calls f with the flow control of the session, and sends the capsules that are due then.
func (s *Session) credit(f func(*SessionFlow) bool) bool {
	s.mu.Lock()
	ok := f(&s.flow)
	start := s.flow.due != flowDue{} && !s.flushing
	s.flushing = s.flushing || start
	s.mu.Unlock()
	if start {
		go s.flush() // the peer's flow control must not hold up a Read
	}
	return ok
}

// flush sends capsules until none is due.
func (s *Session) flush() {
	for {
		s.mu.Lock()
		b := s.flow.AppendDue(nil)
		if len(b) == 0 || s.streams == nil {
			s.flushing = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		_ = s.send(b) // an error is the end of the session
	}
}

// send sends capsules, whole.
func (s *Session) send(b []byte) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	_, err := s.tunnel.Write(b)
	return err
}

// await calls f until it has credit, the context of a call or the session ends.
func (s *Session) await(ctx context.Context, f func(*SessionFlow) bool) error {
	for {
		var changed <-chan struct{}
		if s.credit(func(fl *SessionFlow) bool {
			changed = s.changed
			return f(fl)
		}) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// flowCapsule handles a capsule of flow control. It reports whether the session ends.
func (s *Session) flowCapsule(kind uint64, value []byte) (last bool) {
	v, ok := FlowCapsule(value)
	if !ok {
		s.end(&StreamError{Code: MessageError, Text: "a malformed capsule of flow control"})
		return true
	}
	ok = s.credit(func(f *SessionFlow) bool {
		close(s.changed)
		s.changed = make(chan struct{})
		return f.Capsule(kind, v)
	})
	if !ok {
		s.end(errCredit)
	}
	return !ok
}

// received counts bytes that the application has read.
func (s *Session) received(n int) error {
	if n == 0 || s.credit(func(f *SessionFlow) bool { return f.Receive(n) }) {
		return nil
	}
	s.end(errCredit)
	return errCredit
}

// lost takes notice that the rest of a stream will not be read.
func (s *Session) lost() {
	s.credit(func(f *SessionFlow) bool {
		f.WasReset()
		return true
	})
}

// reserve waits for credit for at least one of n bytes, and returns for how many there is some.
func (s *Session) reserve(ctx context.Context, n int) (k int, err error) {
	if n == 0 {
		return 0, nil
	}
	err = s.await(ctx, func(f *SessionFlow) bool {
		k = f.Reserve(n)
		return k > 0
	})
	return k, err
}

// kindOf returns the kind of a stream.
func kindOf(uni bool) int {
	if uni {
		return Unidirectional
	}
	return Bidirectional
}

// isReset reports whether a read failed because the peer reset the stream.
func isReset(err error) bool {
	var se *StreamError
	var own *SessionError
	return errors.As(err, &se) && se.Remote || errors.As(err, &own) && own.Remote
}
