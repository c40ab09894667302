package webpeer

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/semantics"
)

// Backend answers requests: HTTP/1.1, HTTP/2 without TLS by prior knowledge, WebSocket echoes, unary gRPC. The
// connection says which by its first bytes.
type Backend struct {
	l *loop
	// Connections is how many were accepted, Requests how many were answered, Messages how many were echoed.
	Connections, Requests, Messages atomic.Uint64
}

// NewBackend listens on an address.
func NewBackend(at netip.AddrPort) (*Backend, error) {
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	b := &Backend{l: l}
	return b, l.serve(at, func(c *conn) session {
		b.Connections.Add(1)
		return &detect{b: b, c: c}
	})
}

// Run serves for about d.
func (b *Backend) Run(d time.Duration) error { return b.l.run(d) }

// detect waits for the first bytes of a connection.
type detect struct {
	b *Backend
	c *conn
}

func (d *detect) open()        {}
func (d *detect) sent()        {}
func (d *detect) failed(error) {}

func (d *detect) input(p []byte, fin bool) (int, error) {
	n := min(len(p), len(http2.Preface))
	switch {
	case string(p[:n]) != http2.Preface[:n]:
		d.c.s = &backend1{b: d.b, c: d.c, m: http1.NewMachine(http1.RoleServer, http1.Options{})}
	case n == len(http2.Preface):
		d.c.s = &backend2{b: d.b, c: d.c, m: http2.NewMachine(http2.RoleServer, http2.Options{})}
	default:
		return 0, nil
	}
	return d.c.s.input(p, fin)
}

// plainFields are those of every response, textFields of those of text.
var (
	plainFields = []semantics.Field{{Name: "server", Value: "bench"}, {Name: "content-type", Value: "application/octet-stream"}}
	textFields  = []semantics.Field{{Name: "server", Value: "bench"}, {Name: "content-type", Value: "text/html"}}
)

// answerTo is the response to a GET.
func answerTo(path string) (semantics.Message, []byte) {
	if size, ok := sizeOf(path, bytesPath); ok {
		return semantics.Message{Status: 200, ContentLength: int64(size), Fields: plainFields}, content[:size]
	}
	if size, ok := sizeOf(path, textPath); ok {
		return semantics.Message{Status: 200, ContentLength: int64(size), Fields: textFields}, text[:size]
	}
	return semantics.Message{Status: 404, ContentLength: 0}, nil
}

// backend1 is a connection of HTTP/1.1.
type backend1 struct {
	b    *Backend
	c    *conn
	m    *http1.Machine
	echo *bytes.Buffer // frames of WebSocket, nil before an upgrade
}

func (s *backend1) open()        {}
func (s *backend1) failed(error) {}

// sent goes on with requests that came ahead.
func (s *backend1) sent() {
	if len(s.c.rest) == 0 {
		return
	}
	p := append([]byte(nil), s.c.rest...)
	s.c.take(p, false)
	s.c.kick()
}

func (s *backend1) input(p []byte, fin bool) (used int, err error) {
	for len(s.c.body) == 0 && !s.c.closing {
		ev, n, err := s.m.Input(p[used:], fin)
		used += n
		switch {
		case err != nil:
			return used, err
		case ev.Kind == http1.NeedInput:
			return used, nil
		case ev.Kind == http1.Data && s.echo != nil:
			s.echoAll(ev.Payload)
		case ev.Kind == http1.End && s.echo != nil:
			return used, io.EOF
		case ev.Kind == http1.End && s.m.Message().Protocol == "websocket":
			if err := s.upgrade(); err != nil {
				return used, err
			}
		case ev.Kind == http1.End:
			if err := s.answer(); err != nil {
				return used, err
			}
		}
	}
	return used, nil
}

// small is the largest response that is copied behind its header.
const small = 4 << 10

func (s *backend1) answer() error {
	s.b.Requests.Add(1)
	msg, body := answerTo(s.m.Message().Path)
	keep := s.m.KeepAlive()
	out, err := s.m.AppendResponse(s.c.out, &msg, len(body) == 0)
	if err == nil && len(body) > 0 {
		if len(body) <= small {
			out, err = s.m.AppendData(out, body)
		} else {
			out, err = s.m.AppendDataHeader(out, len(body)) // nothing before or behind content with a length
			s.c.body = body
		}
		if err == nil {
			out, err = s.m.AppendEnd(out, nil)
		}
	}
	s.c.out, s.c.closing = out, !keep
	return err
}

