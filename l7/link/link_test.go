package link

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/transport"
)

// counted is a connection that takes all, and counts the ends of its output.
type counted struct {
	transport.Conn
	ends int
}

func (c *counted) Write(p []byte) (int, error) { return len(p), nil }

func (c *counted) CloseWrite() error {
	c.ends++
	return nil
}

// The output of a connection ends once, after what was gathered.
func TestOutputEndsOnce(t *testing.T) {
	r := NewRunner(memtransport.New())
	c := &counted{}
	l := New(&r, nil)
	l.Conn = c
	l.Out = append(l.Buffer(), "abc"...)
	l.CloseWrite()
	for range 3 {
		r.Run.run()
		l.Touch()
	}
	if c.ends != 1 || l.Written != 3 || l.output != OutputEnded {
		t.Errorf("%d ends after %d bytes, state %d", c.ends, l.Written, l.output)
	}
}

// reset is a connection whose peer has answered and then reset it.
type reset struct {
	transport.Conn
	answer string
}

func (c *reset) Write([]byte) (int, error) { return 0, unix.ECONNRESET }
func (c *reset) Abort()                    {}
func (c *reset) Close()                    {}

func (c *reset) Read(p []byte) (n int, err error) {
	if c.answer == "" {
		return 0, unix.ECONNRESET
	}
	n = copy(p, c.answer)
	c.answer = c.answer[n:]
	return n, nil
}

// heard is a session that notes its input.
type heard struct {
	input  string
	failed error
}

func (h *heard) Input(p []byte, _ bool) int { h.input += string(p); return len(p) }
func (h *heard) Writable()                  {}
func (h *heard) Expired(bool)               {}
func (h *heard) Failed(err error)           { h.failed = err }

// Where the output fails, the session gets what had arrived before it hears of the failure, unless it has closed the link.
func TestInputOutlivesTheOutput(t *testing.T) {
	for _, c := range []struct {
		name     string
		relayed  bool // the content that could not be sent came from another link
		closing  bool
		answered string
		failed   error
	}{
		{name: "written", answered: "answer", failed: unix.ECONNRESET},
		{name: "relayed", relayed: true, answered: "answer", failed: unix.ECONNRESET},
		{name: "closing", closing: true},
	} {
		r := NewRunner(memtransport.New())
		l, h := New(&r, nil), &heard{}
		l.Conn, l.Session = &reset{answer: "answer"}, h
		l.Out = append(l.Buffer(), "content"...)
		if c.relayed {
			l.failure = unix.ECONNRESET
		}
		if l.Touch(); c.closing {
			l.Close()
		}
		r.Run.run()
		if h.input != c.answered || h.failed != c.failed || !l.Closed() {
			t.Errorf("%s: the session got %q and %v", c.name, h.input, h.failed)
		}
	}
}

// lastWriter is a connection that notes which bytes were written as the last.
type lastWriter struct {
	counted
	last, other string
}

func (c *lastWriter) Write(p []byte) (int, error)     { c.other += string(p); return len(p), nil }
func (c *lastWriter) WriteLast(p []byte) (int, error) { c.last += string(p); return len(p), nil }
func (c *lastWriter) Close()                          { c.ends++ }
func (c *lastWriter) Linger()                         { c.ends++ }
func (c *lastWriter) Abort()                          {}

// Bytes behind which the output ends are written as the last ones. Those before a reset are not: it would take them along.
func TestLastBytesAreWrittenAsSuch(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*Link)
		last bool
		ends int
	}{
		{"goes on", func(*Link) {}, false, 0},
		{"output ends", (*Link).CloseWrite, true, 1},
		{"closes", (*Link).Close, true, 1},
		{"lingers", func(l *Link) { l.CloseBy(Linger); l.Close() }, true, 1},
		{"reset", func(l *Link) { l.CloseBy(Reset); l.Close() }, false, 0},
	} {
		r := NewRunner(memtransport.New())
		conn := &lastWriter{}
		l := New(&r, nil)
		l.Conn, l.Session = conn, &heard{}
		l.Out = append(l.Buffer(), "content"...)
		l.Touch()
		c.end(l)
		r.Run.run()
		want, other := "", "content"
		if c.last {
			want, other = other, want
		}
		if conn.last != want || conn.other != other || conn.ends != c.ends || l.Written != 7 {
			t.Errorf("%s: %q as the last, %q otherwise, %d ends, %d bytes", c.name, conn.last, conn.other, conn.ends, l.Written)
		}
	}
}
