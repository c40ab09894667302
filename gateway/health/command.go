package health

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// commandProbe runs a program, without a shell.
type commandProbe []string

// maxOutput bounds the kept part of a program's output: the start, of which a cause shows a line.
const maxOutput = 512

// pipeDelay is the time that a program that left its process group may hold its output open.
const pipeDelay = 100 * time.Millisecond

// ask runs the program in a process group of its own. When ctx ends, or the program does, the
// whole group is killed. A process that has made a group of its own lives on, but is not waited
// for. The program's thread is held so that it dies with us: the kernel's signal is tied to it.
func (p commandProbe) ask(ctx context.Context, t Target) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out := &head{}
	cmd := exec.Cmd{
		Path: p[0], Args: p, Dir: "/", Env: environment(t),
		Stdout: out, Stderr: out, WaitDelay: pipeDelay,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", ErrCommand, err)
	}
	reap(ctx, cmd.Process.Pid)
	err := cmd.Wait() // an error also when only the pipe was left: decide by the state
	if cmd.ProcessState == nil {
		return fmt.Errorf("%w: %w", ErrCommand, err)
	}
	return verdict(ctx, cmd.ProcessState, out)
}

// verdict returns what the end of a program says.
func verdict(ctx context.Context, st *os.ProcessState, out *head) error {
	switch {
	case st.Success():
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case out.line() == "":
		return fmt.Errorf("%w: %s", ErrCommand, st)
	}
	return fmt.Errorf("%w: %s: %s", ErrCommand, st, out.line())
}

// reap waits until the leader of a process group has ended, which it makes happen when ctx ends,
// and kills the rest of the group. It leaves the leader to be waited for: until then the number of
// the group has no other process.
func reap(ctx context.Context, pid int) {
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		unix.Kill(-pid, unix.SIGKILL)
		close(killed)
	})
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	if !stop() {
		<-killed
	}
	unix.Kill(-pid, unix.SIGKILL)
}

// environment returns the variables of a program: the search path alone.
func environment(t Target) []string {
	address, port := t.At.Addr().String(), strconv.Itoa(int(t.At.Port()))
	if t.Path != "" {
		address, port = "unix:"+t.Path, ""
	}
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"MILLRACE_BACKEND_ADDRESS=" + address,
		"MILLRACE_BACKEND_PORT=" + port,
		"MILLRACE_BACKEND_NAME=" + t.Backend,
		"MILLRACE_BACKEND_SERVICE=" + t.Service,
	}
}

// head keeps the first maxOutput bytes written and takes the rest.
type head struct{ b []byte }

// Write implements io.Writer.
func (h *head) Write(b []byte) (int, error) {
	h.b = append(h.b, b[:min(len(b), maxOutput-len(h.b))]...)
	return len(b), nil
}

// line returns the first line that is not empty, what a terminal would obey replaced.
func (h *head) line() string {
	for line := range strings.Lines(strings.ToValidUTF8(string(h.b), "?")) {
		line = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return ' '
		}, line)
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}
