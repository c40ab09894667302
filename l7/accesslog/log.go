package accesslog

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

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
	before uint64 // lines that the outputs before this one have dropped
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
	out := &output{file: t.file, syslog: t.syslog, path: o.Path, log: o.Log}
	if old != nil {
		out.before = old.Dropped()
	}
	if l.out = out; t.file != nil {
		out.queue = logqueue.New(t.file, o.Buffer, nil)
	} else {
		out.path = o.Syslog.Network + ":" + o.Syslog.Address
		out.queue = logqueue.New(t.syslog, o.Buffer, nil)
	}
	out.queue.OnError(out.report)
	out.queue.Gather(gatherLines)
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

// Dropped returns how many lines have been lost since the start: dropped as the queue was full, or lost on the way to the server as
// far as this host knows.
func (l *Log) Dropped() uint64 {
	n := l.out.before + l.out.queue.Dropped()
	if l.out.syslog != nil {
		n += l.out.syslog.lost.Load()
	}
	return n
}

// report logs that lines wait for room on the disk, or for the server, and that they are written again.
func (o *output) report(err error) {
	if err != nil {
		o.log.Error("access log", "to", o.path, "error", err.Error(), "result", "lines wait in access_log.buffer; more are dropped and counted")
		return
	}
	o.log.Info("access log", "to", o.path, "result", "lines are written again", "dropped_lines", o.before+o.queue.Dropped())
}

// Close writes what waits, within a time, and closes the target.
func (l *Log) Close() {
	o := l.out
	if !o.queue.Close(closeLimit) {
		o.log.Error("access log", "result", "not all lines were written", "to", o.path, "dropped_lines", l.Dropped())
	}
	var to io.Closer = o.syslog
	if o.file != nil {
		to = o.file
	}
	if err := to.Close(); err != nil {
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
	moments moments
	skipped metrics.Counter
}

// Skipped returns how many requests have no line as others stand for them. Any goroutine may call it.
func (l *Lines) Skipped() uint64 { return l.skipped.Load() }

// Write writes the line of a record, or none where it is not of the sample.
func (l *Lines) Write(to *Log, r *Record) {
	weight := 1
	if n := to.opt.OneIn; n > 1 && !r.Failed() && (to.opt.Slow == 0 || r.Began < to.opt.Slow) {
		if weight = n; rand.IntN(n) != 0 {
			l.skipped.Add(1)
			return
		}
	}
	l.text = l.append(l.text[:0], time.Now(), to, r, weight)
	_, _ = to.out.queue.Write(l.text) // it does not fail
}

// append appends the line of a record.
func (l *Lines) append(b []byte, now time.Time, to *Log, r *Record, weight int) []byte {
	l.moments.set(now)
	if to.header != nil {
		b = to.header.append(b, &l.moments, r)
	}
	return append(to.opt.Layout.append(b, &l.moments, r, weight), '\n')
}
