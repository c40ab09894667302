package programs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// command returns a command in the namespace, in a process group of its own.
func (p *place) command(args ...string) *exec.Cmd {
	args = slices.Concat(p.prefix, args)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// process is a program that runs in a namespace.
type process struct {
	*exec.Cmd
	log  testnet.Log
	done chan struct{}
	err  error // of Wait, once done

	stopped bool // by the test
	killed  bool // when the test ended
}

func (p *process) String() string { return strings.Join(p.Args, " ") }

// start starts a program. Its process group is killed when the test ends.
func (p *place) start(t *testing.T, args ...string) *process {
	t.Helper()
	return p.begin(t, p.command(args...))
}

// begin starts a command. Its standard output, unless it goes elsewhere, and error are in the log.
func (p *place) begin(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	s := &process{Cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &s.log
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &s.log
	}
	cmd.WaitDelay = time.Second // a descendant that outlives it may hold the pipe
	must(t, p.ns.Start(cmd))
	go func() {
		s.err = cmd.Wait()
		if errors.Is(s.err, exec.ErrWaitDelay) {
			s.err = nil
		}
		close(s.done)
	}()
	t.Cleanup(func() {
		s.killed = !s.ended()
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		<-s.done
		if t.Failed() && s.log.String() != "" && (s.err != nil || s.killed) {
			t.Logf("%s:\n%s", s, last(s.log.String(), 6000))
		}
	})
	return s
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait waits for the end of the process. It is killed after the limit.
func (p *process) wait(limit time.Duration) error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(limit):
	}
	_ = unix.Kill(-p.Process.Pid, unix.SIGKILL)
	<-p.done
	return context.DeadlineExceeded
}

// stop ends a process by SIGTERM. It must end in time, by that signal or with code 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.stopWith(t, unix.SIGTERM, 0)
}

// stopWith ends a process by a signal. It must end in time, by that signal, with code 0 or with the other code.
func (p *process) stopWith(t *testing.T, by syscall.Signal, code int) {
	t.Helper()
	if p.ended() {
		t.Errorf("%s ended before its time: %v", p, p.err)
		return
	}
	p.stopped = true
	_ = p.Process.Signal(by)
	err := p.wait(patience)
	var exit *exec.ExitError
	if errors.As(err, &exit) && (exit.Sys().(syscall.WaitStatus).Signal() == by || exit.ExitCode() == code) {
		return
	}
	if err != nil {
		t.Errorf("%s: %v after %v", p, err, by)
	}
}

// try runs a program until it ends, no longer than the limit, and returns what it prints and its exit code: -1 for a signal or the limit.
func (p *place) try(t *testing.T, limit time.Duration, args ...string) (out string, code int) {
	t.Helper()
	s := p.start(t, args...)
	return s.finish(t, limit)
}

// finish waits for the end of a process and returns what it prints, and its exit code: -1 for a signal or the limit.
func (p *process) finish(t *testing.T, limit time.Duration) (out string, code int) {
	t.Helper()
	err := p.wait(limit)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return p.log.String(), exit.ExitCode()
	case err != nil:
		return p.log.String() + "\n" + err.Error(), -1
	}
	return p.log.String(), 0
}

// run runs a program that must succeed within the test's patience, and returns what it prints.
func (p *place) run(t *testing.T, args ...string) string {
	t.Helper()
	out, code := p.try(t, patience, args...)
	if code != 0 {
		t.Fatalf("%s: code %d: %s", strings.Join(args, " "), code, last(out, 4000))
	}
	return out
}

// runHere runs a program that needs no network.
func runHere(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// last returns the end of a text.
func last(s string, most int) string {
	if len(s) > most {
		return "..." + s[len(s)-most:]
	}
	return s
}

// needs skips a test where a program is not installed.
func needs(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed: `make interop-shim` installs it", name)
		}
	}
}

// writeFile writes a file that every user can read.
func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o644), os.Chmod(path, 0o644))
	return path
}
