package inspect

import (
	"bytes"
	"strconv"

	"github.com/millrace/millrace/filter/inspect/applayer"
	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/inspect/httpmsg"
	"github.com/millrace/millrace/filter/signature"
)

// httpFlow is the messages of HTTP/1 of one flow (RFC 9112). How long a response is depends on the method of its
// request, and requests may be pipelined (RFC 9112 9.3.2): so the methods wait in order.
type httpFlow struct {
	sides   [2]httpSide
	asked   []httpAsked // requests without an answer yet
	version []byte      // of the last request
}

// httpAsked is what is kept of a request until its answer comes. Its texts are copies: a part of the head would keep all of it.
type httpAsked struct {
	method []byte
	name   []byte // of the file that it asks for
}

// httpMessage is a message with the part of it that was evaluated.
type httpMessage struct {
	httpmsg.Message
	early earlyMessage
}

// httpState is where a direction is. A state that is wrong by one byte would take content for a head, or hide a request
// in content: each is left only by what a server would leave it by.
type httpState uint8

const (
	httpHead  httpState = iota
	httpBody            // need bytes more
	httpChunk           // the line with a chunk's size
	httpData            // of a chunk: need bytes more
	httpCRLF            // behind a chunk
	httpTrailer
	httpClose  // a body up to the end of the connection
	httpTunnel // behind a CONNECT that has succeeded: perhaps TLS
	httpStop   // no HTTP any more
)

// httpSide is one direction.
type httpSide struct {
	state httpState
	line  []byte // an incomplete head or line
	need  int64
	msg   httpMessage
	sent  bool         // the message was inspected: its body has reached the bound
	early earlyMessage // of the message whose head is not complete
}

// http reads messages out of bytes that are in order, without gaps: the streams see to that.
func (e *Engine) http(p *packet, b []byte) {
	h := p.flow.proto.http
	s := &h.sides[signature.SideOf(p.dir)]
	for len(b) > 0 && s.state != httpStop {
		switch s.state {
		case httpHead:
			b = e.httpHeadBytes(p, h, s, b)
		case httpTunnel:
			e.httpTunnel(p, h, b)
			return
		case httpBody, httpData, httpClose:
			n := len(b)
			if s.state != httpClose {
				n = int(min(int64(n), s.need))
				s.need -= int64(n)
			}
			e.httpBodyBytes(p, h, s, b[:n])
			b = b[n:]
			switch {
			case s.need > 0 || s.state == httpClose:
			case s.state == httpBody:
				e.httpDone(p, h, s)
			default:
				s.state = httpCRLF
			}
		default:
			b = e.httpLine(p, h, s, b)
		}
	}
}

// httpHeadBytes collects a head, and begins the body behind it. The search for its end begins three bytes before what
// is new, as the empty line may be split over segments; it never begins anew, or a head that comes a byte at a time
// would cost its length squared.
func (e *Engine) httpHeadBytes(p *packet, h *httpFlow, s *httpSide, b []byte) []byte {
	if len(s.line) == 0 { // empty lines before a message are skipped (RFC 9112 2.2)
		b = bytes.TrimLeft(b, "\r\n")
		if len(b) == 0 {
			return nil
		}
	}
	before := len(s.line)
	s.line = append(s.line, b...)
	// An answer without a head is content up to the end of the connection: as a head it would be collected in vain, up
	// to its bound.
	if p.dir == signature.ToClient && h.bareAnswer(s.line) {
		s.msg, s.state, s.sent = httpMessage{Message: httpmsg.Message{Head: []byte{}, Start: []byte{}}}, httpClose, false
		e.httpBegun(p, s)
		b, s.line = s.line, nil
		return b
	}
	end := ascii.HeadEnd(s.line, max(0, before-3))
	if end < 0 {
		if bytes.IndexByte(b, '\n') >= 0 {
			e.httpFirstLine(p, s)
		}
		if len(s.line) > applayer.MaxHead {
			e.httpLost(p, s)
		}
		return nil
	}
	rest := b[end-before:]
	s.msg.Message = httpmsg.ParseHead(s.line[:end])
	s.msg.early, s.early = s.early, earlyMessage{}
	s.line = nil
	if p.dir == signature.ToServer && httpmsg.IsPreface(s.msg.Start) { // prior knowledge (RFC 9113 3.3): the preface looks like a request
		e.http2Begin(p, rest)
		return nil
	}
	e.httpFraming(p, h, s)
	return rest
}

