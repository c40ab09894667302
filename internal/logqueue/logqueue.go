// Package logqueue keeps a program alive whose log nobody reads. A pipe or terminal that is full
// blocks write(2), and with it whoever logs: a gateway that waits for the reader of its log serves no
// reload and no signal. A Writer takes lines into a bounded buffer and writes them from a goroutine of
// its own; what does not fit is dropped and counted.
package logqueue

import (
	"io"
	"sync"
	"time"
)

// Writer is an io.Writer that never blocks and never fails. Each call of Write is one record, kept or
// dropped as a whole. Its methods may be called from any goroutine.
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
}

// New returns a writer that passes records on to to and keeps at most limit bytes while to blocks,
// beside as many that are being written. note formats the record that follows a gap, with the number of
// records that are missing; nil leaves it out.
func New(to io.Writer, limit int, note func(dropped uint64) []byte) *Writer {
	w := &Writer{to: to, limit: limit, note: note}
	w.changed = sync.NewCond(&w.mu)
	go w.run()
	return w
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
	w.queue = append(w.queue, record...)
	w.changed.Broadcast()
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

// Close waits until all records are written, but no longer than limit, and drops what comes later. It
// reports whether all are.
func (w *Writer) Close(limit time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.changed.Broadcast()
	late := false
	timer := time.AfterFunc(limit, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		late = true
		w.changed.Broadcast()
	})
	defer timer.Stop()
	for !late && (len(w.queue) > 0 || w.writing > 0) {
		w.changed.Wait()
	}
	return len(w.queue) == 0 && w.writing == 0
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
		out, lost := w.queue, w.lost // records were lost behind those that filled the queue
		w.queue, w.lost, w.writing = spare[:0], 0, len(out)
		w.mu.Unlock()
		_, _ = w.to.Write(out) // there is nowhere to report a log that fails
		if lost > 0 && w.note != nil {
			_, _ = w.to.Write(w.note(lost))
		}
		w.mu.Lock()
		spare, w.writing = out, 0
		w.changed.Broadcast()
	}
}
