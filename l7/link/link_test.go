package link

import (
	"testing"

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
