package proxy

import (
	"net"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/tls/clienthello"
	"github.com/millrace/millrace/wire"
)

// inspectedConn is a connection as the engine of a policy knows it.
type inspectedConn struct {
	policy uint8
	*inspect.Conn
}

// inspect returns the connection as the engine of a policy knows it; nil where that has as many as it may. A connection does not keep an
// engine that a reload has replaced.
func (c *clientInfo) inspect(policy uint8, e *inspect.Engine) *inspect.Conn {
	at := slices.IndexFunc(c.inspected, func(k inspectedConn) bool { return k.policy == policy })
	if at >= 0 && c.inspected[at].Engine() != e {
		c.inspected[at].Close()
		c.inspected = slices.Delete(c.inspected, at, at+1)
		at = -1
	}
	if at < 0 {
		conn := e.Connect(int64(c.at.w.Now), c.describeInspected())
		if conn == nil {
			return nil
		}
		at, c.inspected = len(c.inspected), append(c.inspected, inspectedConn{policy, conn})
	}
	conn := c.inspected[at].Conn
	conn.ServerName = c.sni
	return conn
}

// inspects reports whether requests of the listener are inspected, by its own choice or that of a rule.
func (ln *Listener) inspects() bool { return ln.Inspection != nil || ln.RulesInspect }

// describeInspected returns the connection as rules and alerts have it.
func (c *clientInfo) describeInspected() inspect.Client {
	d := inspect.Client{
		From: c.addr, To: c.server(), Proto: wire.ProtoTCP, Listener: c.listener.Name,
		Proxied: c.local.IsValid() || c.listener.Forwarding.Trusts(c.addr.Addr()),
	}
	if c.quic != nil {
		d.Proto = wire.ProtoUDP
	}
	return d
}

// server returns the address that the client has connected to.
func (c *clientInfo) server() netip.AddrPort {
	switch {
	case c.local.IsValid():
		return c.local
	case c.link != nil:
		if a := c.link.Conn.Local(); a.IsValid() {
			return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
		}
	case c.quic != nil:
		if a, ok := c.quic.QUIC().LocalAddr().(*net.UDPAddr); ok && !a.IP.IsUnspecified() {
			return netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), uint16(a.Port))
		}
	}
	return c.listener.Address
}

// uninspect ends the inspection of a connection that has ended, with all of its exchanges.
func (c *clientInfo) uninspect() {
	for _, k := range c.inspected {
		k.Close()
	}
	c.inspected = nil
}

// inspectHello inspects the ClientHello of TLS over TCP. A connection that a rule drops ends once the handshake is complete: that
// costs more than its refusal, and comes by one way with HTTP/3, whose handshake is not the loop's.
func (c *clientInfo) inspectHello(h *clienthello.Hello) {
	if e, mode := c.helloEngine(); e != nil {
		c.greet(e, mode, inspect.Hello{ServerName: string(h.ServerName), JA3: string(h.AppendJA3Text(nil)), JA4: h.JA4()})
	}
}

// inspectHello3 is inspectHello for HTTP/3: of JA3 there is none, since crypto/tls does not give away what it is made of.
func (c *clientInfo) inspectHello3() {
	if e, mode := c.helloEngine(); e != nil {
		c.greet(e, mode, inspect.Hello{ServerName: c.sni, JA4: c.ja4})
	}
}

// helloEngine returns the engine and the mode of the listener's policy; nil where its rules are not about a ClientHello.
func (c *clientInfo) helloEngine() (*inspect.Engine, inspect.Mode) {
	if c.listener.Inspection == nil {
		return nil, inspect.Detect
	}
	e, mode := c.at.w.inspector(c.listener.Inspection.Policy, false)
	if e == nil || !e.WantsHello() {
		return nil, mode
	}
	return e, mode
}

// greet inspects a hello, and notes whether the connection is to end.
func (c *clientInfo) greet(e *inspect.Engine, mode inspect.Mode, h inspect.Hello) {
	conn := c.inspect(c.listener.Inspection.Policy, e)
	r := inspect.Result{Bound: true}
	if conn != nil {
		conn.ServerName = h.ServerName
		r = conn.Hello(int64(c.at.w.Now), &h)
	}
	c.denied = mode.Ends(r)
}

// deniedHello counts and records a connection that ends by its ClientHello.
func (w *Worker) deniedHello(c *clientInfo, protocol string) {
	w.counters.inspectionEnded.Add(1)
	w.recordRefused(c, protocol, 0, errForbidden.name, "inspection")
}
