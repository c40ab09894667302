package lifetime

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

// serviceManager receives what the process reports by sd_notify(3).
func serviceManager(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return c
}

func wantState(t *testing.T, manager *net.UnixConn, want string) {
	t.Helper()
	b := make([]byte, 64)
	n, err := manager.Read(b)
	if err != nil || string(b[:n]) != want {
		t.Errorf("the service manager got %q, %v, want %q", b[:n], err, want)
	}
}

// TestASignalOpensLogsAgain sends SIGUSR1 before Run and while it serves, also where there are no logs.
func TestASignalOpensLogsAgain(t *testing.T) {
	serviceManager(t)
	for _, with := range []bool{true, false} {
		life := Begin()
		opened := make(chan struct{}, 8)
		send := func() {
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGUSR1); err != nil {
				t.Error(err)
			}
		}
		send()
		c := Config{Name: "test", Log: slog.New(slog.DiscardHandler)}
		if with {
			c.Reopen = func() error { opened <- struct{}{}; return errors.New("no such folder") }
		}
		_ = life.Run(t.Context(), func(context.Context) error {
			if with {
				<-opened
				send()
				<-opened
			}
			return nil
		}, c)
	}
}

// TestSignalsReloadUntilTheEnd sends a SIGHUP before Run, and one while it serves: both reload, and the last reload has ended
// when Run returns.
func TestSignalsReloadUntilTheEnd(t *testing.T) {
	manager := serviceManager(t)
	life := Begin()
	hangUp := func() {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
			t.Error(err)
		}
	}
	hangUp()
	refused, ended := errors.New("refused"), errors.New("no device is left")
	results := make(chan error, 2)
	reloads := 0
	err := life.Run(t.Context(), func(context.Context) error {
		if err := <-results; !errors.Is(err, refused) {
			t.Errorf("the first reload: %v", err)
		}
		wantState(t, manager, "READY=1")
		hangUp()
		if err := <-results; err != nil {
			t.Errorf("the second reload: %v", err)
		}
		return ended
	}, Config{
		Name: "test", Log: slog.New(slog.DiscardHandler),
		Reload: func() error {
			if reloads++; reloads == 1 {
				return refused
			}
			return nil
		},
		Reloaded: func(err error) { results <- err },
	})
	if !errors.Is(err, ended) || reloads != 2 {
		t.Errorf("%v after %d reloads", err, reloads)
	}
	wantState(t, manager, "STOPPING=1")
}

// TestRunReturnsWhenNoReloadIsUnderWay ends while a reload is held up.
func TestRunReturnsWhenNoReloadIsUnderWay(t *testing.T) {
	life := Begin()
	begun, release := make(chan struct{}), make(chan struct{})
	over := false
	life.hup <- syscall.SIGHUP
	_ = life.Run(t.Context(), func(context.Context) error {
		<-begun
		go close(release)
		return nil
	}, Config{
		Log:      slog.New(slog.DiscardHandler),
		Reload:   func() error { close(begun); <-release; return nil },
		Reloaded: func(error) { over = true },
	})
	if !over {
		t.Error("Run has returned while a reload was under way")
	}
}

// TestOneProcessReportsForBoth runs a process that replaces another, and one that is replaced.
func TestOneProcessReportsForBoth(t *testing.T) {
	manager := serviceManager(t)
	log := slog.New(slog.DiscardHandler)
	serve := func(context.Context) error { return nil }
	replaced := func(so bool) func() bool { return func() bool { return so } }
	for _, c := range []Config{{Log: log, Replaces: true}, {Log: log, Replaced: replaced(true)}, {Log: log, Replaced: replaced(false)}} {
		if err := Begin().Run(t.Context(), serve, c); err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"STOPPING=1", "READY=1", "READY=1", "STOPPING=1"} {
		wantState(t, manager, want)
	}
}
