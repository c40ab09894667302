package inspect

import (
	"github.com/millrace/millrace/filter/inspect/applayer"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// protocol is the parsers of a flow's application protocol. Those of HTTP are parts of the engine, since the rules are evaluated
// on parts of its messages (early.go).
type protocol struct {
	http   *httpFlow
	http2  *http2Flow
	parser applayer.Parser // of any other protocol; nil where there is none
}

// host is the engine as a parser sees it, while the parser handles a packet.
type host struct {
	e *Engine
	p *packet
	c applayer.Context
}

// call returns the context of a call of a parser about a packet. It is borrowed until the next.
func (e *Engine) call(p *packet) *applayer.Context {
	h := &e.host
	h.p = p
	h.c = applayer.Context{
		Host: h, Message: &e.tx.Message, Transfers: &e.transfers, Dir: p.dir, Src: p.src, Dst: p.dst, Limit: e.cfg.bodyBytes(),
	}
	return &h.c
}

// packetOf returns the packet that is parsed, or an empty one in the other direction.
func (h *host) packetOf(d signature.Direction) *packet {
	if d == h.p.dir {
		return h.p
	}
	return packetOf(h.p.flow, d)
}

// Inspect implements applayer.Host.
func (h *host) Inspect(d signature.Direction) { h.e.transact(h.packetOf(d)) }

// NewFile implements applayer.Host.
func (h *host) NewFile() applayer.File { return &file{h: h} }

// GiveUp implements applayer.Host.
func (h *host) GiveUp() { h.e.giveUp(h.p.flow) }

// Secure implements applayer.Host.
func (h *host) Secure(b []byte) { h.e.secured(h.p, b) }

// secured makes a flow one of TLS, of which b are the first bytes in the packet's direction.
func (e *Engine) secured(p *packet, b []byte) {
	p.flow.app, p.flow.proto = signature.AppTLS, newProtocol(signature.AppTLS)
	p.flow.proto.parser.Parse(e.call(p), b)
}

// newProtocol returns the parsers of a protocol.
func newProtocol(app signature.App) *protocol {
	switch app {
	case signature.AppHTTP:
		return &protocol{http: &httpFlow{}}
	case signature.AppHTTP2: // from its first byte on: the whole preface comes
		return &protocol{http2: newHTTP2Flow()}
	}
	return &protocol{parser: applayer.New(app)}
}

// recognise looks at the first bytes of both directions until they show the protocol, or that it is none of those that are known,
// and reports whether they do so now. The server's may do that after any number of the client's.
func (e *Engine) recognise(f *flow) bool {
	if f.appFinal {
		return false
	}
	c, cFrom := f.sides[0].stream.Window()
	s, sFrom := f.sides[1].stream.Window()
	if cFrom != 0 || sFrom != 0 {
		f.appFinal = true
		f.app = signature.AppUnknown
		return true
	}
	port := f.key.bPort
	if !f.clientFirst {
		port = f.key.aPort
	}
	f.app = applayer.Detect(c, s, port)
	switch {
	case f.app != signature.AppAny:
		f.appFinal = true
		f.proto = newProtocol(f.app)
		f.noteUnparsed(len(c), len(s))
		return true
	case len(c) >= applayer.EnoughToDetect && len(s) >= applayer.EnoughToDetect, len(s) >= 1024:
		f.appFinal, f.app = true, signature.AppUnknown
		return true
	}
	return false
}

// unrecognised evaluates the rules that ask for the protocol of a flow which has ended before it was known.
func (e *Engine) unrecognised(f *flow) {
	if f.appFinal || !e.rules.asksForApps || f.key.proto != wire.ProtoTCP {
		return
	}
	f.appFinal, f.app = true, signature.AppUnknown
	for i := range f.sides {
		e.late(f, signature.DirectionOf(i))
	}
}

// noteUnparsed notes how many bytes of the client and of the server came before the protocol was known: parse passes the whole
// windows on to the parsers then.
func (f *flow) noteUnparsed(client, server int) {
	f.sides[0].unparsed, f.sides[1].unparsed = client, server
}

// parse gives the bytes of a direction that are new to the parsers of the flow's protocol.
func (e *Engine) parse(p *packet, fresh []byte) {
	f := p.flow
	if f.proto == nil {
		return
	}
	for _, d := range [2]signature.Direction{signature.ToServer, signature.ToClient} {
		s := &f.sides[signature.SideOf(d)]
		text := fresh
		switch {
		case s.unparsed > 0: // the first bytes of a flow, which came before its protocol was known
			w, _ := s.stream.Window()
			text = w[len(w)-s.unparsed:]
			s.unparsed = 0
		case d != p.dir:
			continue
		}
		if s.broken {
			continue
		}
		q := p
		if d != p.dir {
			q = packetOf(f, d)
		}
		e.parseSide(q, text)
	}
}

// parseSide gives bytes to the parser of the flow's protocol.
func (e *Engine) parseSide(p *packet, text []byte) {
	switch q := p.flow.proto; {
	case q.http != nil:
		e.http(p, text)
	case q.http2 != nil:
		e.http2(p, text)
	case q.parser != nil:
		q.parser.Parse(e.call(p), text)
	}
}

// finish inspects what the parsers of a flow hold, and evaluates the rules that wait.
func (e *Engine) finish(f *flow) {
	e.waited(f)
	e.unrecognised(f)
	q := f.proto
	if q == nil {
		return
	}
	if q.http != nil {
		e.httpEnd(f)
	}
	if q.http2 != nil {
		e.http2Finish(f)
	}
	if q.parser != nil {
		q.parser.Finish(e.call(packetOf(f, signature.ToServer)))
	}
}

// isTransfer makes a new flow the data connection that a control connection of FTP has announced.
func (e *Engine) isTransfer(f *flow, p *packet) {
	if e.transfers.Len() == 0 || p.proto != wire.ProtoTCP {
		return
	}
	from, to, port := p.src, p.dst, p.dstPort
	if p.tcp != nil && p.tcp.Flags().Has(wire.FlagSYN|wire.FlagACK) { // the answer to a SYN that was not captured
		from, to, port = p.dst, p.src, p.srcPort
	}
	if d := e.transfers.Take(from, to, port); d != nil {
		f.app, f.appFinal = signature.AppFTPData, true
		f.proto = &protocol{parser: d}
	}
}

// recogniseDatagram looks for the protocol of a flow of UDP, before rules are evaluated on the datagram: each is whole. It goes on
// until one is recognised, since a server also answers what follows datagrams of no protocol.
func (e *Engine) recogniseDatagram(p *packet) {
	f := p.flow
	if f.appFinal || p.bit != signature.UDP || len(p.payload) == 0 {
		return
	}
	app := applayer.DetectDatagram(p.payload, p.srcPort == 53 || p.dstPort == 53)
	if app == signature.AppAny {
		return
	}
	f.app, f.appFinal = app, true
	if app != signature.AppDNS && app != signature.AppSIP { // their datagrams are messages of their own
		f.proto = newProtocol(app)
	}
}

// datagram inspects what a UDP datagram carries.
func (e *Engine) datagram(p *packet) {
	if p.bit != signature.UDP || len(p.payload) == 0 {
		return
	}
	f := p.flow
	var parser applayer.Parser
	switch {
	case f.proto != nil:
		parser = f.proto.parser
	case f.app != signature.AppDNS && f.app != signature.AppSIP:
		return
	}
	applayer.Datagram(e.call(p), f.app, parser, p.payload)
	e.charge(f)
}
