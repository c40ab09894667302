package inspect

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"iter"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/filter/inspect/httpmsg"
	"github.com/millrace/millrace/filter/inspect/inflate"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// A gateway that ends TLS and HTTP has messages, and no packets. It hands over what it has parsed: a Conn for each connection of a
// client, an Exchange for each request with its response, heads, and the pieces of bodies in their order. They meet the rules as
// messages do that the parsers of flows have found: with Config.Inline the head before the body, the body as it grows, the
// rest at its end. The caller passes a piece on only after the call about it, so that the other end never has all of the bytes
// that a rule drops.
//
// Bits, counters, thresholds and pass rules are those of the connection: a flow outside of the engine's table, which ends with
// Close. A rule that drops decides by Result about one exchange; Config.Block has no meaning here. An engine is for messages
// or for packets: rules about messages alone are told apart by NotOfMessages.

// Client is a connection of a client at a gateway. Of Proto UDP, which HTTP/3 has, rules on TCP are evaluated too.
type Client struct {
	From, To netip.AddrPort
	Proto    uint8  // of IP
	Listener string // for alerts
	Proxied  bool   // packets come from a proxy, and not from From
}

// Conn is a connection of a client. It belongs to the engine's caller.
type Conn struct {
	Client
	ServerName string // of TLS, for alerts

	e      *Engine
	f      *flow
	closed bool // exchanges may end after their connection
}

// Exchange is a request and its response, once Conn.Begin has begun it.
type Exchange struct {
	Choice *Choice // set between Conn.Begin and Head; nil: all rules, by the mode of the policy

	conn  *Conn
	sides [2]httpSide
	held  int // bytes of the budget
}

// Head is the head of a message that the caller has parsed.
type Head struct {
	Raw     []byte                    // of HTTP/1: the lines as they came, borrowed; nil of later versions, which have
	Fields  iter.Seq2[string, string] // names in lower case, pseudo-header fields first
	Version string                    // of those, as HTTP/2
	Ends    bool                      // no body follows
}

// Hello holds the values of a ClientHello that rules compare; empty ones are not known.
type Hello struct{ ServerName, JA3, JA4 string }

// Mode selects what a gateway does by a Result.
type Mode uint8

// The values of Mode.
const (
	Detect      Mode = iota // nothing
	Prevent                 // it ends what a rule drops, and what a bound keeps from being inspected
	PreventOpen             // it ends what a rule drops
)

// Ends reports whether what a result is about ends.
func (m Mode) Ends(r Result) bool {
	return m != Detect && (r.Outcome != Pass || r.Bound && m == Prevent)
}

// RuleID names a rule.
type RuleID struct{ GID, SID uint32 }

// Choice selects a mode and rules for some exchanges of an engine. It is not changed while an exchange has it.
type Choice struct {
	Mode   Mode            // in place of the policy's
	Except map[RuleID]bool // rules that are not evaluated: they match nothing, set no bit and count nowhere
}

// excepts reports whether a rule is not evaluated for the exchange of the present call.
func (e *Engine) excepts(r *signature.Rule) bool {
	x := e.exchange
	return x != nil && x.Choice != nil && x.Choice.Except[RuleID{r.GID, r.SID}]
}

// exchangeSize is the size of an Exchange, and connSize that of a Conn with its flow.
const (
	exchangeSize = 1200
	connSize     = 1500
)

// Connect begins the inspection of a connection; it returns nil where there are as many as there may be.
func (e *Engine) Connect(now int64, c Client) *Conn {
	if e.conns >= e.cfg.maxFlows() {
		e.stats.Bounds++
		return nil
	}
	e.conns++
	e.stats.Flows++
	k := flowKey{a: mapped(c.From.Addr()), b: mapped(c.To.Addr()), aPort: c.From.Port(), bPort: c.To.Port(), proto: c.Proto}
	f := &flow{
		key: k, id: e.stats.Flows, clientFirst: true, last: now, linked: now, state: tcpEstablished, packets: [2]uint64{1, 1},
		app: signature.AppHTTP, appFinal: true,
	}
	e.budget.Charge(connSize)
	return &Conn{Client: c, e: e, f: f}
}

// Engine returns the engine that inspects the connection.
func (c *Conn) Engine() *Engine { return c.e }

// Close forgets the connection, whose exchanges were closed.
func (c *Conn) Close() {
	c.e.conns--
	c.e.budget.Charge(-c.f.held - connSize)
	c.f.held, c.closed = 0, true
}

