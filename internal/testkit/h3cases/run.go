package h3cases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/millrace/millrace/quic"
)

// pause is the time that a case waits where one stream should arrive after another. arrival is how long where bytes
// must have been read before the stream is reset, on a busy machine too.
const (
	pause   = 20 * time.Millisecond
	arrival = 500 * time.Millisecond
)

// RunServer plays a case as a client over a new connection, and returns what was wrong. The server must answer
// 200 to any method, having read the content, and for the path /cookie only if the cookie is "a=1; b=2". It has
// until ctx to react. The connection is closed.
func RunServer(ctx context.Context, conn *quic.Conn, c Case) error {
	defer func() { _ = conn.CloseWithError(noError, "") }()
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseWithError(noError, "too slow") })
	defer stop()
	if err := c.open(ctx, conn); err != nil {
		return c.closed(conn, err)
	}
	s, err := conn.OpenStream(ctx)
	if err != nil {
		return c.closed(conn, err)
	}
	got := c.exchange(ctx, conn, s)
	if c.want.conn != nil && !c.accepts(got) {
		return c.closed(conn, got.err) // a server may answer before it sees what is wrong elsewhere
	}
	if err := c.compare(got); err != nil {
		return err
	}
	return works(ctx, conn)
}

// reaction is what came back on a stream.
type reaction struct {
	status int
	reset  uint64
	err    error
}

// open sends the control stream, the other unidirectional streams and the datagram.
func (c Case) open(ctx context.Context, conn *quic.Conn) error {
	control := c.control
	if control == "" {
		control = controlStream + settings()
	}
	for _, u := range append([]uni{{control, c.controlEnd}}, c.uni...) {
		if err := u.send(ctx, conn); err != nil {
			return err
		}
	}
	if c.datagram != nil {
		time.Sleep(pause) // behind SETTINGS
		return conn.SendDatagram([]byte(*c.datagram))
	}
	return nil
}

func (u uni) send(ctx context.Context, conn *quic.Conn) error {
	s, err := conn.OpenUniStream(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Write([]byte(u.bytes)); err != nil && !errors.As(err, new(*quic.StreamError)) {
		return err
	}
	switch u.end {
	case fin:
		return s.Close()
	case reset:
		if u.bytes != "" {
			time.Sleep(arrival)
		}
		s.CancelWrite(noError)
	}
	return nil
}

// exchange sends the message and reads what comes back.
func (c Case) exchange(ctx context.Context, conn *quic.Conn, s *quic.Stream) reaction {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		c.sendMessage(s)
		if c.late.bytes != "" {
			time.Sleep(pause)
			_ = c.late.send(ctx, conn)
		}
	}()
	got := read(s, c.end == open)
	<-sent
	return got
}

func (c Case) sendMessage(s io.WriteCloser) {
	b := []byte(c.message)
	for len(b) > 0 {
		n := len(b)
		if c.chop > 0 {
			n = min(n, c.chop)
		}
		if _, err := s.Write(b[:n]); err != nil {
			return
		}
		b = b[n:]
	}
	if c.end == fin {
		_ = s.Close()
	}
}

// read reads a response: its whole, or only its header where the request has no end.
func read(s io.Reader, headerOnly bool) (got reaction) {
	var all string
	b := make([]byte, 4096)
	for {
		n, err := s.Read(b)
		all += string(b[:n])
		if status, done := parse(&all); status > 0 {
			got.status = status
			if done && headerOnly {
				return got
			}
		}
		var se *quic.StreamError
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return got
		case errors.As(err, &se):
			if se.Code != noError || got.status == 0 {
				got.reset = se.Code
			}
			return got
		default:
			got.err = err
			return got
		}
	}
}

// parse takes whole frames from s, and returns the status if there is a final header among them.
func parse(s *string) (code int, done bool) {
	for {
		kind, n := readVarint(*s)
		length, m := readVarint((*s)[min(n, len(*s)):])
		if n == 0 || m == 0 || uint64(len(*s)-n-m) < length {
			return code, code > 0
		}
		payload := (*s)[n+m : n+m+int(length)]
		*s = (*s)[n+m+int(length):]
		if kind == headersType && code == 0 {
			if v, err := status(payload); err == nil && v >= 200 {
				code = v
			}
		}
	}
}

// closed checks that the connection ends with a code of the case.
func (c Case) closed(conn *quic.Conn, err error) error {
	if c.want.conn == nil {
		return fmt.Errorf("the connection failed: %w", errors.Join(err, context.Cause(conn.Context())))
	}
	<-conn.Context().Done()
	cause := context.Cause(conn.Context())
	var ae *quic.ApplicationError
	if !errors.As(cause, &ae) || !ae.Remote {
		return fmt.Errorf("the connection stays open, or ended with %w; want the code %#x", cause, c.want.conn)
	}
	if !slices.Contains(c.want.conn, ae.Code) {
		return fmt.Errorf("the connection was closed with %#x %q, want %#x", ae.Code, ae.Reason, c.want.conn)
	}
	return nil
}

// compare checks a stream's reaction.
func (c Case) compare(got reaction) error {
	if got.err != nil {
		return got.err
	}
	if c.accepts(got) {
		return nil
	}
	return fmt.Errorf("status %d, reset with %#x; want the status %d or a reset with %#x", got.status, got.reset, c.want.status, c.want.stream)
}

func (c Case) accepts(got reaction) bool {
	if got.reset > 0 {
		return slices.Contains(c.want.stream, got.reset)
	}
	return slices.Contains(c.want.status, got.status)
}

// works checks that the connection still serves a request: an error of a stream is none of the connection.
func works(ctx context.Context, conn *quic.Conn) error {
	s, err := conn.OpenStream(ctx)
	if err != nil {
		return fmt.Errorf("the next request: %w", err)
	}
	Case{message: get, end: fin}.sendMessage(s)
	if got := read(s, false); got.status != 200 {
		return fmt.Errorf("the next request: status %d, reset with %#x, %w", got.status, got.reset, got.err)
	}
	return nil
}

// RunClient plays a case as a server that accepts one connection from l, on which the client under test sends a
// GET by do; do returns an error unless the response is complete and was accepted. The client has until ctx.
func RunClient(ctx context.Context, l *quic.Listener, c Case, do func(context.Context) error) error {
	result := make(chan error, 1)
	doing, cancel := context.WithCancel(ctx) // it may try another connection, which nobody serves
	defer cancel()
	go func() { result <- do(doing) }()
	conn, err := l.Accept(ctx)
	if err != nil {
		return fmt.Errorf("no connection: %w", errors.Join(err, <-result))
	}
	defer func() { _ = conn.CloseWithError(noError, "") }()
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseWithError(noError, "too slow") })
	defer stop()
	sendErr := c.open(ctx, conn)
	s, err := conn.AcceptStream(ctx)
	if err == nil && sendErr == nil {
		go func() { _, _ = io.Copy(io.Discard, s) }()
		c.sendMessage(s)
		if c.late.bytes != "" {
			time.Sleep(pause)
			_ = c.late.send(ctx, conn)
		}
	}
	if c.want.conn != nil {
		err := c.closed(conn, err)
		cancel()
		<-result
		return err
	}
	err = <-result
	if conn.Context().Err() != nil {
		return fmt.Errorf("the connection ended: %w", context.Cause(conn.Context()))
	}
	switch {
	case c.want.ok && err != nil:
		return fmt.Errorf("the response was not accepted: %w", err)
	case !c.want.ok && err == nil:
		return errors.New("the response was accepted")
	}
	return nil
}
