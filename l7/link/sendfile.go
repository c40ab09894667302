package link

import (
	"io"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/transport"
)

// SendsFiles reports whether SendFile works.
func (l *Link) SendsFiles() bool {
	_, can := l.Conn.(transport.FileSender)
	return can && l.Engine == nil
}

// SendFile sends n bytes of a file after what is gathered, and returns how many were sent. With fewer and no error
// Session.Writable follows. io.ErrUnexpectedEOF is of a file that has become shorter.
func (l *Link) SendFile(file int, offset int64, n int) (sent int, err error) {
	for !l.Blocked && sent < n {
		head, k, err := l.Conn.(transport.FileSender).SendFile(l.Out[l.sent:], file, offset+int64(sent), n-sent)
		l.sent += head
		sent += k
		l.Written += uint64(head + k)
		switch waits := l.Unsent(); {
		case err == transport.ErrAgain:
			l.Blocked = true
		case err != nil:
			return sent, err
		case waits == 0 && k == 0:
			return sent, io.ErrUnexpectedEOF
		}
	}
	if l.Unsent() == 0 {
		l.sent = 0
		l.Runner.PutBuffer(&l.Out)
	}
	if l.Full = l.Blocked; l.Full && (sent > 0 || l.outputBy == clock.Never) && l.OutputTime > 0 {
		l.Deadline(&l.outputBy, l.OutputTime)
	}
	return sent, nil
}
