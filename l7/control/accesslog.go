package control

import (
	"log/slog"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/logqueue"
	"github.com/millrace/millrace/l7/proxy"
)

// accessLog writes a line of JSON for each request. Loops never wait for it: lines that do not fit the buffer are counted
// and dropped.
type accessLog struct {
	queue *logqueue.Writer
	file  *logqueue.File
	path  string
	log   *slog.Logger
	// before counts the lines that the logs before this one have dropped.
	before uint64
}

// dropped returns how many lines have been dropped since the start.
func (l *accessLog) dropped() uint64 { return l.before + l.queue.Dropped() }

// report logs that lines wait for room on the disk, and that they are written again.
func (l *accessLog) report(err error) {
	if err != nil {
		l.log.Error("access log", "error", err.Error(), "result", "lines wait in access_log.buffer; more are dropped and counted")
		return
	}
	l.log.Info("access log", "result", "lines are written again", "dropped_lines", l.dropped())
}

// accessLogPath returns the path of a configuration's log, "-" for the standard output, "" for none.
func accessLogPath(cfg *config.Config) string {
	if f := cfg.AccessLog.File; f == "" || f == "-" {
		return f
	}
	return cfg.Beside(cfg.AccessLog.File)
}

// planLog opens the log of a configuration anew: after a rotation its file is another one.
func (s *Set) planLog(cfg *config.Config) (*logqueue.File, error) {
	path := accessLogPath(cfg)
	if path == "" {
		return nil, nil
	}
	return logqueue.Open(path)
}

// useLog makes a file the log; nil is none.
func (s *Set) useLog(cfg *config.Config, w *logqueue.File) {
	old := s.log.Load()
	switch {
	case w == nil:
		s.log.Store(nil)
		if old != nil {
			go old.close() // it may wait for a slow disk
		}
	case old != nil && s.cfg.AccessLog.Buffer == cfg.AccessLog.Buffer:
		if err := old.file.Swap(w); err != nil {
			s.opt.Log.Error("access log", "error", err.Error())
		}
	default:
		l := &accessLog{file: w, path: accessLogPath(cfg), log: s.opt.Log}
		if old != nil {
			l.before = old.dropped()
		}
		l.queue = logqueue.New(l.file, cfg.AccessLog.Buffer, nil)
		l.queue.OnError(l.report)
		l.queue.Gather(gatherLines)
		s.log.Store(l)
		if old != nil {
			go old.close()
		}
	}
}

const (
	// closeLimit bounds how long the end waits for the log.
	closeLimit = 2 * time.Second
	// gatherLines is how long a line waits for others to be written with.
	gatherLines = 10 * time.Millisecond
)

func (l *accessLog) close() {
	if !l.queue.Close(closeLimit) {
		l.log.Error("access log", "result", "not all lines were written", "file", l.path, "dropped_lines", l.dropped())
	}
	if err := l.file.Close(); err != nil {
		l.log.Error("access log", "error", err.Error())
	}
}

// logger returns the function that writes the records of one loop.
func (s *Set) logger() func(*proxy.Record) {
	var line recordLine // of this loop
	return func(r *proxy.Record) {
		l := s.log.Load()
		if l == nil {
			return
		}
		line.text = line.append(line.text[:0], time.Now(), r)
		_, _ = l.queue.Write(line.text) // it does not fail
	}
}

// recordLine makes the lines of a loop. Most of them have the second of the one before, which is not formatted again.
type recordLine struct {
	text   []byte
	second int64
	prefix []byte // what lines of that second begin with
}

// timed appends the beginning of a line, up to the milliseconds.
func (l *recordLine) timed(b []byte, now time.Time) []byte {
	if s := now.Unix(); s != l.second || l.prefix == nil {
		l.second = s
		l.prefix = now.UTC().AppendFormat(append(l.prefix[:0], `{"time":"`...), "2006-01-02T15:04:05.")
	}
	ms := now.Nanosecond() / int(time.Millisecond)
	return append(append(b, l.prefix...), '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z')
}

// append appends a line of JSON.
func (l *recordLine) append(b []byte, now time.Time, r *proxy.Record) []byte {
	b = l.timed(b, now)
	b = append(b, `","client":"`...)
	b = r.Client.AppendTo(b)
	b = append(b, '"')
	for _, f := range []struct{ name, value string }{
		{`,"listener":`, r.Listener},
		{`,"protocol":`, r.Protocol},
		{`,"method":`, r.Method},
		{`,"host":`, r.Host},
		{`,"path":`, r.Path},
		{`,"route":`, r.Route},
		{`,"rule":`, r.Rule},
		{`,"pool":`, r.Pool},
		{`,"backend":`, r.Backend},
		{`,"error":`, r.Error},
		{`,"reason":`, r.Reason},
		{`,"request_id":`, r.RequestID},
		{`,"user":`, r.User},
		{`,"cache":`, r.Cache},
	} {
		if f.value != "" {
			b = appendJSON(append(b, f.name...), f.value)
		}
	}
	b = strconv.AppendInt(append(b, `,"status":`...), int64(r.Status), 10)
	b = strconv.AppendInt(append(b, `,"attempts":`...), int64(r.Attempts), 10)
	b = strconv.AppendUint(append(b, `,"bytes_in":`...), r.BytesIn, 10)
	b = strconv.AppendUint(append(b, `,"bytes_out":`...), r.BytesOut, 10)
	b = appendSeconds(append(b, `,"seconds":`...), r.Began)
	return append(b, "}\n"...)
}

// appendSeconds appends a time with microseconds.
func appendSeconds(b []byte, d time.Duration) []byte {
	us := d.Round(time.Microsecond).Microseconds()
	b = strconv.AppendInt(b, us/1e6, 10)
	b = append(b, '.')
	for digit := int64(1e5); digit > 0; digit /= 10 {
		b = append(b, '0'+byte(us/digit%10))
	}
	return b
}

// plain are the bytes that a string of JSON has as they are.
var plain = func() (t [256]bool) {
	for c := byte(' '); c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendJSON appends a string of JSON. What clients send need not be UTF-8, and must not end the line.
func appendJSON(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	i := 0
	for i < len(s) && plain[s[i]] {
		i++
	}
	b = append(append(b, '"'), s[:i]...)
	for i < len(s) {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c < ' ' || c == 0x7f:
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			default:
				b = append(b, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			b = append(b, `\ufffd`...)
		} else {
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	return append(b, '"')
}