// Hello evaluates the rules about the ClientHello.
func (c *Conn) Hello(now int64, h *Hello) Result {
	gaveUp := c.enter(now, nil)
	c.f.app = signature.AppTLS
	t := &c.e.tx.Message
	t.Reset()
	t.Put(signature.TLSSNI, given(h.ServerName))
	t.Put(signature.JA4Hash, given(h.JA4))
	if t.Text = []byte(h.ServerName); h.JA3 != "" {
		sum := md5.Sum([]byte(h.JA3))
		t.Put(signature.JA3String, []byte(h.JA3))
		t.Put(signature.JA3Hash, []byte(hex.EncodeToString(sum[:])))
	}
	c.e.transact(c.packet(signature.ToServer))
	return c.leave(gaveUp)
}

// given returns the bytes of a value, nil for one that is not known.
func given(value string) []byte {
	if value == "" {
		return nil
	}
	return []byte(value)
}

// enter begins a call about a message.
func (c *Conn) enter(now int64, x *Exchange) (gaveUp uint64) {
	e := c.e
	e.result, e.ending, e.now = Result{}, false, now
	e.stats.Messages++
	e.packet, e.conn, e.exchange = e.stats.Messages, c, x
	c.f.last = now
	return e.eval.gaveUp
}

// leave ends the call that enter has begun.
func (c *Conn) leave(gaveUp uint64) Result {
	e := c.e
	if e.eval.gaveUp != gaveUp {
		e.bound()
	}
	if e.result.Bound {
		e.stats.Bounds++
	}
	if !c.closed {
		e.charge(c.f)
	}
	e.conn, e.exchange = nil, nil
	return e.result
}

// packet returns what rules compare of a message beside its buffers. It is valid during the call.
func (c *Conn) packet(d signature.Direction) *packet {
	p := &c.e.packets[0]
	*p = inFlow(c.f, d)
	p.bit |= signature.TCP
	if c.Proto == wire.ProtoTCP {
		p.bit = signature.TCP
	}
	return p
}

// Begin begins an exchange, in x, which is new or was closed.
func (c *Conn) Begin(x *Exchange) {
	c.e.budget.Charge(exchangeSize)
	x.conn, x.held = c, exchangeSize
}

// Method returns the method of the request.
func (x *Exchange) Method() []byte { return x.sides[0].msg.Method }

// URI returns the target of the request, as it came.
func (x *Exchange) URI() []byte { return x.sides[0].msg.URI }

// Host returns the host of the request, as it came.
func (x *Exchange) Host() []byte {
	if h := x.sides[0].msg.Host; h != nil {
		return h
	}
	return x.sides[0].msg.Value("host")
}

// Head evaluates the head of a message. A second one of a direction replaces the first: that of another attempt.
func (x *Exchange) Head(now int64, d signature.Direction, h *Head) Result {
	c, e := x.conn, x.conn.e
	gaveUp := c.enter(now, x)
	s := &x.sides[signature.SideOf(d)]
	e.forgetBody(s) // of another attempt
	*s = httpSide{state: httpBody}
	s.msg.Message = h.message(d)
	m := &s.msg
	if d == signature.ToServer {
		if c.f.app = signature.AppHTTP; h.Raw == nil {
			c.f.app = signature.AppHTTP2
		}
	} else {
		ask := &x.sides[0].msg
		m.Method, m.File = ask.Method, httpmsg.PathOf(ask.URI)
	}
	c.f.sides[signature.SideOf(d)].pay(len(m.Head))
	p := c.packet(d)
	if h.Ends || !e.rules.bodies[signature.SideOf(d)] {
		e.httpInspect(p, s)
	} else {
		m.Decode(e.cfg.bodyBytes())
		e.httpBegun(p, s)
	}
	x.settle(s)
	return c.leave(gaveUp)
}

// Wants reports whether the body of a message is inspected: no rule asks for more of it once that is false.
func (x *Exchange) Wants(d signature.Direction) bool {
	s := &x.sides[signature.SideOf(d)]
	return s.msg.Start != nil && !s.sent
}

// Unread reports whether the body of a message is inspected as it comes, since it is in a content coding that is not decoded.
func (x *Exchange) Unread(d signature.Direction) bool {
	return x.sides[signature.SideOf(d)].msg.Unread && x.Wants(d)
}

// ReadsBodies reports whether some rule is about the bodies of a direction.
func (x *Exchange) ReadsBodies(d signature.Direction) bool {
	return x.conn.e.rules.bodies[signature.SideOf(d)]
}

// ReadsCoding reports whether bodies in a content coding are decoded.
func ReadsCoding(name string) bool { return inflate.Reads(name) }

