package inspect

import (
	"bytes"
	"encoding/binary"
	"iter"

	"github.com/millrace/millrace/filter/inspect/applayer"
	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/inspect/httpmsg"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/http2/hpack"
)

// http2Flow is the messages of a flow of HTTP/2 without TLS (RFC 9113): with prior knowledge, or after "Upgrade: h2c". They
// fill the buffers of HTTP and are evaluated as those of HTTP/1 are, once their head is complete, as their body grows, and at
// their end.
type http2Flow struct {
	sides   [2]http2Side
	streams map[uint32]*http2Stream
}

// http2State is where a direction is.
type http2State uint8

const (
	http2Preface http2State = iota // of the client; of a server that was asked to upgrade, its answer in HTTP/1
	http2Frame                     // the header of a frame: need bytes more
	http2Payload                   // of a frame that is kept
	http2Data                      // of a DATA frame
	http2Skip                      // of any other
	http2Stop
)

// http2Side is one direction.
type http2Side struct {
	state   http2State
	held    []byte // incomplete: the preface, a frame's header, a payload
	kind    uint8
	flags   uint8
	stream  uint32
	need    int // bytes of the payload that are missing
	padding int // behind the data of a DATA frame

	// fields decodes every field block of the direction, also those of streams that are not followed: the dynamic table is the
	// connection's, and one block left out would make all that follow wrong (RFC 7541 2.2).
	fields  *hpack.Decoder
	block   []byte // a field block that CONTINUATION frames go on
	blockOf http2Block
}

// http2Block is the kind of a field block.
type http2Block struct {
	stream uint32 // 0 is none
	ends   bool   // the stream ends with it
	push   bool   // the request of a response that the server pushes
}

// http2Stream is one request and its response.
type http2Stream struct {
	sides [2]httpSide
	ended [2]bool
}

// Frames (RFC 9113 6).
const (
	frameHeaderLen    = 9
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	framePush         = 5
	frameContinuation = 9

	flagEndStream  = 1
	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 32
)

// Bounds of a connection.
const (
	maxHTTP2Streams = 1024
	maxHTTP2Table   = 64 << 10 // of a dynamic table: what a peer permits is not followed
	http2StreamSize = 640      // an http2Stream and its place
)

// The preface (RFC 9113 3.4): what looks like a head of HTTP/1, and the rest.
var prefaceHead, restOfPreface = []byte("PRI * HTTP/2.0\r\n\r\n"), []byte("SM\r\n\r\n")

func newHTTP2Flow() *http2Flow {
	h := &http2Flow{streams: map[uint32]*http2Stream{}}
	for i := range h.sides {
		h.sides[i].fields = hpack.NewDecoder(maxHTTP2Table, applayer.MaxHead)
	}
	return h
}

// http2Begin makes a flow one of HTTP/2 behind the head of the client's preface; rest follows that.
func (e *Engine) http2Begin(p *packet, rest []byte) {
	f := p.flow
	if f.proto.http2 == nil {
		e.http2Switch(f)
	}
	e.http2(p, rest)
}

// http2Switch replaces the parser of HTTP/1. What the server has sent of an answer in HTTP/1 is skipped by the new one.
func (e *Engine) http2Switch(f *flow) {
	answer := []byte(nil)
	if h := f.proto.http; h != nil {
		answer = h.sides[1].line
	}
	f.app = signature.AppHTTP2
	f.proto = newProtocol(signature.AppHTTP2)
	f.proto.http2.sides[1].held = answer
}

// http2Upgraded makes a flow one of HTTP/2 behind a response of 101. The client's preface follows the request that asked for
// it.
func (e *Engine) http2Upgraded(p *packet, h *httpFlow) {
	f := p.flow
	line := h.sides[0].line
	e.http2Switch(f)
	f.proto.http2.sides[1].held, f.proto.http2.sides[1].state = nil, http2Frame
	f.proto.http2.sides[0].held = []byte{}
	if len(line) > 0 {
		e.http2(packetOf(f, signature.ToServer), line)
	}
}

// http2 reads frames out of bytes that are in order.
func (e *Engine) http2(p *packet, b []byte) {
	h := p.flow.proto.http2
	s := &h.sides[signature.SideOf(p.dir)]
	for len(b) > 0 && s.state != http2Stop {
		switch s.state {
		case http2Preface:
			b = e.http2Preface(p, s, b)
		case http2Frame:
			n := min(len(b), frameHeaderLen-len(s.held))
			s.held = append(s.held, b[:n]...)
			if b = b[n:]; len(s.held) == frameHeaderLen {
				s.frame()
			}
		case http2Payload:
			n := min(len(b), s.need-len(s.held))
			s.held = append(s.held, b[:n]...)
			b = b[n:]
		default:
			n := min(len(b), s.need)
			e.http2Bytes(p, h, s, b[:n])
			s.need -= n
			b = b[n:]
		}
		e.http2Ended(p, h, s)
	}
}

