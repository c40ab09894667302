package transport

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Bounds of Conn.Linger. The time is that in which a peer reads a response over a bad path; the bytes are what a fast one
// sends meanwhile.
const (
	lingerTime  = 5 * time.Second
	lingerBytes = 16 << 20
	discardSize = 64 << 10
)

// lingerers are the connections of a loop that discard input until the peer ends it.
type lingerers struct {
	list    []*lingerer // in the order of their deadlines, those that have closed too
	discard []byte      // shared: its content is not read
}

// lingerer is the handler of a connection that lingers.
type lingerer struct {
	of    *lingerers
	c     Conn // nil once closed
	until clock.Time
	left  int // bytes
}

// add makes c linger: the caller has no use for it any more.
func (s *lingerers) add(now clock.Time, c Conn) {
	if c.CloseWrite() != nil { // it has failed: there is nothing to lose
		c.Close()
		return
	}
	if s.discard == nil {
		s.discard = make([]byte, discardSize)
	}
	x := &lingerer{of: s, c: c, until: now.Add(lingerTime), left: lingerBytes}
	c.SetHandler(x)
	if x.Ready(c, Readable); x.c != nil { // what has arrived is reported no more
		s.list = append(s.list, x)
	}
}

// Ready implements Handler.
func (x *lingerer) Ready(c Conn, _ Events) {
	for x.left > 0 {
		n, err := c.Read(x.of.discard)
		if err == ErrAgain {
			return
		}
		if x.left -= n; err != nil {
			break
		}
	}
	x.close()
}

func (x *lingerer) close() {
	x.c.Close()
	x.c = nil
}

// expire closes the connections whose time is up, and returns when that of the next one is.
func (s *lingerers) expire(now clock.Time) clock.Time {
	for len(s.list) > 0 {
		x := s.list[0]
		if x.c != nil && now < x.until {
			return x.until
		}
		if x.c != nil {
			x.close()
		}
		s.list[0], s.list = nil, s.list[1:]
	}
	return clock.Never
}
