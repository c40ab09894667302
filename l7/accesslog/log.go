package accesslog

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/logqueue"
	"github.com/millrace/millrace/metrics"
)

// Options describe a log.
type Options struct {
	Path   string // of the file; "-" is the standard output, "" a syslog server
	Buffer int    // bytes of lines that may wait
	Layout *Layout
	OneIn  int           // a line for one in so many requests; 0 and 1 for each
	Slow   time.Duration // requests that took as long always have one; 0: none for that
	Rotate logqueue.Rotation
	Syslog Syslog

	Log *slog.Logger // required
}

// Target is where lines go, opened ahead of its use.
type Target struct {
	file   *logqueue.File
	syslog *conn
}

// Open opens the target of a log. A syslog server need not be there.
func Open(o *Options) (Target, error) {
	if o.Path == "" {
		return Target{syslog: newConn(o.Syslog)}, nil
	}
	f, err := logqueue.Open(o.Path)
	if err != nil {
		return Target{}, err
	}
	f.Rotate(o.Rotate, func(err error) {
		o.Log.Error("access log", "error", err.Error(), "result", "the file is not rotated: lines go on in it")
	})
	return Target{file: f}, nil
}

// Close closes a target that no log uses.
func (t *Target) Close() error {
	if t.file != nil {
		return t.file.Close()
	}
	return nil
}

// Log is a log in use. A reload makes another one, which may go on with the queue of the one before.
type Log struct {
	opt    Options
	out    *output
	header *header // of syslog; nil: none
}

// output is a queue and what it writes to.
type output struct {
	queue  *logqueue.Writer
	file   *logqueue.File
	syslog *conn
	path   string
	log    *slog.Logger
	all    *outputs
	ended  atomic.Bool // closed, or given up after closeLimit
}

// outputs holds the outputs since the start. One that was replaced may lose lines until it is closed.
type outputs struct {
	mu   sync.Mutex
	past uint64 // lines that outputs which are not in open have lost
	open []*output
}

// add adds an output, and removes those that cannot lose more lines.
func (a *outputs) add(o *output) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = slices.DeleteFunc(a.open, func(o *output) bool {
		over := o.ended.Load() && o.queue.Waiting() == 0
		if over {
			a.past += o.dropped()
		}
		return over
	})
	a.open = append(a.open, o)
}

// dropped returns how many lines all outputs have lost.
func (a *outputs) dropped() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.past
	for _, o := range a.open {
		n += o.dropped()
	}
	return n
}

// dropped returns how many lines the output has lost.
func (o *output) dropped() uint64 {
	n := o.queue.Dropped()
	if o.syslog != nil {
		n += o.syslog.lost.Load()
	}
	return n
}

const (
	// closeLimit bounds how long the end waits for the log.
	closeLimit = 2 * time.Second
	// gatherLines bounds the time that a line waits for others to be written with.
	gatherLines = 10 * time.Millisecond
)

// Use makes a target the one of a log, in place of the one of old, which may be nil. old is not used any more.
func Use(o Options, t Target, old *Log) *Log {
	l := &Log{opt: o}
	l.opt.Layout = o.Layout.weighed(o.OneIn > 1)
	if t.syslog != nil {
		l.header = newHeader(&o.Syslog)
	}
	if old != nil && t.file != nil && old.out.file != nil && old.opt.Buffer == o.Buffer {
		l.out = old.out
		l.Swap(t)
		return l
	}
	out := &output{file: t.file, syslog: t.syslog, path: o.Path, log: o.Log, all: &outputs{}}
	if old != nil {
		out.all = old.out.all
	}
	if l.out = out; t.file != nil {
		out.queue = logqueue.New(t.file, o.Buffer, nil)
	} else {
		out.path = o.Syslog.Network + ":" + o.Syslog.Address
		out.queue = logqueue.New(t.syslog, o.Buffer, nil)
	}
	out.queue.OnError(out.report)
	out.queue.Gather(gatherLines)
	out.all.add(out)
	if old != nil {
		go old.Close() // it may wait for a slow disk
	}
	return l
}

