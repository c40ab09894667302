package proxy

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/semantics"
)

// back1 is a connection to a backend with HTTP/1.1.
type back1 struct {
	l       *link
	m       *http1.Machine
	x       *exchange // in progress
	pool    *Pool
	backend *pool.Backend
	uses    int
	index   int    // among the idle ones, or -1
	before  uint64 // what its link had written when the request began
	broken  bool
	gone    bool // it is none of the backend's any more
	heard   bool // a byte of the response has come
}

// newBack1 returns the session of a connection that has been established.
func newBack1(l *link, p *Pool, b *pool.Backend) *back1 {
	s := &back1{l: l, pool: p, backend: b, index: -1, m: http1.NewMachine(http1.RoleClient, http1.Options{})}
	l.session = s
	return s
}

// begin sends the request of an exchange.
func (s *back1) begin(x *exchange) {
	s.x, s.uses, s.heard, s.before = x, s.uses+1, false, s.l.written
	s.l.inputBy = clock.Never
	x.opened(s)
}

// reused implements backStream: a connection that has brought a part of the response was not closed before the request.
func (s *back1) reused() bool { return s.uses > 1 && !s.heard }

func (s *back1) input(p []byte, fin bool) (taken int) {
	if s.x == nil { // idle: a response without a request, or the end of the connection (RFC 9112 9.5)
		s.drop()
		return len(p)
	}
	s.heard = s.heard || len(p) > 0
	for s.l.demand != paused && s.l.stage != linkClosing && s.x != nil {
		ev, n, err := s.m.Input(p[taken:], fin)
		taken += n
		if err != nil {
			s.broken = true
			if fin && len(p) == taken {
				err = errTerminated
				if s.x.phase.answered() {
					err = errIncomplete
				}
			} else {
				err = errProtocol
			}
			s.x.backFailed(err)
			return len(p)
		}
		switch ev.Kind {
		case http1.NeedInput:
			if fin && s.x != nil && !s.x.down.ended {
				s.broken = true
				s.x.backFailed(errTerminated)
			}
			return taken
		case http1.Headers:
			m := s.m.Message()
			s.x.exact = m.Body == http1.Length
			s.x.responseHead(&m.Message, m.Body == http1.NoBody && m.Status >= 200)
		case http1.Data:
			if s.x.responseData(ev.Payload); s.m.Left() >= bypassLeast && s.x != nil {
				s.x.startBypass(&s.x.down)
			}
		case http1.Trailers:
		case http1.End:
			s.x.responseEnd(s.m.Trailers())
		}
	}
	if s.x == nil && taken < len(p) && s.l.stage != linkClosing {
		s.drop() // bytes after the response: whose they are is not known
	}
	return taken
}

func (s *back1) head(m *semantics.Message, end bool) (err error) {
	s.l.out, err = s.m.AppendRequest(s.l.buffer(), m, end)
	s.l.touch()
	return err
}

func (s *back1) write(p []byte) int { return s.l.content(s.m, s.tunnel(), p) }

func (s *back1) end(trailers []semantics.Field) {
	if s.tunnel() {
		s.l.closeWrite()
		return
	}
	var err error
	if s.l.out, err = s.m.AppendEnd(s.l.buffer(), trailers); err != nil {
		s.broken = true
	}
	s.l.touch()
}

// progress says that content has arrived: the exchange bounds the time between.
func (s *back1) progress() {}

// tunnel is that of front1.
func (s *back1) tunnel() bool { return s.x != nil && s.x.phase == tunnel }

func (s *back1) pause()  { s.l.pause() }
func (s *back1) resume() { s.l.resume() }
func (s *back1) cancel() { s.broken = true }

// release makes the connection idle, if its request and response are complete.
func (s *back1) release() {
	s.broken = s.broken || s.l.bypass != nil && s.l.moves == moveHolding // the loop holds content of this response
	s.x, s.l.bypass = nil, nil
	l := s.l
	if !l.open() {
		return
	}
	if s.broken || !s.m.Idle() || !s.m.KeepAlive() || len(l.in) > 0 || l.ended() || s.pool.MaxUses > 0 && s.uses >= s.pool.MaxUses {
		s.drop()
		return
	}
	if l.demand == paused {
		l.resume()
	}
	l.w.keep(s)
}

// drop closes the connection.
func (s *back1) drop() {
	s.leave()
	if s.broken {
		s.l.abort()
		return
	}
	s.l.close()
}

// leave takes the connection from those of its backend. Input that comes while it is closed, or a reset, may end it once more.
func (s *back1) leave() {
	if s.gone {
		return
	}
	s.gone = true
	s.l.w.forget(s)
	s.l.w.connClosed(s.backend)
}

func (s *back1) writable() {
	if s.x != nil {
		s.x.backWritable()
	}
}

func (s *back1) expired(output bool) {
	if s.x == nil {
		s.drop() // idle
		return
	}
	s.broken = true
	s.x.backFailed(errReadTimeout)
}

func (s *back1) failed(err error) {
	s.leave()
	s.broken = true
	if s.x != nil {
		switch {
		case s.x.phase.answered():
			err = errIncomplete
		case s.l.written == s.before:
			err = errUnsent
		}
		s.x.backFailed(err)
	}
}
