// Package logqueue keeps a program alive whose log takes nothing. A pipe or terminal that is full
// blocks write(2), and with it whoever logs: a gateway that waits for the reader of its log serves no
// reload and no signal. A Writer takes lines into a bounded buffer and writes them from a goroutine of
// its own; what does not fit is dropped and counted. On a full disk the lines wait, too: they are
// written again until there is room. A File keeps lines whole where a write ends within one.
package logqueue

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Writer is an io.Writer that never blocks and never fails. Each call of Write is one record, which ends
// with a newline, kept or dropped as a whole. Its methods may be called from any goroutine.
type Writer struct {
	to    io.Writer
	limit int                         // bytes that wait at most
	note  func(dropped uint64) []byte // the record that reports dropped ones

	mu      sync.Mutex // never held while to is written
	changed *sync.Cond
	queue   []byte
	lost    uint64 // dropped since the last note
	dropped uint64 // since the start
	writing int    // bytes that to is being given
	closed  bool
	gather  time.Duration
	enough  chan struct{} // as many wait that they are not to gather
	late    bool          // a Close is over: a write that fails is not repeated
	failing bool          // the last write has failed, and is repeated
	onError func(error)   // see OnError
}

// New returns a writer that passes records on to to and keeps at most limit bytes while to blocks or its
// disk is full, beside as many that are being written. note formats the record that follows a gap, with
// the number of records that are missing; nil leaves it out.
func New(to io.Writer, limit int, note func(dropped uint64) []byte) *Writer {
	w := &Writer{to: to, limit: limit, note: note, enough: make(chan struct{}, 1)}
	w.changed = sync.NewCond(&w.mu)
	go w.run()
	return w
}

// OnError has f called, from the goroutine that writes, with the error of a write that begins to fail,
// and with nil when writing succeeds again.
func (w *Writer) OnError(f func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onError = f
}

// Gather has records wait for others, for d at most, or until they fill a quarter of the buffer: a write for each of very many takes
// longer than what they are about. A program that is killed loses those that wait.
func (w *Writer) Gather(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gather = d
}

// Write queues a copy of one record. It reports success for a dropped one too, since the loggers that
// call it can do nothing about it.
func (w *Writer) Write(record []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.queue)+len(record) > w.limit {
		w.lost++
		w.dropped++
		return len(record), nil
	}
	if len(w.queue) == 0 { // run waits
		w.changed.Broadcast()
	}
	if w.queue = append(w.queue, record...); len(w.queue) > w.limit/4 {
		w.hurry()
	}
	return len(record), nil
}

// Dropped returns how many records have been dropped since the start.
func (w *Writer) Dropped() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// Waiting returns how many bytes to has not taken yet, those that it is being given included.
func (w *Writer) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue) + w.writing
}

// Failing reports whether the last write has failed, and is repeated.
func (w *Writer) Failing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failing
}

// Close waits until all records are written, but no longer than limit, and drops what comes later. It
// reports whether all are. Records for which there is no room on the disk by then are dropped.
func (w *Writer) Close(limit time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.hurry()
	before := w.dropped
	w.changed.Broadcast()
	late := false
	timer := time.AfterFunc(limit, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		late, w.late = true, true
		w.changed.Broadcast()
	})
	defer timer.Stop()
	for !late && (len(w.queue) > 0 || w.writing > 0) {
		w.changed.Wait()
	}
	return len(w.queue) == 0 && w.writing == 0 && w.dropped == before
}

// run writes what is queued until Close.
func (w *Writer) run() {
	var spare []byte
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.queue) == 0 && !w.closed {
			w.changed.Wait()
		}
		if len(w.queue) == 0 {
			return
		}
		w.wait()
		out, lost := w.queue, w.lost // records were lost behind those that filled the queue
		w.queue, w.lost, w.writing = spare[:0], 0, len(out)
		w.mu.Unlock()
		w.put(out)
		if lost > 0 && w.note != nil {
			w.put(w.note(lost))
		}
		w.mu.Lock()
		spare, w.writing = out, 0
		w.changed.Broadcast()
	}
}

// hurry ends the wait for more records.
func (w *Writer) hurry() {
	select {
	case w.enough <- struct{}{}:
	default:
	}
}

// wait waits for more records to write at once. It gives the lock up meanwhile.
func (w *Writer) wait() {
	if w.gather == 0 || w.closed || len(w.queue) > w.limit/4 {
		return
	}
	d := w.gather
	w.mu.Unlock()
	timer := time.NewTimer(d)
	select {
	case <-timer.C:
	case <-w.enough:
		timer.Stop()
	}
	w.mu.Lock()
}

// Times between two attempts to write what there is no room for.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// put writes records. What a full disk does not take is written again, from where the write has ended.
func (w *Writer) put(out []byte) {
	wait := firstRetry
	for {
		n, err := w.to.Write(out)
		if out = out[n:]; len(out) == 0 {
			w.report(nil)
			return
		}
		if err == nil {
			err = io.ErrShortWrite
		}
		w.report(err)
		if n > 0 {
			wait = firstRetry
		}
		if !passes(err) || !w.pause(wait, len(out)) {
			w.drop(out)
			return
		}
		wait = min(2*wait, lastRetry)
	}
}

// ErrLater is joined to the error of a write that may succeed later, though no file would: of a server that is not there.
var ErrLater = errors.New("written later")

// passes reports whether a write that has failed may succeed later.
func passes(err error) bool {
	for _, e := range []error{ErrLater, unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EAGAIN, unix.ENOMEM, unix.ENOBUFS, io.ErrShortWrite} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// pause waits before another attempt to write what is left. It reports false where there is to be none.
func (w *Writer) pause(d time.Duration, left int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = left
	over := false
	timer := time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		over = true
		w.changed.Broadcast()
	})
	defer timer.Stop()
	for !over && !w.late {
		w.changed.Wait()
	}
	return !w.late
}

// drop counts records that are not written.
func (w *Writer) drop(records []byte) {
	n := uint64(bytes.Count(records, []byte("\n")))
	if records[len(records)-1] != '\n' {
		n++
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost += n
	w.dropped += n
}

// report calls OnError's function where writing begins to fail, or succeeds again.
func (w *Writer) report(err error) {
	w.mu.Lock()
	f := w.onError
	changed := w.failing != (err != nil)
	w.failing = err != nil
	w.mu.Unlock()
	if changed && f != nil {
		f(err)
	}
}
