package proxy

import (
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/tls"
)

// This file has what a link does where it has TLS. Ciphertext is decrypted in the worker's buffer, where it was read, and
// encrypted into another one: a link has buffers only for what its session, or the connection, does not take at once.

// decrypt passes ciphertext through the engine. It borrows p.
func (l *link) decrypt(p []byte) {
	if l.stage == linkHandshaking {
		l.opening.arrived()
	}
	if l.watch != nil {
		l.watch(p)
	}
	for !l.closed() {
		if l.demand == paused || len(l.in) > 0 { // the session waits: the rest stays as it is
			if len(p) > 0 {
				l.raw = append(l.w.getBuffer(), p...)
			}
			return
		}
		ev, n, err := l.engine.Next(p)
		p = p[n:]
		if len(l.engine.Pending()) > 0 {
			l.touch()
		}
		if err != nil {
			l.fail(err)
			return
		}
		switch ev.Kind {
		case tls.NeedInput:
			return
		case tls.HandshakeComplete:
			l.stage = linkOpen
			l.opening.established()
		case tls.Data:
			l.deliver(ev.Data)
		case tls.PeerClosed:
			l.input = inputEnded
			return
		}
	}
}

// flushTLS encrypts out, as far as the connection takes it, and sends it.
func (l *link) flushTLS() error {
	for {
		if l.sent < len(l.sealed) {
			n, err := l.send(l.sealed[l.sent:])
			if err != nil && err != transport.ErrAgain {
				return err
			}
			if l.sent += n; l.sent < len(l.sealed) {
				l.blocked = true
				return nil
			}
		}
		l.sent = 0
		l.w.putBuffer(&l.sealed)
		if len(l.out) == 0 && l.closeNotify() {
			_ = l.engine.CloseWrite() // it fails only where the connection has failed
		}
		if len(l.out) == 0 && len(l.engine.Pending()) == 0 {
			l.w.putBuffer(&l.out)
			return nil
		}
		if err := l.seal(); err != nil || l.blocked {
			return err
		}
	}
}

// closeNotify reports whether the output has to end with close_notify, once. A connection that is reset has none: what was sent
// may be a part of a response that only the end of the connection delimits (RFC 9112 9.8).
func (l *link) closeNotify() bool {
	if l.mode == closeReset || l.output == outputOpen && l.stage != linkClosing || l.output >= outputNotified || l.stage == linkHandshaking {
		return false
	}
	l.output = outputNotified
	return true
}

// seal encrypts a part of out into sealed.
func (l *link) seal() error {
	if l.stage == linkHandshaking {
		p := l.engine.Pending()
		l.sealed = append(l.w.getBuffer(), p...)
		l.engine.Advance(len(p))
		return nil
	}
	sealed, n, err := l.engine.Seal(l.w.sealed[:0], l.out)
	if err != nil {
		return err
	}
	l.out = l.out[:copy(l.out, l.out[n:])]
	// Most of it leaves at once: only the rest is kept.
	m, err := l.send(sealed)
	if err != nil && err != transport.ErrAgain {
		return err
	}
	if m < len(sealed) {
		l.sealed, l.blocked = append(l.w.getBuffer(), sealed[m:]...), true
	} else if len(l.out) > 0 {
		return l.seal()
	}
	if len(l.out) == 0 {
		l.w.putBuffer(&l.out)
	}
	return nil
}
