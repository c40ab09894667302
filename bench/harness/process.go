package harness

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// Mark is one line of the protocol between the harness and a part. A part prints one with Ready
// when it is set up, one for each line on its stdin, and one with Final after its stdin has ended.
// A harness that dies ends every stdin, so no part outlives it.
type Mark struct {
	Ready   bool              `json:"ready,omitempty"`
	Version string            `json:"version,omitempty"`
	NS      int64             `json:"ns,omitempty"`     // of CLOCK_MONOTONIC, when Counts were read
	CPU     int64             `json:"cpu_ns,omitempty"` // of CLOCK_PROCESS_CPUTIME_ID, at the same moment
	Final   bool              `json:"final,omitempty"`
	Counts  map[string]uint64 `json:"counts,omitempty"` // since the start
}

// Part is a process of a contestant: its sender, its receiver, its sink.
type Part struct {
	Name string
	Argv []string
	CPU  int                // pinned to it
	Also []int              // CPUs that it binds threads to itself
	In   *testnet.Namespace // nil is the harness's own
}

const (
	readyIn  = 10 * time.Second
	answerIn = 5 * time.Second
)

// process is a running part.
type process struct {
	Part
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	marks  chan Mark
	stderr bytes.Buffer
	hello  Mark
	bad    error // a line that is not of the protocol; set before marks is closed
}

// Start starts a part and waits until it is ready. The caller stops or kills it.
func (part Part) Start(ctx context.Context) (*process, error) {
	p := &process{Part: part, marks: make(chan Mark, 1)}
	p.cmd = exec.Command(part.Argv[0], part.Argv[1:]...)
	// One processor for the work, one so that the answers to the harness never wait for it.
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	p.cmd.Stderr = &p.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = in
	if err := p.launch(); err != nil {
		return nil, fmt.Errorf("start %s: %w", part.Name, err)
	}
	go p.readLoop(out)
	if p.hello, err = p.next(ctx, readyIn); err == nil && !p.hello.Ready {
		err = errors.New("its first line does not say ready")
	}
	if err != nil {
		return nil, p.fail(err)
	}
	return p, nil
}

// launch starts the process from a thread that is pinned, so that it is pinned from its first
// instruction.
func (p *process) launch() error {
	pinned := func() error {
		var set unix.CPUSet
		set.Set(p.CPU)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("pin to CPU %d: %w", p.CPU, err)
		}
		return p.cmd.Start()
	}
	if p.In != nil {
		return p.In.Do(pinned)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the pinned thread ends with the goroutine
		done <- pinned()
	}()
	return <-done
}

func (p *process) readLoop(out io.Reader) {
	defer close(p.marks)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var m Mark
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			p.bad = fmt.Errorf("not a line of the protocol: %q", lines.Text())
			return
		}
		p.marks <- m
	}
}

func (p *process) next(ctx context.Context, limit time.Duration) (Mark, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case m, ok := <-p.marks:
		if !ok {
			return m, cmp.Or(p.bad, errors.New("it ended early"))
		}
		return m, nil
	case <-ctx.Done():
		return Mark{}, ctx.Err()
	case <-timer.C:
		return Mark{}, fmt.Errorf("no answer in %v", limit)
	}
}

// mark asks for the counters.
func (p *process) mark(ctx context.Context) (Mark, error) {
	if _, err := io.WriteString(p.stdin, "mark\n"); err != nil {
		return Mark{}, p.fail(errors.New("it ended early"))
	}
	m, err := p.next(ctx, answerIn)
	if err != nil {
		return m, p.fail(err)
	}
	return m, nil
}

// stop ends the part and returns its last counters.
func (p *process) stop(ctx context.Context) (Mark, error) {
	p.stdin.Close()
	m, err := p.next(ctx, answerIn)
	for err == nil && !m.Final {
		m, err = p.next(ctx, answerIn)
	}
	if err == nil {
		err = p.cmd.Wait()
	}
	if err != nil {
		return m, p.fail(err)
	}
	return m, nil
}

// fail kills the part and returns err with what the part said on stderr.
func (p *process) fail(err error) error {
	p.Kill()
	said := strings.TrimSpace(p.stderr.String())
	if len(said) > 500 {
		said = said[:500] + " ..."
	}
	if said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return fmt.Errorf("%s: %w", p.Name, err)
}

// Kill ends the part whatever it does. It may be called after stop.
func (p *process) Kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	p.stdin.Close()
	_ = p.cmd.Process.Kill()
	for range p.marks { // until the pipe is drained, as Wait wants
	}
	_ = p.cmd.Wait()
}
