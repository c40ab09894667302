package proxy

import (
	"net"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/h1side"
	"github.com/millrace/millrace/l7/h2side"
	"github.com/millrace/millrace/l7/h3side"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// speak makes a client's connection speak a version of HTTP. The listener may have been removed during the handshake:
// then the connection is to end after its first requests, as those that were there before.
func (c *clientInfo) speak(conn side.Client) {
	if c.conn = conn; c.at.draining() {
		conn.Drain()
	}
}

// speakHTTP1 has a client's connection speak HTTP/1.1, which has no field for the scheme: it is that of the connection, or of the one
// that a PROXY header describes.
func (c *clientInfo) speakHTTP1(l *link.Link) {
	o := *c.listener.HTTP1
	if c.tls {
		o.Scheme = "https"
	}
	f := h1side.NewFront(l, o, &c.conf, c)
	if c.listener.inspects() {
		_, m := f.Plain()
		m.KeepHead(true)
	}
	c.speak(f)
}

// speakHTTP2 has a client's connection speak HTTP/2.
func (c *clientInfo) speakHTTP2(l *link.Link) {
	c.speak(h2side.NewFront(l, *c.listener.HTTP2, &c.conf, c))
}

// use serves the client by the settings of a listener. conf is what the sides read: it is changed in place, so that a
// reload reaches connections that are idle.
func (c *clientInfo) use(ln *Listener) { c.listener, c.conf.Timeouts = ln, &ln.Timeouts }

// accept3 takes a connection of a client with HTTP/3. It has completed its handshake, or sends early data. One above
// the limit is refused here as well: several handshakes at once may have found room.
func (w *Worker) accept3(l *listening, conn *quicconn.Conn, by *proxied) quicconn.Handler {
	w.Enter()
	w.counters.connections.Add(1)
	w.counters.open.Add(1)
	c := &clientInfo{at: l, tls: true, quic: conn}
	if by != nil {
		c.addr, c.local, c.isProxied = by.client, by.local, true
	}
	c.use(l.current)
	state := conn.QUIC().State().TLS
	c.established(&state)
	if h, ok := conn.QUIC().Attached().(*hello3); ok {
		c.ja4, c.alpn = h.ja4, h.alpn
	}
	f := h3side.NewFront(&w.Runner, conn, l.current.HTTP3.Machine, &c.conf, c)
	c.conn, w.fronts3[c] = f, f
	if c.admitted = l.admit(remoteOf(conn), "QUIC"); !c.admitted {
		f.Close(http3.ExcessiveLoad, "", nil)
		return f
	}
	if l.current.inspects() {
		c.moved() // which is when a connection of QUIC gets its address here
		c.inspectHello3()
	}
	if c.denied {
		w.deniedHello(c, "QUIC")
		f.Close(http3.NoError, "", nil)
	}
	return f
}

// Handle implements Owner. What may end the exchange comes last in each case: afterwards x may be
// another request's, and *ev.User is nil.
func (c *clientInfo) Handle(ev *side.Event) {
	switch {
	case !ev.Kind.OfStream():
		c.handle(ev)
		return
	case ev.Kind == side.Head:
		c.begin(ev)
		return
	}
	x, _ := (*ev.User).(*exchange)
	switch ev.Kind {
	case side.Data:
		if x.requestData(ev.Payload); ev.Left >= bypassLeast && *ev.User != nil {
			x.startBypass(&x.up)
		}
	case side.End:
		x.requestEnd(ev.Trailers)
	case side.Writable:
		x.frontWritable()
	case side.Malformed:
		x.abandon(errRequest.withStatus(ev.Status))
	case side.Late:
		x.abandon(errRequestTimeout)
	case side.Failed:
		if ev.Err == side.ErrStuck { // the client is there and takes nothing: the log shows a time-out, not that it left
			x.abandon(errWriteTimeout)
			return
		}
		x.frontFailed()
	}
}

// handle handles the events of the connection. Input that is refused within a request is logged with that request; any
// other has no line in the log but its own.
func (c *clientInfo) handle(ev *side.Event) {
	switch w := c.at.w; ev.Kind {
	case side.Refused:
		if ev.User != nil && *ev.User != nil {
			w.refuse(c, ev.Reason, ev.N)
		} else {
			w.refuseInput(c, ev.Caps.Protocol, ev.Status, ev.Reason, ev.N)
		}
	case side.Stuck:
		w.counters.writeTimeouts.Add(1)
	case side.Settings: // of a client with HTTP/3
		c.conn.Each(func(user any) { relayed{user.(*exchange)}.settled() })
	case side.Closed:
		c.closed3()
	}
}

// begin begins the exchange of a request, if the limits of the listener permit it. The order matters: the exchange is there before
// anything is refused, so that each refusal is a response, with its line in the access log.
func (c *clientInfo) begin(ev *side.Event) {
	w, ln := c.at.w, c.listener
	// The last request is announced with its response (Connection: close, GOAWAY): a client that sent more would have to send them
	// again, and could not if they are not idempotent (RFC 9112 9.3.1).
	if c.requests++; ln.Limits.Requests > 0 && c.requests >= ln.Limits.Requests {
		c.conn.Leave()
	}
	if c.quic != nil {
		c.moved()
	}
	w.counters.requests.Add(1)
	w.counters.active.Add(1)
	x := w.newExchange(c, ev)
	*ev.User = x
	if ev.Early && !x.takeEarly() {
		return
	}
	// Before a backend is chosen: a client that waits for 100 (Continue) then sends none of the content (RFC 9110 15.5.14).
	if ln.Limits.Body > 0 && x.request.ContentLength > ln.Limits.Body {
		x.answer(errBody)
		return
	}
	x.route()
}

// takeEarly reports whether a request is served that came before the handshake was complete. Otherwise it was answered.
//
// An attacker can replay early data (RFC 8446 8), so that only what changes nothing is served (RFC 8470 3). 425 makes the client send
// the rest again after the handshake (RFC 8470 5.2). The backend learns of it, so that it can refuse what it does not want to do
// twice; whatever the client has put into the field is one value (RFC 8470 5.1).
func (x *exchange) takeEarly() bool {
	if !x.client.listener.HTTP3.takesEarly() || !safe(x.request.Method) {
		x.answer(errTooEarly)
		return false
	}
	m := x.request
	m.Fields = slices.DeleteFunc(m.Fields, func(f semantics.Field) bool { return f.Name == earlyData })
	m.Fields = append(m.Fields, semantics.Field{Name: earlyData, Value: "1"})
	return true
}

// earlyData is the field by which an intermediary states that a request came in early data (RFC 8470 5.1).
const earlyData = "early-data"

// moved notes the client's address, which may change (RFC 9000 9). It is read for each request: rules and Forwarded
// name the address that the request came from.
func (c *clientInfo) moved() {
	if a := remoteOf(c.quic); a.IsValid() && !c.isProxied {
		c.addr = a
	}
}

// remoteOf returns the present address of a client, the zero value if it is not known.
func remoteOf(c *quicconn.Conn) (at netip.AddrPort) {
	if a, ok := c.Remote().(*net.UDPAddr); ok {
		at = netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), uint16(a.Port))
	}
	return at
}

