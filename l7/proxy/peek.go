package proxy

import (
	"errors"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/tls/clienthello"
)

// peeking is the session of a connection whose ClientHello is awaited. It holds what it reads, at most
// clienthello.DefaultLimit and what one read brings, for the time-out of the handshake.
type peeking struct {
	l      *link.Link
	info   *clientInfo
	held   []byte
	peeker clienthello.Peeker
}

func newPeeking(l *link.Link, info *clientInfo) {
	l.Session = &peeking{l: l, info: info}
	l.Deadline(&l.InputBy, info.listener.Timeouts.Handshake)
}

func (k *peeking) Input(p []byte, fin bool) int {
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

// pass begins to pass the connection on, which is routed by what the hello says.
func (k *peeking) pass(h *clienthello.Hello) {
	k.l.InputBy = clock.Never
	k.info.sni = string(h.ServerName)
	k.info.hello(h)
	held := k.held
	k.held = nil
	newPass(k.l, k.info, held)
}

// refuse answers what is no ClientHello by an alert.
func (k *peeking) refuse(err error) {
	k.drop(err.Error())
	var e *clienthello.Error
	if errors.As(err, &e) {
		alert(k.l, e.Alert)
		return
	}
	k.l.Abort()
}

// drop ends the wait for a hello. Connections that end before its first byte leave no line in the access log.
func (k *peeking) drop(reason string) {
	k.info.at.w.counters.stream.hellos.Add(1)
	if len(k.held) > 0 {
		k.info.at.w.recordRefused(k.info, "TLS", 0, errTLS.name, reason)
	}
	k.info.at.w.PutBuffer(&k.held)
	k.l.Session = closer{} // what else comes is dropped
}

func (k *peeking) Writable() {}

func (k *peeking) Expired(output bool) {
	k.drop("no ClientHello in time")
	k.l.Abort()
}

func (k *peeking) Failed(err error) { k.drop(err.Error()) }

// Drain implements front: the hello may be on its way.
func (k *peeking) Drain() {}

// hello notes what rules ask of a ClientHello.
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

// watch reads the ClientHello of TLS that ends here, beside the engine.
type watch struct {
	l      *link.Link
	info   *clientInfo
	held   []byte // a part of the hello
	peeker clienthello.Peeker
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
	}
	v.l.Runner.PutBuffer(&v.held)
	v.l.Watch = nil
}
