package webpeer

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/semantics"
)

// client2 is a connection of HTTP/2.
type client2 struct {
	g     *Load
	c     *conn
	m     *http2.Machine
	slots []slot
}

// slot is a request at a time.
type slot struct {
	s   *client2
	due time.Duration
	got int // bytes of the response
}

// Windows in which downloads never wait for the generator.
const (
	streamWindow = 4 << 20
	connWindow   = 64 << 20
)

func newClient2(g *Load) *client2 {
	return &client2{
		g: g, slots: make([]slot, g.o.Streams),
		m: http2.NewMachine(http2.RoleClient, http2.Options{Window: streamWindow, ConnWindow: connWindow}),
	}
}

func (s *client2) bind(c *conn) { s.c = c }
func (s *client2) sent()        {}

func (s *client2) failed(err error) {
	s.g.wrong(ended(err))
	if s.g.o.Op != OpIdle {
		s.g.replace()
	}
}

func (s *client2) open() {
	for i := range s.slots {
		s.slots[i].s = s
		s.g.free(&s.slots[i])
	}
}

var grpcRequestFields = []semantics.Field{
	{Name: "content-type", Value: "application/grpc"},
	{Name: "te", Value: "trailers"},
	{Name: "user-agent", Value: "bench"},
	{Name: "grpc-timeout", Value: "10S"},
}

// issue sends a request on a new stream.
func (r *slot) issue(due time.Duration) {
	s := r.s
	if s.c.dead {
		return
	}
	s.c.out = s.m.AppendControl(s.c.out)
	st, err := s.m.Open()
	if err != nil {
		s.c.fail(err)
		return
	}
	r.due, r.got, st.User = due, 0, r
	scheme := "http"
	if s.g.o.TLS {
		scheme = "https"
	}
	msg := semantics.Message{
		Method: "GET", Scheme: scheme, Authority: serverName, Path: s.g.path(), ContentLength: -1, Fields: requestFields,
	}
	grpc := s.g.o.Op == OpGRPC
	if grpc {
		msg.Method, msg.Fields = "POST", grpcRequestFields
	}
	out, err := s.m.AppendRequest(s.c.out, st, &msg, !grpc)
	if err == nil && grpc {
		out, _, err = s.m.AppendData(out, st, grpcMessage, true) // 69 bytes: the window is never full
	}
	s.c.out = out
	if err != nil {
		s.c.fail(err)
		return
	}
	s.c.kick()
}

func (s *client2) input(p []byte, _ bool) (used int, err error) {
	for !s.c.dead {
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
	return used, nil
}

func (s *client2) handle(ev http2.Event) error {
	switch ev.Kind {
	case http2.Headers:
		if status := ev.Stream.Message.Status; status != 200 {
			return fmt.Errorf("status %d", status)
		}
	case http2.Data:
		r := ev.Stream.User.(*slot)
		s.m.Consumed(ev.Stream, len(ev.Payload))
		err := s.check(r.got, ev.Payload)
		r.got += len(ev.Payload)
		return err
	case http2.End:
		return s.end(ev.Stream, ev.Stream.User.(*slot))
	case http2.Failed:
		if ev.Err != nil {
			return ev.Err
		}
		return fmt.Errorf("stream reset: %v", ev.Code)
	case http2.GoAway:
		return fmt.Errorf("GOAWAY: %v", ev.Code)
	}
	return nil
}

// size returns the length of a response.
func (s *client2) size() int {
	if s.g.o.Op == OpGRPC {
		return len(grpcMessage)
	}
	return s.g.o.Size
}

func (s *client2) check(at int, p []byte) error {
	if s.g.o.Op != OpGRPC {
		return CheckContent(at, s.g.o.Size, p)
	}
	if at+len(p) > len(grpcMessage) || !bytes.Equal(p, grpcMessage[at:at+len(p)]) {
		return fmt.Errorf("another message than was sent: %x", p)
	}
	return nil
}

// end counts a response and makes the slot free.
func (s *client2) end(st *http2.Stream, r *slot) error {
	if r.got != s.size() {
		return fmt.Errorf("the response ends after %d bytes of %d", r.got, s.size())
	}
	if s.g.o.Op == OpGRPC && !slices.Contains(st.Trailers, grpcTrailers[0]) {
		return fmt.Errorf("trailers %v", st.Trailers)
	}
	s.g.done(r.due, r.got)
	s.m.Release(st)
	s.g.again(r)
	return nil
}
