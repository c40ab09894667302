// Package lifetime runs a daemon, the gateway and the stack alike, from its start to its end: it reloads at SIGHUP, opens logs
// again at SIGUSR1, tells the
// service manager of systemd when the daemon serves and when it stops, and keeps a log without a reader from ending it.
//
//	life := lifetime.Begin() // before anything is open
//	d, err := daemon.Open(...)
//	err = life.Run(ctx, d.Run, lifetime.Config{Name: "gateway", Log: log, Reload: d.Reload, Reloaded: report})
//	err = errors.Join(err, d.Close())
package lifetime

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Config describes a daemon.
type Config struct {
	Name string       // message of its log records
	Log  *slog.Logger // required

	Reload   func() error // reads the configuration again
	Reloaded func(error)  // reports the result of each Reload
	Reopen   func() error // opens the files of logs again; nil: there are none

	Replaces bool        // this process replaces another, which reports to the service manager for both
	Replaced func() bool // another process has replaced this one, whose end is not that of the service; nil: none has
}

// Life holds the signals of a process that is to be a daemon.
type Life struct{ hup, usr1 chan os.Signal }

// Begin takes over SIGHUP and SIGUSR1, whose default action would end a process that is still opening its devices, and SIGPIPE, since
// the reader of the log may exit before the daemon does. Programs that the process starts do not inherit either.
func Begin() *Life {
	l := &Life{hup: make(chan os.Signal, 1), usr1: make(chan os.Signal, 1)}
	signal.Notify(l.hup, syscall.SIGHUP)
	signal.Notify(l.usr1, syscall.SIGUSR1)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return l
}

// End restores the defaults of SIGHUP and SIGUSR1. Run calls it; a daemon that does not come to Run calls it itself.
func (l *Life) End() {
	signal.Stop(l.hup)
	signal.Stop(l.usr1)
}

// Run calls run, which serves until ctx ends, and reloads at each SIGHUP meanwhile. No reload is under way when it returns.
// It returns the error of run.
func (l *Life) Run(ctx context.Context, run func(context.Context) error, c Config) error {
	defer l.End()
	if !c.Replaces {
		c.notify("READY=1")
	}
	reloading, stop := context.WithCancel(ctx)
	var reloads sync.WaitGroup
	reloads.Go(func() { l.reload(reloading, &c) })
	err := run(ctx)
	if c.Replaced == nil || !c.Replaced() {
		c.notify("STOPPING=1")
	}
	stop()
	reloads.Wait()
	return err
}

// reload reloads at every signal until ctx ends.
func (l *Life) reload(ctx context.Context, c *Config) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.hup:
			c.Reloaded(c.Reload())
		case <-l.usr1:
			c.reopen()
		}
	}
}

// reopen opens the files of logs again.
func (c *Config) reopen() {
	if c.Reopen == nil {
		return
	}
	if err := c.Reopen(); err != nil {
		c.Log.Error(c.Name, "error", err.Error(), "result", "the files of logs stay as they are")
		return
	}
	c.Log.Info(c.Name, "result", "the files of logs are opened again")
}

// notify sends a state to the service manager. A daemon serves also where that fails.
func (c *Config) notify(state string) {
	if err := Notify(state); err != nil {
		c.Log.Warn(c.Name, "error", err.Error())
	}
}