// http2Preface skips what is before the frames of a direction: of the client the preface, of a server perhaps an answer in HTTP/1
// that the client did not wait for.
func (e *Engine) http2Preface(p *packet, s *http2Side, b []byte) []byte {
	before := len(s.held)
	s.held = append(s.held, b...)
	end := len(restOfPreface)
	if p.dir == signature.ToClient {
		end = 0
		if ascii.IsPrefixOf(s.held, []byte("HTTP/1.")) {
			if end = ascii.HeadEnd(s.held, 0); end < 0 {
				if len(s.held) > applayer.MaxHead || len(s.held) == before {
					e.http2Lost(p, s)
				}
				return nil
			}
		}
	} else {
		if ascii.IsPrefixOf(s.held, prefaceHead) {
			end += len(prefaceHead)
		}
		if len(s.held) < end {
			return nil
		}
	}
	rest := s.held[end:]
	s.held, s.state = nil, http2Frame
	return rest
}

// frame reads the header of a frame (RFC 9113 4.1):
//
//	| length 24 | type 8 | flags 8 | reserved 1, stream 31 |
func (s *http2Side) frame() {
	b := s.held
	s.need = int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	s.kind, s.flags, s.stream = b[3], b[4], binary.BigEndian.Uint32(b[5:])&^(1<<31)
	s.held, s.padding = s.held[:0], 0
	switch s.kind {
	case frameHeaders, framePush, frameContinuation:
		s.state = http2Payload
		if s.need > applayer.MaxHead {
			s.state = http2Stop
		}
	case frameData:
		s.state = http2Data
	default:
		s.state = http2Skip
	}
}

// http2Ended does what follows the end of a frame.
func (e *Engine) http2Ended(p *packet, h *http2Flow, s *http2Side) {
	switch {
	case s.state == http2Payload && len(s.held) == s.need:
		e.http2Fields(p, h, s)
	case s.state == http2Data && s.need == 0:
		if s.flags&flagEndStream != 0 {
			e.http2End(p, h, s.stream)
		}
	case s.state == http2Skip && s.need == 0:
		if s.kind == frameReset {
			e.http2Reset(p, h, s.stream)
		}
	default:
		if s.state == http2Stop {
			e.http2Lost(p, s)
		}
		return
	}
	if s.state != http2Stop {
		s.state, s.held = http2Frame, s.held[:0]
	}
}

// http2Bytes gives the data of a DATA frame to its message, without the length of the padding before it and the padding behind.
func (e *Engine) http2Bytes(p *packet, h *http2Flow, s *http2Side, b []byte) {
	if s.state != http2Data {
		return
	}
	left := s.need // of the frame, from b on
	if s.flags&flagPadded != 0 && len(b) > 0 {
		s.flags &^= flagPadded
		s.padding = int(b[0])
		b, left = b[1:], left-1
	}
	b = b[:max(min(len(b), left-s.padding), 0)]
	st := h.streams[s.stream]
	if st == nil || len(b) == 0 {
		return
	}
	if m := &st.sides[signature.SideOf(p.dir)]; m.msg.Start != nil {
		e.httpBodyBytes(p, nil, m, b)
	}
}

// http2Fields collects a field block, and reads it when it is complete (RFC 9113 4.3). The payload of its first frame has other fields
// around it (RFC 9113 6.2, 6.6); those of CONTINUATION frames have nothing but the block:
//
//	HEADERS       | [padding 8] | [priority 40] | block | padding |
//	PUSH_PROMISE  | [padding 8] | stream 32 | block | padding |
func (e *Engine) http2Fields(p *packet, h *http2Flow, s *http2Side) {
	b := s.held
	if s.kind != frameContinuation {
		s.block = s.block[:0]
		s.blockOf = http2Block{stream: s.stream, ends: s.flags&flagEndStream != 0 && s.kind == frameHeaders, push: s.kind == framePush}
		skip, padding := 0, 0
		if s.flags&flagPadded != 0 && len(b) > 0 {
			skip, padding = 1, int(b[0])
		}
		switch {
		case s.kind == framePush:
			skip += 4
		case s.flags&flagPriority != 0:
			skip += 5
		}
		if skip+padding > len(b) {
			e.http2Lost(p, s)
			return
		}
		b = b[skip : len(b)-padding]
	}
	s.block = append(s.block, b...)
	if s.flags&flagEndHeaders == 0 {
		if len(s.block) > applayer.MaxHead {
			e.http2Lost(p, s)
		}
		return
	}
	e.http2Block(p, h, s)
	s.block, s.blockOf = nil, http2Block{}
}

