package webpeer

import (
	"bytes"
	"fmt"
	"time"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/semantics"
)

// client1 is a connection of HTTP/1.1, with one request at a time, or of WebSocket, with one message at a time.
type client1 struct {
	g    *Load
	c    *conn
	m    *http1.Machine
	left int // requests until the connection is closed, where that is limited
	due  time.Duration
	got  int // bytes of the response
	// coded is the content of the response where the generator has asked for a coding.
	coded []byte
}

func newClient1(g *Load, due time.Duration) *client1 {
	scheme := "http"
	if g.o.TLS {
		scheme = "https"
	}
	return &client1{g: g, due: due, m: http1.NewMachine(http1.RoleClient, http1.Options{Scheme: scheme}), left: g.o.PerConn}
}

func (s *client1) bind(c *conn) { s.c = c }
func (s *client1) sent()        {}

func (s *client1) failed(err error) {
	s.g.wrong(ended(err))
	if s.g.o.Op != OpIdle {
		s.g.replace()
	}
}

var (
	requestFields = []semantics.Field{{Name: "user-agent", Value: "bench"}, {Name: "accept", Value: "*/*"}}
	upgradeFields = []semantics.Field{
		{Name: "sec-websocket-key", Value: "dGhlIHNhbXBsZSBub25jZQ=="}, {Name: "sec-websocket-version", Value: "13"},
	}
)

func (s *client1) open() {
	if s.g.o.Op == OpWebSocket {
		s.request(upgradeFields, "websocket")
		return
	}
	if s.g.dialsWhenDue() {
		s.issue(s.due)
		return
	}
	s.g.free(s)
}

// request sends the header of a GET.
func (s *client1) request(fields []semantics.Field, protocol string) {
	msg := semantics.Message{
		Method: "GET", Scheme: "http", Authority: serverName, Path: s.g.path(), Protocol: protocol, ContentLength: -1, Fields: fields,
	}
	if s.left == 1 {
		s.m.CloseAfter()
	}
	out, err := s.m.AppendRequest(s.c.out, &msg, true)
	if err != nil {
		s.c.fail(err)
		return
	}
	s.c.out, s.got, s.coded = out, 0, s.coded[:0]
	s.c.kick()
}

// issue sends a request, or a message.
func (s *client1) issue(due time.Duration) {
	s.due = due
	if s.m.Tunnel() {
		s.c.out = append(s.c.out, clientFrame...)
		s.c.kick()
		return
	}
	s.request(s.g.fields, "")
}

func (s *client1) input(p []byte, fin bool) (used int, err error) {
	for !s.c.dead {
		ev, n, err := s.m.Input(p[used:], fin)
		used += n
		switch {
		case err != nil || ev.Kind == http1.NeedInput:
			return used, err
		case ev.Kind == http1.Headers:
			err = s.header(s.m.Message())
		case ev.Kind == http1.Data && s.m.Tunnel():
			err = s.echoed(ev.Payload)
		case ev.Kind == http1.Data && s.g.o.Coding != "":
			s.coded = append(s.coded, ev.Payload...)
		case ev.Kind == http1.Data:
			err = CheckContent(s.got, s.g.o.Size, ev.Payload)
			s.got += len(ev.Payload)
		case ev.Kind == http1.End:
			err = s.end()
		}
		if err != nil {
			return used, err
		}
	}
	return used, nil
}

func (s *client1) header(msg *http1.Message) error {
	status, want := msg.Status, 200
	if s.g.o.Op == OpWebSocket {
		want = 101
	}
	if status != want && status/100 != 1 || status == 101 && want != 101 {
		return fmt.Errorf("status %d", status)
	}
	if status == 101 {
		s.g.free(s)
	}
	if coding := codingOf(msg); status == 200 && coding != s.g.o.Coding {
		return fmt.Errorf("content coding %q in place of %q", coding, s.g.o.Coding)
	}
	return nil
}

// codingOf returns the content coding of a response.
func codingOf(msg *http1.Message) string {
	for _, f := range msg.Fields {
		if f.Name == "content-encoding" {
			return f.Value
		}
	}
	return ""
}

// end counts a response and makes the connection free, or opens another in its place.
func (s *client1) end() error {
	if s.g.o.Coding != "" {
		if err := checkText(s.g.o.Coding, s.g.o.Size, s.coded); err != nil {
			return err
		}
		s.got = s.g.o.Size
		s.g.Coded.Add(uint64(len(s.coded)))
	}
	if s.got != s.g.o.Size || s.m.Tunnel() {
		return fmt.Errorf("the response ends after %d bytes of %d", s.got, s.g.o.Size)
	}
	s.g.done(s.due, s.got)
	switch s.left {
	case 0:
	case 1:
		s.c.close()
		s.g.replace()
		return nil
	default:
		s.left--
	}
	s.g.again(s)
	return nil
}

// echoed takes a part of the frames that come back.
func (s *client1) echoed(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), len(serverFrame)-s.got)
		if !bytes.Equal(p[:n], serverFrame[s.got:s.got+n]) {
			return fmt.Errorf("another frame than was sent: %x", p[:n])
		}
		p, s.got = p[n:], s.got+n
		if s.got == len(serverFrame) {
			s.got = 0
			s.g.done(s.due, messageBytes)
			s.g.free(s)
		}
	}
	return nil
}
