package proxy

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
)

// filePending bounds the requests of a worker that wait for the descriptor of a file.
const filePending = 1024

// wait has a request wait for the descriptor of its file, as others wait for that of a connection. It reports false where as many
// wait as may. One that waits already keeps its place, which is the first.
func (l *local) wait() bool {
	w, at := l.w, 0
	if l.since == 0 {
		if at = len(w.fileWaits); at >= filePending {
			return false
		}
		l.since, l.request = w.Now, l.request.Clone()
	}
	if at == 0 {
		w.filesAt = w.Now.Add(queueCheck)
	}
	w.fileWaits, l.waits = slices.Insert(w.fileWaits, at, l), true
	l.x.deadline()
	return true
}

// withdraw takes a request out of the queue, if it is in it.
func (l *local) withdraw() {
	if l.waits {
		l.waits = false
		i := slices.Index(l.w.fileWaits, l)
		l.w.fileWaits = slices.Delete(l.w.fileWaits, i, i+1)
	}
}

// checkFiles begins the requests for whose file there is a descriptor by now, and gives up those that have waited too long.
func checkFiles(w *Worker) {
	if w.Now < nextFiles(w) {
		return
	}
	w.filesAt = w.Now.Add(queueCheck)
	for len(w.fileWaits) > 0 {
		l := w.fileWaits[0]
		l.withdraw()
		switch {
		case l.x.phase != received: // it was answered for its time is over
			l.state = localOver
		case w.Now.Sub(l.since) >= DefaultWait:
			l.refuse(unix.EMFILE)
		default:
			l.open()
		}
		if l.x != nil && l.state == localOpening { // it waits again, or a goroutine opens the file: one at a time is enough
			return
		}
	}
}

// nextFiles returns when checkFiles is to be called again.
func nextFiles(w *Worker) clock.Time {
	if len(w.fileWaits) == 0 {
		return clock.Never
	}
	return w.filesAt
}
