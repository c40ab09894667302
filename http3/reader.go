package http3

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/millrace/millrace/quic"
)

// receiver is the receiving side of a stream: *quic.Stream or *quic.ReceiveStream.
type receiver interface {
	Read(b []byte) (int, error)
	CancelRead(code uint64)
}

// reader reads one stream through the machine. One goroutine at a time uses it.
type reader struct {
	c    *conn
	q    receiver
	both *quic.Stream // nil for a unidirectional stream
	s    *Stream
	buf  *[]byte // what was read; the machine has consumed the first n bytes
	n    int
	rest []byte // content in buf that has not been read
	fin  bool
	err  error
	wake chan struct{} // for the event Unblocked
}

func (c *conn) newReader(q receiver, id uint64) (*reader, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.m.Open(id)
	if err != nil {
		return nil, err
	}
	r := &reader{c: c, q: q, s: s}
	r.both, _ = q.(*quic.Stream)
	s.User = r
	return r, nil
}

// release returns the stream to the machine.
func (r *reader) release() {
	r.c.mu.Lock()
	if r.s != nil {
		r.c.m.Release(r.s)
		r.s = nil
	}
	r.c.mu.Unlock()
	if r.buf != nil {
		putBuffer(r.buf)
		r.buf = nil
	}
	if r.err == nil {
		r.err = errReleased
	}
}

var errReleased = errors.New("http3: read after the end of the handler")

// next returns the next event. After an error, and after End, it returns the same again.
func (r *reader) next() (Event, error) {
	for r.err == nil {
		ev, err := r.input()
		if err != nil {
			return Event{}, r.fail(err)
		}
		if ev.Kind == End {
			r.err = io.EOF
			return ev, nil
		}
		if ev.Kind != NeedInput {
			return ev, nil
		}
		if r.fin && r.n == r.size() && r.wake == nil {
			r.err = io.EOF
			return Event{Kind: End}, nil
		}
		if err := r.fill(); err != nil {
			return Event{}, err
		}
	}
	if r.err == io.EOF { //nolint:errorlint // set above
		return Event{Kind: End}, nil
	}
	return Event{}, r.err
}

// tryEnd returns the event End if the stream has ended and all of it was consumed. It does not wait.
func (r *reader) tryEnd() (Event, error) {
	if !r.fin || len(r.rest) > 0 || r.n < r.size() {
		return Event{}, nil
	}
	return r.next()
}

func (r *reader) size() int {
	if r.buf == nil {
		return 0
	}
	return len(*r.buf)
}

// input passes what is there to the machine. A stream that turns out to be blocked gets r.wake.
func (r *reader) input() (Event, error) {
	var in []byte
	if r.buf != nil {
		in = (*r.buf)[r.n:]
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	ev, n, err := r.c.m.Input(r.s, in, r.fin)
	r.n += n
	if r.wake = nil; r.s.Blocked() {
		r.wake = make(chan struct{}, 1)
	}
	return ev, err
}

// fill reads more, or waits until the stream is not blocked.
func (r *reader) fill() error {
	if r.wake != nil {
		select {
		case <-r.wake:
			return nil
		case <-r.c.ctx.Done():
			return r.fail(converted(context.Cause(r.c.ctx)))
		}
	}
	if r.buf == nil {
		r.buf = getBuffer()
	}
	b := (*r.buf)[:cap(*r.buf)]
	n, err := r.q.Read(b)
	*r.buf, r.n = b[:n], 0
	return r.readError(err)
}

// readError handles the error of a read.
func (r *reader) readError(err error) error {
	switch {
	case err == nil:
		return nil
	case err == io.EOF: //nolint:errorlint // package quic returns it as it is
		r.fin = true
		return nil
	}
	return r.fail(converted(err))
}

// fail ends the reading: the peer learns of local errors.
func (r *reader) fail(err error) error {
	var se *StreamError
	if errors.As(err, &se) {
		if !se.Remote {
			r.abort(se.Code)
		}
		r.c.mu.Lock()
		if more := r.c.m.Cancelled(r.s, se.Remote); more != nil {
			err = more
		}
		r.c.mu.Unlock()
	}
	if isTimeout(err) {
		return err // a later read may succeed
	}
	r.err = err
	r.c.flush()
	return r.c.closed(err)
}

// isTimeout reports whether a deadline of the stream has passed.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// abort resets the stream in both directions.
func (r *reader) abort(code ErrorCode) {
	r.q.CancelRead(uint64(code))
	if r.both != nil {
		r.both.CancelWrite(uint64(code))
	}
}

// read reads content into p. Within a DATA frame it goes past the machine and its lock. other handles the
// events besides Data and End.
func (r *reader) read(p []byte, other func(Event)) (int, error) {
	if r.err != nil && len(r.rest) == 0 {
		return 0, r.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if len(r.rest) > 0 {
			n := copy(p, r.rest)
			r.rest = r.rest[n:]
			return n, nil
		}
		if left := r.s.Needed(); left > 0 && r.n == r.size() && !r.fin {
			return r.direct(p[:min(uint64(len(p)), left)])
		}
		ev, err := r.next()
		switch {
		case err != nil:
			return 0, err
		case ev.Kind == End:
			return 0, io.EOF
		case ev.Kind == Data:
			r.rest = ev.Payload
			continue
		}
		if other != nil {
			other(ev)
		}
	}
}

// direct reads content from the stream into p.
func (r *reader) direct(p []byte) (int, error) {
	n, err := r.q.Read(p)
	r.s.Took(n)
	if err = r.readError(err); n > 0 {
		return n, nil // an error comes again
	}
	return n, err
}
