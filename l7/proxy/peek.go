package proxy

import (
	"errors"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/tls/clienthello"
)

// clientHelloReader is the session of a connection whose ClientHello is awaited. It holds what it reads, at most
// clienthello.DefaultLimit and what one read brings, for the time-out of the handshake: a client that sends a part of a hello and
// stops holds no more than that, for no longer.
type clientHelloReader struct {
	l      *link.Link
	info   *clientInfo
	held   []byte
	peeker clienthello.Peeker
}

// newClientHelloReader waits for a hello, for the time of a handshake.
func newClientHelloReader(l *link.Link, info *clientInfo) {
	l.Session = &clientHelloReader{l: l, info: info}
	l.Deadline(&l.InputBy, info.listener.Timeouts.Handshake)
}

// Input implements link.Session. A hello may come in several segments and records (RFC 8446 5.1). The peeker remembers the records
// that it has seen: a client that sends single bytes does not have all of them parsed again for each.
func (k *clientHelloReader) Input(p []byte, fin bool) int {
	if k.held == nil {
		k.held = k.info.at.w.GetBuffer()
	}
	k.held = append(k.held, p...)
	hello, err := k.peeker.Parse(k.held)
	switch {
	case err == nil:
		k.pass(hello)
	case err != clienthello.ErrIncomplete:
		k.refuse(err)
	case fin:
		k.drop(clienthello.ErrIncomplete.Error())
		k.l.Abort()
	}
	return len(p)
}

// pass begins to pass the connection on, which is routed by what the hello says. The bytes of the hello go to the
// backend as they came: its handshake covers them by a hash (RFC 8446 4.4.1), so that nothing may be changed.
//
// The server name is not verified. It selects a backend, and the backend's certificate decides whether the client believes it.
func (k *clientHelloReader) pass(h *clienthello.Hello) {
	k.l.InputBy = clock.Never
	k.info.sni = string(h.ServerName)
	k.info.hello(h)
	held := k.held
	k.held = nil
	newPass(k.l, k.info, held)
}

// refuse answers what is no ClientHello by an alert (RFC 8446 6.2). It is in the clear, as no keys are agreed on.
func (k *clientHelloReader) refuse(err error) {
	k.drop(err.Error())
	var e *clienthello.Error
	if errors.As(err, &e) {
		alert(k.l, e.Alert)
		return
	}
	k.l.Abort()
}

// drop ends the wait for a hello. Connections that end before its first byte leave no line in the access log: health checks of load
// balancers and port scans would fill it.
func (k *clientHelloReader) drop(reason string) {
	k.info.at.w.counters.stream.hellos.Add(1)
	if len(k.held) > 0 {
		k.info.at.w.recordRefused(k.info, "TLS", 0, errTLS.name, reason)
	}
	k.info.at.w.PutBuffer(&k.held)
	k.l.Session = closer{} // what else comes is dropped
}

func (k *clientHelloReader) Writable() {}

// Expired implements link.Session. No alert says more to a client that has stopped.
func (k *clientHelloReader) Expired(output bool) {
	k.drop("no ClientHello in time")
	k.l.Abort()
}

func (k *clientHelloReader) Failed(err error) { k.drop(err.Error()) }

// Drain implements drainer: the hello may be on its way.
func (k *clientHelloReader) Drain() {}

// hello notes what rules ask of a ClientHello. JA4 hashes the whole of it, which costs more than the handshake's
// parsing: so it is done only where a rule compares it.
func (c *clientInfo) hello(h *clienthello.Hello) {
	if !c.listener.Table.ReadsHello() {
		return
	}
	c.ja4 = h.JA4()
	for list := h.ALPN; len(list) > 0; {
		var name []byte
		name, list = list.Next()
		c.alpn = append(c.alpn, string(name))
	}
}

// watch reads the ClientHello of TLS that ends here, beside the engine: rules compare fields of it that the handshake
// does not keep.
type watch struct {
	l      *link.Link
	info   *clientInfo
	held   []byte // a part of the hello, only if it does not come at once
	peeker clienthello.Peeker

	opening *opening
}

// see takes what has come before the engine takes it. Once the hello is complete, or is none, it ends. Errors are the engine's to
// report: it refuses the same hello, with the alert that RFC 8446 6.2 has for it.
func (v *watch) see(p []byte) {
	all := p
	if v.held != nil {
		v.held = append(v.held, p...)
		all = v.held
	}
	h, err := v.peeker.Parse(all)
	switch {
	case err == clienthello.ErrIncomplete && v.held == nil:
		v.held = append(v.l.Runner.GetBuffer(), p...)
		return
	case err == clienthello.ErrIncomplete:
		return
	case err == nil:
		v.info.hello(h)
		if v.info.listener.Inspection != nil {
			v.info.inspectHello(h)
		}
		v.opening.ask(h)
	}
	v.l.Runner.PutBuffer(&v.held)
	v.l.Watch = nil
}
