package role

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/bench/harness"
)

// openRun plays a program that knows nothing of the harness: a gateway, nginx, testpmd. Its CPU time
// and that of its children are told as the part's. It is ready when it has printed the words of -ready and accepts a
// connection at -at; without either, at once. "start ms" is the time that this took, "rss" what they have resident.
func openRun(o roleOptions) (roleWork, error) {
	if len(o.args) == 0 {
		return roleWork{}, errors.New("no program to run")
	}
	f := &foreign{
		cmd: exec.Command(o.args[0], o.args[1:]...), ready: make(chan struct{}), want: o.ready, at: o.at, anyEnd: o.anyEnd,
	}
	begin := time.Now()
	if err := f.start(); err != nil {
		return roleWork{}, err
	}
	started, small := uint64(time.Since(begin).Milliseconds()), f.resident()
	return roleWork{
		version: o.version,
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{harness.StartMS: started, "rss": f.resident(), RSSAtStart: small}, f.alive()
		},
		cpu:  f.cpu,
		stop: f.stop,
	}, nil
}

// RSSAtStart is the resident memory of a program when it was ready, a count of role run.
const RSSAtStart = "rss at start"

// foreign is a running program.
type foreign struct {
	cmd    *exec.Cmd
	want   string
	at     string
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

	// foreignSettle is the time that a program may still be busy with its start when it says that it is
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
		return f.accepts()
	}
	select {
	case <-f.ready:
		time.Sleep(foreignSettle)
		return f.accepts()
	case <-f.ended:
		return f.failed("ended early")
	case <-time.After(foreignReady):
		_ = f.cmd.Process.Kill()
		return f.failed(fmt.Sprintf("did not say %q", f.want))
	}
}

// accepts waits until a connection to -at is accepted.
func (f *foreign) accepts() error {
	for begin := time.Now(); f.at != ""; time.Sleep(time.Millisecond) {
		c, err := net.DialTimeout("tcp", f.at, time.Second)
		if err == nil {
			return c.Close()
		}
		select {
		case <-f.ended:
			return f.failed("ended early")
		default:
		}
		if time.Since(begin) > foreignReady {
			_ = f.cmd.Process.Kill()
			return f.failed("accepts no connection: " + err.Error())
		}
	}
	return nil
}

// processes returns the program's and those of its children.
func (f *foreign) processes() []int {
	all := []int{f.cmd.Process.Pid}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[0]))
	for _, path := range tasks {
		for _, pid := range strings.Fields(harness.ReadFile(path)) {
			if n, err := strconv.Atoi(pid); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// resident returns the resident bytes of all processes; pages that they share count in each.
func (f *foreign) resident() (sum uint64) {
	for _, pid := range f.processes() {
		sum += residentBytes(strconv.Itoa(pid))
	}
	return sum
}

// residentBytes returns the resident bytes of a process.
func residentBytes(pid string) uint64 {
	fields := strings.Fields(harness.ReadFile("/proc/" + pid + "/statm"))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize())
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
	return fmt.Errorf("%s %s: %s", filepath.Base(f.cmd.Path), what, cmp.Or(strings.TrimSpace(f.said.String()), "it said nothing"))
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
	var sum time.Duration
	for i, pid := range f.processes() {
		t, err := harness.ProcessCPU(pid)
		if err != nil && i == 0 {
			return 0, err
		}
		sum += t // a child may have ended
	}
	return int64(sum), nil
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
