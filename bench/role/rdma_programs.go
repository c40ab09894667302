package role

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openPerftest runs a program of perftest again and again, as each ends after one measurement: the server with -op serve, and the
// client of a latency test with -op load, whose typical time it reports. CPU time is that of the runs that have ended.
func openPerftest(o roleOptions) (roleWork, error) {
	if len(o.args) == 0 {
		return roleWork{}, errors.New("no program to run")
	}
	p := &perftest{argv: o.args, load: o.op == "load"}
	return roleWork{
		version: o.version,
		step: func() error {
			if err := p.run(); err != nil { // the other side may not be there yet
				fmt.Fprintln(os.Stderr, err)
			}
			return nil
		},
		counts: p.counts,
		cpu:    childrenCPU,
		stop:   p.stop,
	}, nil
}

type perftest struct {
	argv []string
	load bool

	mu      sync.Mutex // guards all below
	current *exec.Cmd
	stopped bool
	ops     uint64
	typical []float64 // of each run, microseconds
}

// perftestPause is the time between a run that failed and the next one.
const perftestPause = 10 * time.Millisecond

// run runs the program once.
func (p *perftest) run() error {
	var out bytes.Buffer
	c := exec.Command(p.argv[0], p.argv[1:]...)
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // of this thread, which is the role's
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return nil
	}
	err := c.Start()
	p.current = c
	p.mu.Unlock()
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		time.Sleep(perftestPause)
		return fmt.Errorf("%s: %w: %s", p.argv[0], err, strings.TrimSpace(out.String()))
	}
	if !p.load {
		return nil
	}
	n, typical, err := parseLatency(out.String())
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ops += n
	p.typical = append(p.typical, typical)
	return nil
}

// parseLatency reads the row of figures: #bytes #iterations t_min t_max t_typical ...
func parseLatency(out string) (iterations uint64, typical float64, err error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		_, err1 := strconv.Atoi(f[0])
		n, err2 := strconv.ParseUint(f[1], 10, 64)
		t, err3 := strconv.ParseFloat(f[4], 64)
		if errors.Join(err1, err2, err3) == nil {
			return n, t, nil
		}
	}
	return 0, 0, fmt.Errorf("no figures in %q", out)
}

func (p *perftest) counts() (map[string]uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := map[string]uint64{"ops": p.ops}
	if n := len(p.typical); n > 0 {
		m["p50 ns"] = uint64(1000 * slices.Sorted(slices.Values(p.typical))[n/2])
	}
	return m, nil
}

func (p *perftest) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.current != nil && p.current.Process != nil {
		_ = syscall.Kill(-p.current.Process.Pid, syscall.SIGKILL) // its group, which is of millrace exec too
	}
	return nil
}

// childrenCPU is the CPU time of children that have ended, nanoseconds.
func childrenCPU() (int64, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u)
	return u.Utime.Nano() + u.Stime.Nano(), err
}
