package link

import (
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/tls"
)

// This file has what a link does where it has TLS. Ciphertext is decrypted in the runner's buffer, where it was read, and
// encrypted into another one: a link has buffers only for what its session, or the connection, does not take at once.

// decrypt passes ciphertext through the engine. It borrows p.
func (l *Link) decrypt(p []byte) {
	if l.Stage == Handshaking {
		l.Opening.Arrived()
	}
	if l.Watch != nil {
		l.Watch(p)
	}
	for !l.Closed() {
		if l.Demand == Paused || len(l.In) > 0 { // the session waits: the rest stays as it is
			if len(p) > 0 {
				l.Raw = append(l.Runner.GetBuffer(), p...)
			}
			return
		}
		ev, n, err := l.Engine.Next(p)
		p = p[n:]
		if len(l.Engine.Pending()) > 0 {
			l.Touch()
		}
		if err != nil {
			l.Fail(err)
			return
		}
		switch ev.Kind {
		case tls.NeedInput:
			return
		case tls.AwaitingSignature:
			l.Pause() // until Signed. A peer that sends on waits as for a session that takes nothing
		case tls.HandshakeComplete:
			l.Stage = Open
			l.Opening.Established()
		case tls.Data:
			l.deliver(ev.Data)
		case tls.PeerClosed:
			l.Input = InputEnded
			return
		}
	}
}

// Signed is called by the loop's batch of signatures when that of the handshake is made: the handshake goes on.
func (l *Link) Signed() { l.Proceed() }

// Proceed goes on with a handshake that was paused, with the bytes that have come meanwhile.
func (l *Link) Proceed() {
	if l.Closed() {
		return
	}
	raw := l.Raw
	l.Raw = nil
	l.Demand = Wanted
	l.decrypt(raw)
	l.Runner.PutBuffer(&raw)
	l.Runner.Run.Add(Read, l, &l.tasks)
}

// flushTLS encrypts out, as far as the connection takes it, and sends it.
func (l *Link) flushTLS() error {
	for {
		if l.sent < len(l.Sealed) {
			n, err := l.send(l.Sealed[l.sent:])
			if err != nil && err != transport.ErrAgain {
				return err
			}
			if l.sent += n; l.sent < len(l.Sealed) {
				l.Blocked = true
				return nil
			}
		}
		l.sent = 0
		l.Runner.PutBuffer(&l.Sealed)
		if len(l.Out) == 0 && l.closeNotify() {
			_ = l.Engine.CloseWrite() // it fails only where the connection has failed
		}
		if len(l.Out) == 0 && len(l.Engine.Pending()) == 0 {
			l.Runner.PutBuffer(&l.Out)
			return nil
		}
		if err := l.seal(); err != nil || l.Blocked {
			return err
		}
	}
}

// closeNotify reports whether the output has to end with close_notify, once. A connection that is reset has none: what was sent
// may be a part of a response that only the end of the connection delimits (RFC 9112 9.8).
func (l *Link) closeNotify() bool {
	if l.Mode == Reset || l.output == OutputOpen && l.Stage != Closing || l.output >= OutputNotified || l.Stage == Handshaking {
		return false
	}
	l.output = OutputNotified
	return true
}

// seal encrypts a part of out into sealed.
func (l *Link) seal() error {
	if l.Stage == Handshaking {
		p := l.Engine.Pending()
		l.Sealed = append(l.Runner.GetBuffer(), p...)
		l.Engine.Advance(len(p))
		return nil
	}
	sealed, n, err := l.Engine.Seal(l.Runner.sealed[:0], l.Out)
	if err != nil {
		return err
	}
	l.Out = l.Out[:copy(l.Out, l.Out[n:])]
	// Most of it leaves at once: only the rest is kept. At most one buffer is sealed ahead of the
	// connection: Out stays plain, and bounded by High, while the peer is slow.
	m, err := l.send(sealed)
	if err != nil && err != transport.ErrAgain {
		return err
	}
	if m < len(sealed) {
		l.Sealed, l.Blocked = append(l.Runner.GetBuffer(), sealed[m:]...), true
	} else if len(l.Out) > 0 {
		return l.seal()
	}
	if len(l.Out) == 0 {
		l.Runner.PutBuffer(&l.Out)
	}
	return nil
}