// bareAnswer reports whether the answer to a request of HTTP/0.9 begins: it has no head (RFC 1945 6). The first byte that no head
// begins with decides, or an empty line among the first ones would end a head.
func (h *httpFlow) bareAnswer(b []byte) bool {
	const begin = "HTTP/"
	if n := min(len(b), len(begin)); string(b[:n]) == begin[:n] || len(h.asked) == 0 && len(h.sides[0].line) == 0 {
		return false
	}
	m := httpmsg.Message{Version: h.version}
	if line, _, ok := bytes.Cut(h.sides[0].line, []byte{'\n'}); ok {
		m.Start = line
		m.ParseRequestLine()
	}
	return !hasVersion(m.Version)
}

// httpFraming decides how long the body is (RFC 9112 6.3).
func (e *Engine) httpFraming(p *packet, h *httpFlow, s *httpSide) {
	m := &s.msg
	s.sent = false
	chunked := bytes.Contains(ascii.Lower(m.Value("transfer-encoding")), []byte("chunked"))
	length, known := httpmsg.BodyLength(m.Value("content-length"))
	m.Decode(e.cfg.bodyBytes())
	if p.dir == signature.ToServer {
		m.ParseRequestLine()
		h.version = bytes.Clone(m.Version)
		if e.cfg.Inline && m.Ambiguous() {
			e.ambiguous(p)
		}
		// Servers answer the first of pipelined requests before they read a thousand more. Without the bound a client could fill
		// memory with them.
		if len(h.asked) < 1000 {
			h.asked = append(h.asked, httpAsked{bytes.Clone(m.Method), httpmsg.PathOf(m.URI)})
		}
		switch {
		case chunked:
			s.state = httpChunk
		case length > 0:
			s.state, s.need = httpBody, int64(length)
		default:
			e.httpDone(p, h, s)
		}
		e.httpBegun(p, s)
		return
	}
	if e.httpAnswer(p, h, s, chunked, length, known) {
		e.httpBegun(p, s)
	}
}

// httpAnswer decides how long the body of a response is, which depends on its request. It reports false where the flow has another
// protocol from here on.
func (e *Engine) httpAnswer(p *packet, h *httpFlow, s *httpSide, chunked bool, length int, known bool) bool {
	m := &s.msg
	code := httpmsg.StatusOf(m.Start)
	if len(h.asked) > 0 {
		m.Method, m.File = h.asked[0].method, h.asked[0].name
		if code >= 200 || code == 101 {
			h.asked = h.asked[1:]
		}
	}
	switch {
	case code == 101 && bytes.Contains(ascii.Lower(m.Value("upgrade")), []byte("h2c")):
		e.httpDone(p, h, s)
		e.http2Upgraded(p, h)
		return false
	case code == 101, string(m.Method) == "CONNECT" && code/100 == 2:
		e.httpDone(p, h, s)
		h.sides[0].state, s.state = httpStop, httpStop
		if code != 101 {
			h.sides[0].state, s.state = httpTunnel, httpTunnel
			h.sides[0].line = nil
		}
	case code/100 == 1:
		s.msg = httpMessage{} // another response to the request follows
	case code == 204, code == 304, string(m.Method) == "HEAD":
		e.httpDone(p, h, s)
	case chunked:
		s.state = httpChunk
	case length > 0:
		s.state, s.need = httpBody, int64(length)
	case known:
		e.httpDone(p, h, s)
	default:
		s.state = httpClose
	}
	return true
}

// ambiguous reports a request whose end is not where all recipients see it. Nothing of the flow passes any more with Block: a
// rule could be about a request that only the receiver sees.
func (e *Engine) ambiguous(p *packet) {
	e.anomaly(p, HTTPFraming)
	e.block(p, Drop)
}