// upgrade answers 101 (RFC 6455 4.2.2).
func (s *backend1) upgrade() error {
	key := ""
	for _, f := range s.m.Message().Fields {
		if f.Name == "sec-websocket-key" {
			key = f.Value
		}
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	out, err := s.m.AppendResponse(s.c.out, &semantics.Message{Status: 101, Protocol: "websocket", ContentLength: -1, Fields: []semantics.Field{
		{Name: "sec-websocket-accept", Value: base64.StdEncoding.EncodeToString(sum[:])},
	}}, false)
	s.c.out, s.echo = out, new(bytes.Buffer)
	return err
}

// echoAll answers frames, which all are one message of messageBytes.
func (s *backend1) echoAll(p []byte) {
	s.echo.Write(p)
	for s.echo.Len() >= len(clientFrame) {
		f := s.echo.Next(len(clientFrame))
		s.c.out = append(s.c.out, serverFrame[:2]...)
		for i, b := range f[6:] {
			s.c.out = append(s.c.out, b^f[2+i%4])
		}
		s.b.Messages.Add(1)
	}
}

// backend2 is a connection of HTTP/2.
type backend2 struct {
	b *Backend
	c *conn
	m *http2.Machine

	blocked []*http2.Stream // their content waits for a window
}

func (s *backend2) open()        {}
func (s *backend2) sent()        {}
func (s *backend2) failed(error) {}

func (s *backend2) input(p []byte, _ bool) (used int, err error) {
	for {
		ev, n, err := s.m.Input(p[used:])
		used += n
		if err == nil && ev.Kind != http2.NeedInput {
			err = s.handle(ev)
		}
		if err != nil || ev.Kind == http2.NeedInput {
			s.c.out = s.m.AppendControl(s.c.out)
			return used, err
		}
	}
}

func (s *backend2) handle(ev http2.Event) error {
	switch ev.Kind {
	case http2.Data:
		s.m.Consumed(ev.Stream, len(ev.Payload))
	case http2.End:
		return s.answer(ev.Stream)
	case http2.Failed:
		s.blocked = slices.DeleteFunc(s.blocked, func(st *http2.Stream) bool { return st == ev.Stream })
		s.m.Release(ev.Stream)
	case http2.Window:
		was := s.blocked
		s.blocked = nil
		for _, st := range was {
			if err := s.send(st, st.User.([]byte)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *backend2) answer(st *http2.Stream) error {
	s.b.Requests.Add(1)
	s.c.out = s.m.AppendControl(s.c.out)
	if st.Message.Path == grpcPath {
		return s.answerGRPC(st)
	}
	msg, body := answerTo(st.Message.Path)
	out, err := s.m.AppendResponse(s.c.out, st, &msg, len(body) == 0)
	s.c.out = out
	if err != nil || len(body) == 0 {
		s.m.Release(st)
		return err
	}
	return s.send(st, body)
}

// send sends content as far as the windows permit.
func (s *backend2) send(st *http2.Stream, body []byte) error {
	out, n, err := s.m.AppendData(s.c.out, st, body, true)
	s.c.out = out
	switch {
	case err != nil:
	case n == len(body):
		s.m.Release(st)
	default:
		st.User = body[n:]
		s.blocked = append(s.blocked, st)
	}
	return err
}

var (
	grpcFields   = []semantics.Field{{Name: "content-type", Value: "application/grpc"}}
	grpcTrailers = []semantics.Field{{Name: "grpc-status", Value: "0"}, {Name: "grpc-message", Value: ""}}
)

// answerGRPC returns the message that every request has.
func (s *backend2) answerGRPC(st *http2.Stream) error {
	msg := semantics.Message{Status: 200, ContentLength: -1, Fields: grpcFields}
	out, err := s.m.AppendResponse(s.c.out, st, &msg, false)
	if err == nil {
		out, _, err = s.m.AppendData(out, st, grpcMessage, false)
	}
	if err == nil {
		out, err = s.m.AppendTrailers(out, st, grpcTrailers)
	}
	s.c.out = out
	s.m.Release(st)
	return err
}