// safe reports whether a method changes nothing (RFC 9110 9.2.1). Methods that are not known may change something.
func safe(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return false
}

// closed3 forgets a connection with HTTP/3, as clientClosed does one over TCP. Its exchanges have ended before: the side reports their
// failures first.
func (c *clientInfo) closed3() {
	w := c.at.w
	w.counters.open.Add(-1)
	if c.admitted {
		c.at.admission.leave()
	}
	delete(w.fronts3, c)
	if c.owns != nil {
		w.disown(c)
	}
	c.uninspect()
}

// checkBody reports whether content of a request is within the limit of its listener. Otherwise the exchange has ended. It counts
// what arrives, since chunked content has no length to check in advance (RFC 9112 7.1).
func (x *exchange) checkBody(p []byte) bool {
	max := x.client.listener.Limits.Body
	if x.rule != nil && x.rule.Guard != nil && x.rule.Guard.Body > 0 {
		max = x.rule.Guard.Body
	}
	if max == 0 || x.phase == tunnel || x.up.bytes+uint64(len(p)) <= uint64(max) {
		return true
	}
	if !x.caps.Shared { // the connection is of no more use
		x.client.conn.Leave()
		if x.phase.answered() {
			x.front.Cancel(true)
			x.frontFailed()
			return false
		}
	}
	x.abandon(errBody)
	return false
}
