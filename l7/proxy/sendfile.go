package proxy

import (
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/l7/link"
)

// sendfileLeast is the content for which the kernel sends a file itself. Below, the calls that look whether the file is in the page
// cache cost more than the copies they save.
const sendfileLeast = 64 << 10

// sendfileTurn is localTurn of a file that the kernel sends: without copies, it takes as long.
const sendfileTurn = 1 << 20

// plainFront returns the connection to which the kernel can send the file itself: HTTP/1.1 without TLS, and content with a length,
// which has no framing (RFC 9112 6.2). Otherwise the machine is nil.
// Files of a cache are compared with their checksums, and pass here for that.
func (l *local) plainFront() (*link.Link, *http1.Machine, *files.Answer) {
	x := l.x
	a, ok := l.answer.(*files.Answer)
	if !ok {
		return nil, nil, nil
	}
	if fd, _ := a.File(); fd < 0 || a.Left() < sendfileLeast || x.caps.Direct == nil || x.encoder != nil {
		return nil, nil, nil
	}
	to, m := x.caps.Direct.Plain()
	if m.Sending() != http1.Length || !to.SendsFiles() {
		return nil, nil, nil
	}
	return to, m, a
}

// sendDirectly has the kernel send the next part of the file to a connection, and returns how many bytes it has sent. What is
// not in the page cache is left to read.
func (l *local) sendDirectly(to *link.Link, m *http1.Machine, a *files.Answer) (sent int, going bool) {
	x := l.x
	n := a.Cached(sendfileTurn)
	if n == 0 {
		l.read()
		return 0, false
	}
	fd, at := a.File()
	sent, err := to.SendFile(fd, at, n)
	a.Advance(sent)
	if sent > 0 {
		x.down.passed(sent, to, m)
	}
	switch {
	case err != nil:
		l.fail()
	case a.Left() == 0:
		l.end()
	case sent < n: // Writable follows
		x.down.paused, l.state = true, localHeld
		x.deadline()
	default:
		return sent, true
	}
	return sent, false
}