// httpLost gives a direction up in which it is not known where messages begin any more. What it holds is inspected.
func (e *Engine) httpLost(p *packet, s *httpSide) {
	if s.msg.Start != nil && !s.sent {
		e.httpInspect(p, s)
	}
	*s = httpSide{state: httpStop}
	e.giveUp(p.flow)
}

// httpLine collects a line between chunks.
func (e *Engine) httpLine(p *packet, h *httpFlow, s *httpSide, b []byte) []byte {
	at := bytes.IndexByte(b, '\n')
	if at < 0 {
		if s.line = append(s.line, b...); len(s.line) > applayer.MaxHead {
			e.httpLost(p, s)
		}
		return nil
	}
	line := bytes.TrimSpace(append(s.line, b[:at]...))
	s.line = nil
	switch s.state {
	case httpCRLF:
		if s.state = httpChunk; len(line) > 0 { // the chunk is longer than its size
			e.httpLost(p, s)
		}
	case httpChunk:
		size, _, _ := bytes.Cut(line, []byte{';'})
		n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 63)
		switch {
		case err != nil:
			e.httpLost(p, s)
		case n == 0:
			s.state = httpTrailer
		default:
			s.state, s.need = httpData, int64(n)
		}
	case httpTrailer:
		if len(line) == 0 {
			e.httpDone(p, h, s)
		}
	}
	return b[at+1:]
}

// httpBodyBytes keeps bytes of a body up to the bound, and inspects the message when that is reached.
func (e *Engine) httpBodyBytes(p *packet, h *httpFlow, s *httpSide, b []byte) {
	if s.sent {
		return
	}
	m, limit := &s.msg, e.cfg.bodyBytes()
	if m.Body == nil && e.exchange != nil {
		m.Body = e.bodies.get(min(len(b), limit))
	}
	m.Body = append(m.Body, b[:min(len(b), max(limit-len(m.Body), 0))]...) // a swap may have lowered the bound
	if m.Coding != nil {
		m.Coding.Write(b)
	}
	if len(m.Body) >= limit || m.Coding != nil && len(m.Coding.Text()) >= limit {
		e.httpInspect(p, s)
	} else {
		e.httpGrown(p, s)
	}
}

// httpDone inspects a message that is complete, and waits for the next.
func (e *Engine) httpDone(p *packet, _ *httpFlow, s *httpSide) {
	if !s.sent {
		e.httpInspect(p, s)
	}
	s.msg, s.state, s.sent = httpMessage{}, httpHead, false
}

// httpTunnel collects the first bytes of a tunnel until they say whether it is TLS (RFC 9110 9.3.6), which is then the flow's
// protocol. The client speaks first.
func (e *Engine) httpTunnel(p *packet, h *httpFlow, b []byte) {
	s := &h.sides[signature.SideOf(p.dir)]
	s.line = append(s.line, b...)
	switch {
	case p.dir == signature.ToClient && len(s.line) <= applayer.MaxHead:
		return
	case p.dir == signature.ToServer && applayer.IsTLS(s.line):
		e.secured(p, s.line)
		return
	case p.dir == signature.ToServer && len(s.line) < 6:
		return
	}
	h.sides[0].state, h.sides[1].state = httpStop, httpStop
}

// httpEnd inspects the messages that are not complete when a flow ends.
func (e *Engine) httpEnd(f *flow) {
	h := f.proto.http
	for i, d := range [2]signature.Direction{signature.ToServer, signature.ToClient} {
		s := &h.sides[i]
		if s.state == httpHead && len(s.line) > 0 {
			s.msg.Message = httpmsg.ParseHead(s.line)
			if d == signature.ToServer {
				s.msg.ParseRequestLine()
			}
			s.msg.early, s.early = s.early, earlyMessage{}
			s.line, s.sent, s.state = nil, false, httpClose
		}
		if s.msg.Start != nil && !s.sent && s.state != httpHead && s.state != httpStop {
			e.httpInspect(packetOf(f, d), s)
		}
		h.sides[i].state = httpStop
	}
}

// httpInspect evaluates the rules on a message.
func (e *Engine) httpInspect(p *packet, s *httpSide) {
	s.sent = true
	s.msg.Fill(&e.tx.Message, p.dir)
	e.ended(p, &s.msg.early, s.msg.growing())
}
