package proxy

import (
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
)

// bypassLeast is the content for which it pays to move it without reading: below, a read and a write are cheaper.
const bypassLeast = 64 << 10

// bypass moves content of one connection to another past the protocol machines. Content with a Content-Length has no
// framing in HTTP/1.1 (RFC 9112 6.2), so that its bytes may go from one socket to the other as they are, by splice(2)
// where the kernel has both. The machines get to know how many have passed, and check the length as before.
type bypass struct {
	sender   side.Direct
	r        *relay
	from     *http1.Machine
	to       *http1.Machine
	receiver *link.Link
}

// startBypass has the rest of content move from one connection to the other by itself, where both are plain and it pays. TLS and
// chunks change the bytes on their way, so that they have to pass here.
func (x *exchange) startBypass(r *relay) {
	if x.inspected != nil && x.inspected.watches(r == &x.down) || x.shield != nil && x.shield.watches(r == &x.down) {
		return
	}
	a, b := x.caps.Direct, x.direct
	if r == &x.down {
		a, b = b, a
	}
	// Content that is held goes first, and what is kept for another attempt has to pass here: neither may be overtaken, or missed. What a
	// cache or a mirror gathers has to pass here, too.
	if a == nil || b == nil || r.to == nil || len(r.held)+len(r.kept) > 0 || r == &x.down && x.cached != nil && x.cached.gathers() || r == &x.up && x.mirror != nil {
		return
	}
	l, from := a.Plain()
	receiver, to := b.Plain()
	if from.Left() < bypassLeast || to.Sending() != http1.Length || l.Engine != nil || receiver.Engine != nil || l.Moves == link.Unsupported {
		return
	}
	r.bypassed = bypass{sender: a, r: r, from: from, to: to, receiver: receiver}
	l.Bypass = &r.bypassed
}

// Path implements link.Mover. At most what is left of the content is moved: the bytes behind it are the next message's.
func (s *bypass) Path() (to *link.Link, most int) {
	return s.receiver, int(min(s.from.Left(), link.BypassMost))
}

// Moved implements link.Mover: content ends with its length.
func (s *bypass) Moved(n int, _ bool) (over bool) {
	if n > 0 {
		s.from.Bypassed(int64(n))
		s.r.passed(n, s.receiver, s.to)
		s.sender.Progress()
	}
	return s.from.Left() == 0 // the session has the end of the message to report
}