// http2Block decodes a field block into the head of a message. A second block of a message has its trailers, which no buffer has.
func (e *Engine) http2Block(p *packet, h *http2Flow, s *http2Side) {
	var section hpack.Section
	if s.blockOf.stream == 0 || s.fields.Decode(s.block, &section) != nil {
		e.http2Lost(p, s)
		return
	}
	if s.blockOf.push {
		return
	}
	st := h.streams[s.blockOf.stream]
	if st == nil {
		if len(h.streams) >= maxHTTP2Streams {
			e.http2Lost(p, s)
			return
		}
		st = &http2Stream{}
		h.streams[s.blockOf.stream] = st
	}
	if m := &st.sides[signature.SideOf(p.dir)]; m.msg.Start == nil {
		msg, interim := messageOf(fieldsOf(&section), "HTTP/2", p.dir)
		if interim { // another response follows
			return
		}
		m.msg.Message = msg
		if p.dir == signature.ToClient {
			m.msg.File = httpmsg.PathOf(st.sides[0].msg.URI)
		}
		m.msg.Decode(e.cfg.bodyBytes())
		if !s.blockOf.ends {
			e.httpBegun(p, m)
		}
	}
	if s.blockOf.ends {
		e.http2End(p, h, s.blockOf.stream)
	}
}

// fieldsOf lists the fields of a section.
func fieldsOf(section *hpack.Section) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := range section.Fields {
			if f := &section.Fields[i]; !yield(f.Name, f.Value) {
				return
			}
		}
	}
}

// messageOf makes the head of a message that the buffers of HTTP are filled from, of HTTP/2 or a later version. Pseudo fields are
// headers whose names begin with a colon, as rules expect them; the authority is the host, too. interim says that it is a response
// of 1xx.
func messageOf(fields iter.Seq2[string, string], version string, d signature.Direction) (m httpmsg.Message, interim bool) {
	var status, authority []byte
	for field, text := range fields {
		name, value := []byte(field), []byte(text)
		switch field {
		case ":method":
			m.Method = value
		case ":path":
			m.URI = value
		case ":authority":
			authority = value
		case ":status":
			status = value
		}
		m.Add(name, value)
	}
	m.Version = []byte(version)
	if d == signature.ToServer {
		if authority != nil && m.Header("host") == nil {
			m.Host = authority
		}
		m.Start = bytes.Join([][]byte{m.Method, m.URI, m.Version}, []byte{' '})
	} else {
		m.Start = append([]byte(version+" "), status...)
	}
	m.Head = append(append(m.Head, m.Start...), "\r\n"...)
	for i := range m.Headers {
		m.Head = m.Headers[i].AppendTo(m.Head)
	}
	m.Head = append(m.Head, "\r\n"...)
	return m, d == signature.ToClient && len(status) > 0 && status[0] == '1'
}

// http2End inspects a message that is complete, and forgets a stream of which both are.
func (e *Engine) http2End(p *packet, h *http2Flow, stream uint32) {
	st := h.streams[stream]
	if st == nil {
		return
	}
	side := signature.SideOf(p.dir)
	if m := &st.sides[side]; m.msg.Start != nil && !m.sent {
		e.httpInspect(p, m)
	}
	st.sides[side].msg.Body, st.sides[side].msg.Coding = nil, nil
	if st.ended[side] = true; st.ended[1-side] {
		delete(h.streams, stream)
	}
}

// http2Reset inspects what there is of a stream that is reset.
func (e *Engine) http2Reset(p *packet, h *http2Flow, stream uint32) {
	if st := h.streams[stream]; st != nil {
		e.http2Rest(p.flow, st)
		delete(h.streams, stream)
	}
}

// http2Rest inspects the messages of a stream that are not complete.
func (e *Engine) http2Rest(f *flow, st *http2Stream) {
	for i := range st.sides {
		if m := &st.sides[i]; m.msg.Start != nil && !m.sent {
			e.httpInspect(packetOf(f, signature.DirectionOf(i)), m)
		}
	}
}

// http2Finish inspects what is not complete when a flow ends, in the order of the streams.
func (e *Engine) http2Finish(f *flow) {
	h := f.proto.http2
	for len(h.streams) > 0 {
		first := uint32(1<<32 - 1)
		for n := range h.streams {
			first = min(first, n)
		}
		e.http2Rest(f, h.streams[first])
		delete(h.streams, first)
	}
}

// http2Lost abandons a direction of which the frames or the table of fields are not known any more.
func (e *Engine) http2Lost(p *packet, s *http2Side) {
	*s = http2Side{state: http2Stop, fields: hpack.NewDecoder(0, 0)}
	e.giveUp(p.flow)
}

// size returns how many bytes the parsers hold.
func (h *http2Flow) size() (n int) {
	for i := range h.sides {
		s := &h.sides[i]
		n += cap(s.held) + cap(s.block) + s.fields.Allocated()
	}
	for _, st := range h.streams {
		n += http2StreamSize
		for i := range st.sides {
			n += st.sides[i].size()
		}
	}
	return n
}
