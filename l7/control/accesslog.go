package control

import (
	"context"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/accesslog"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/topk"
)

// plannedLog is the access log of a configuration that is not in use yet; without a layout there is none.
type plannedLog struct {
	opt    accesslog.Options
	target accesslog.Target
}

// planLog opens the log of a configuration anew: after a rotation its file is another one.
func (s *Set) planLog(cfg *config.Config) (l plannedLog, err error) {
	a := &cfg.AccessLog
	if !a.Used() {
		return l, nil
	}
	o := accesslog.Options{Path: a.File, Buffer: a.Buffer, OneIn: a.Sample.OneIn, Slow: a.Sample.Slow, Log: s.opt.Log}
	if a.File != "" && a.File != "-" {
		o.Path = cfg.Beside(a.File)
	}
	o.Rotate.Size, o.Rotate.Keep = a.Rotate.Size, a.Rotate.Keep
	if o.Layout, err = a.Layout(); err != nil {
		return l, err
	}
	if a.Syslog != nil {
		o.Syslog = accesslog.Syslog{Network: a.Syslog.Network, Address: a.Syslog.Address, Facility: a.Syslog.Facility, App: a.Syslog.App}
	}
	if l.target, err = accesslog.Open(&o); err != nil {
		return plannedLog{}, err
	}
	l.opt = o
	return l, nil
}

// useLog makes a log the one in use.
func (s *Set) useLog(l plannedLog) {
	defer record(s)
	old := s.log.Load()
	if l.opt.Layout == nil {
		s.log.Store(nil)
		if old != nil {
			go old.Close() // it may wait for a slow disk
		}
		return
	}
	s.log.Store(accesslog.Use(l.opt, l.target, old))
}

// record has workers make records where something reads them.
func record(s *Set) {
	s.recording.Lock()
	defer s.recording.Unlock()
	on := s.log.Load() != nil || s.tops.Running() != nil
	for _, l := range s.loops {
		l.worker.SetRecording(on)
	}
}

// ReopenLog opens the file of the access log again, after it was renamed.
func (s *Set) ReopenLog() error {
	s.mu.Lock() // no reload meanwhile
	defer s.mu.Unlock()
	if l := s.log.Load(); l != nil {
		return l.Reopen()
	}
	return nil
}

// Top returns the routes, hosts, paths, clients and backends with the most requests of a time from now on, the first rows of each.
func Top(ctx context.Context, s *Set, over time.Duration, rows int) (topk.Result, error) {
	return s.tops.Collect(ctx, len(s.loops), over, rows)
}

// recorder returns the function that takes the records of loop number i.
func recorder(s *Set, i int) func(*proxy.Record) {
	loop := s.loops[i]
	return func(r *proxy.Record) {
		if l := s.log.Load(); l != nil {
			loop.lines.Write(l, loop.worker.Now, r)
		}
		for _, c := range s.tops.Running() {
			c.Add(i, r)
		}
	}
}

// logSkipped returns how many requests have no line in the access log as others stand for them.
func logSkipped(s *Set) (sum uint64) {
	for _, l := range s.loops {
		sum += l.lines.Skipped()
	}
	return sum
}