// Swap has lines of a file go to another one, after a rotation.
func (l *Log) Swap(t Target) {
	if err := l.out.file.Swap(t.file); err != nil {
		l.opt.Log.Error("access log", "error", err.Error())
	}
}

// Reopen opens the file again, after it was renamed. Lines to a syslog server, or the standard output, have none.
func (l *Log) Reopen() error {
	if l.out.file == nil || l.opt.Path == "-" {
		return nil
	}
	t, err := Open(&l.opt)
	if err == nil {
		l.Swap(t)
	}
	return err
}

// StopRotating leaves the rotation to another process, which writes the same file. What this one still writes is appended to the file
// that it has open.
func (l *Log) StopRotating() {
	if l.out.file != nil {
		l.out.file.Rotate(logqueue.Rotation{}, nil)
	}
}

// Dropped returns how many lines have been lost since the start: dropped as the queue was full, or lost on the way to the server as
// far as this host knows.
func (l *Log) Dropped() uint64 { return l.out.all.dropped() }

// report logs that lines wait for room on the disk, or for the server, and that they are written again.
func (o *output) report(err error) {
	if err != nil {
		o.log.Error("access log", "to", o.path, "error", err.Error(), "result", "lines wait in access_log.buffer; more are dropped and counted")
		return
	}
	o.log.Info("access log", "to", o.path, "result", "lines are written again", "dropped_lines", o.all.dropped())
}

// Close writes what waits, within a time, and closes the target.
func (l *Log) Close() {
	o := l.out
	whole := o.queue.Close(closeLimit)
	var to io.Closer = o.syslog
	if o.file != nil {
		to = o.file
		o.queue.Close(closeLimit) // lines that are given up are counted
	}
	err := to.Close() // it ends a write to a server
	o.queue.Close(closeLimit)
	if o.ended.Store(true); !whole {
		o.log.Error("access log", "result", "not all lines were written", "to", o.path, "dropped_lines", l.Dropped())
	}
	if err != nil {
		o.log.Error("access log", "error", err.Error())
	}
}

// weighed returns the layout with, or without, the weight of lines.
func (l *Layout) weighed(weigh bool) *Layout {
	c := *l
	c.weigh = weigh
	return &c
}

// Lines makes the lines of one loop. The zero value is ready to be used.
type Lines struct {
	text    []byte
	memory  memory
	read    clock.Time // the loop's time when memory.now was read
	skipped metrics.Counter
}

// Skipped returns how many requests have no line as others stand for them. Any goroutine may call it.
func (l *Lines) Skipped() uint64 { return l.skipped.Load() }

// Write writes the line of a record, or none where it is not of the sample. at is the loop's time.
func (l *Lines) Write(to *Log, at clock.Time, r *Record) {
	weight := 1
	if n := to.opt.OneIn; n > 1 && !r.Failed() && (to.opt.Slow == 0 || r.Began < to.opt.Slow) {
		if weight = n; rand.IntN(n) != 0 {
			l.skipped.Add(1)
			return
		}
	}
	l.text = l.append(l.text[:0], l.now(at), to, r, weight)
	_, _ = to.out.queue.Write(l.text) // it does not fail
}

// now returns the time of day. It is read once for the lines of a millisecond, which lines have the time in, so that a clock that is set counts
// as soon as the next one begins.
func (l *Lines) now(at clock.Time) time.Time {
	if now := l.memory.now; !now.IsZero() && at >= l.read && at.Sub(l.read) < time.Millisecond {
		return now
	}
	l.read = at
	return time.Now()
}

// append appends the line of a record.
func (l *Lines) append(b []byte, now time.Time, to *Log, r *Record, weight int) []byte {
	l.memory.set(now)
	if to.header != nil {
		b = to.header.append(b, &l.memory.moments, r)
	}
	return append(to.opt.Layout.append(b, &l.memory, r, weight), '\n')
}
