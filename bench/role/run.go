package role

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/bench/harness"
)

// openRun plays a program that knows nothing of the harness: a gateway, nginx, testpmd. Its CPU time
// is told as the part's. It is ready when it has printed the words of -ready; without them, at once.
func openRun(o roleOptions) (roleWork, error) {
	if len(o.args) == 0 {
		return roleWork{}, errors.New("no program to run")
	}
	f := &foreign{cmd: exec.Command(o.args[0], o.args[1:]...), ready: make(chan struct{}), want: o.ready, anyEnd: o.anyEnd}
	if err := f.start(); err != nil {
		return roleWork{}, err
	}
	return roleWork{
		version: o.version,
		counts:  func() (map[string]uint64, error) { return map[string]uint64{}, f.alive() },
		cpu:     f.cpu,
		stop:    f.stop,
	}, nil
}

// foreign is a running program.
type foreign struct {
	cmd    *exec.Cmd
	want   string
	anyEnd bool
	ready  chan struct{}
	ended  chan struct{}
	stdin  io.Closer

	mu      sync.Mutex // guards all below
	said    strings.Builder
	stopped bool
	last    int64 // CPU time at its end
}

const (
	foreignReady = 9 * time.Second // below readyIn, so that its words are seen
	foreignEnd   = 4 * time.Second // below answerIn

	// foreignSettle is how long a program may still be busy with its start when it says that it is
	// ready: a gateway learns the link addresses of its backends.
	foreignSettle = 50 * time.Millisecond
)

func (f *foreign) start() error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	f.cmd.Stdout, f.cmd.Stderr = in, in
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // of this thread, which is the role's
	if f.stdin, err = f.cmd.StdinPipe(); err != nil {                    // testpmd ends when it has none
		return err
	}
	if err := f.cmd.Start(); err != nil {
		return err
	}
	in.Close()
	f.ended = make(chan struct{})
	go f.listen(out)
	if f.want == "" {
		return nil
	}
	select {
	case <-f.ready:
		time.Sleep(foreignSettle)
		return nil
	case <-f.ended:
		return f.failed("ended early")
	case <-time.After(foreignReady):
		_ = f.cmd.Process.Kill()
		return f.failed(fmt.Sprintf("did not say %q", f.want))
	}
}

// listen keeps what the program says, a little of it, until it ends.
func (f *foreign) listen(out io.Reader) {
	lines, seen := bufio.NewScanner(out), f.want == ""
	for lines.Scan() {
		f.mu.Lock()
		if f.said.Len() < 4096 {
			f.said.WriteString(lines.Text() + "\n")
		}
		f.mu.Unlock()
		if !seen && strings.Contains(lines.Text(), f.want) {
			seen = true
			close(f.ready)
		}
	}
	close(f.ended)
}

func (f *foreign) failed(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Errorf("%s %s: %s", f.cmd.Path, what, cmp.Or(strings.TrimSpace(f.said.String()), "it said nothing"))
}

func (f *foreign) alive() error {
	f.mu.Lock()
	stopped := f.stopped
	f.mu.Unlock()
	if stopped || f.anyEnd {
		return nil
	}
	select {
	case <-f.ended:
		return f.failed("ended early")
	default:
		return nil
	}
}

// cpu returns the program's CPU time, nanoseconds.
func (f *foreign) cpu() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return f.last, nil
	}
	t, err := harness.ProcessCPU(f.cmd.Process.Pid)
	return int64(t), err
}

// stop ends the program by SIGTERM, or worse.
func (f *foreign) stop() error {
	last, err := f.cpu()
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.stopped, f.last = true, last
	f.mu.Unlock()
	_ = f.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(foreignEnd, func() { _ = f.cmd.Process.Kill() })
	defer kill.Stop()
	err = f.cmd.Wait()
	if f.anyEnd {
		return nil
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() && s.Signal() == syscall.SIGTERM {
			return nil
		}
		<-f.ended
		return f.failed(err.Error())
	}
	return err
}