// Body evaluates the next piece of a body, which it borrows.
func (x *Exchange) Body(now int64, d signature.Direction, b []byte) Result {
	if !x.Wants(d) {
		return Result{}
	}
	c, e := x.conn, x.conn.e
	gaveUp := c.enter(now, x)
	s, p := &x.sides[signature.SideOf(d)], c.packet(d)
	if e.budget.Used()+len(b) > e.budget.Max {
		e.bound()
		e.httpInspect(p, s)
	} else {
		c.f.sides[signature.SideOf(d)].pay(len(b))
		e.httpBodyBytes(p, nil, s, b)
	}
	x.settle(s)
	return c.leave(gaveUp)
}

// End evaluates what is left of a message at its end.
func (x *Exchange) End(now int64, d signature.Direction) Result {
	if !x.Wants(d) {
		return Result{}
	}
	c := x.conn
	gaveUp := c.enter(now, x)
	s := &x.sides[signature.SideOf(d)]
	c.e.httpInspect(c.packet(d), s)
	x.settle(s)
	return c.leave(gaveUp)
}

// Close forgets the exchange. Of a message that did not end, what has come is evaluated: it has left. One that was never begun
// stays as it is.
func (x *Exchange) Close(now int64) {
	c := x.conn
	if c == nil {
		return
	}
	e := c.e
	for i := range x.sides {
		if d := signature.DirectionOf(i); x.Wants(d) {
			gaveUp := c.enter(now, x)
			e.ending = true
			e.httpInspect(c.packet(d), &x.sides[i])
			c.leave(gaveUp)
			e.ending = false
		}
		e.forgetBody(&x.sides[i])
	}
	e.budget.Charge(-x.held)
	*x = Exchange{}
}

// settle gives back what a message that was evaluated holds of its body, and charges the rest.
func (x *Exchange) settle(s *httpSide) {
	if s.sent {
		x.conn.e.forgetBody(s)
		s.msg.early = earlyMessage{}
	}
	n := exchangeSize
	for i := range x.sides {
		n += x.sides[i].size()
	}
	x.conn.e.budget.Charge(n - x.held)
	x.held = n
}

// message returns the head as the buffers are filled from it.
func (h *Head) message(d signature.Direction) httpmsg.Message {
	if h.Raw == nil {
		m, _ := messageOf(h.Fields, h.Version, d)
		return m
	}
	m := httpmsg.ParseHead(bytes.TrimLeft(h.Raw, "\r\n")) // an empty line may stand before a request (RFC 9112 2.2)
	if d == signature.ToServer {
		m.ParseRequestLine()
	}
	return m
}

// NotOfMessages returns why a rule cannot be evaluated on messages that a gateway hands over; "" where it can.
func NotOfMessages(r *signature.Rule) string {
	http, hello := false, false
	for i := range r.Parts {
		switch b := r.Parts[i].Buffer; {
		case b >= signature.HTTPURI && b <= signature.FileName:
			http = true
		case b == signature.TLSSNI, b == signature.JA3Hash, b == signature.JA3String, b == signature.JA4Hash:
			hello = true
		case b == signature.Payload:
			return "content of packets"
		case !b.OfPacket():
			return b.String()
		}
	}
	switch app := r.Protocol.App; {
	case !http && !hello:
		return "no buffer of a message"
	case http && hello:
		return "buffers of HTTP and TLS in one rule"
	case app != signature.AppAny && app != signature.AppHTTP && app != signature.AppHTTP2 && app != signature.AppTLS:
		return "protocol " + app.String()
	case r.Protocol.IP&signature.TCP == 0:
		return "protocol " + r.Protocol.Name
	case r.Protocol.Packet, r.Flow.NoStream, r.Flow.OnlyFrag:
		return "single packets"
	case r.Flow.NotEstablished:
		return "flow:not_established"
	case slices.ContainsFunc(r.Packet, func(t signature.PacketTest) bool { return t.Field != signature.FieldIPProto }):
		return "fields of packets"
	}
	return ""
}

// noteMessages notes what a rule of messages asks for.
func (r *Rules) noteMessages(q *rule) {
	if q.scope != scopeTx {
		return
	}
	for side := range r.bodies {
		r.bodies[side] = r.bodies[side] || q.body != bodyNone && q.dir&signature.DirectionOf(side) != 0
	}
	r.hello = r.hello || q.uses(signature.TLSSNI) || q.uses(signature.JA3Hash) || q.uses(signature.JA3String) || q.uses(signature.JA4Hash)
}

// WantsHello reports whether rules of the engine are about a ClientHello.
func (e *Engine) WantsHello() bool { return e.rules.hello }
