package role

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace/bench/harness"
)

// testpmd is DPDK's forwarder, driven by its prompt.
type testpmd struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	stderr  bytes.Buffer
	mu      sync.Mutex // one command at a time
	devices int

	last    atomic.Pointer[map[string]uint64] // the counts at the end, when it can no longer be asked
	lastCPU atomic.Int64
}

const testpmdPrompt = "testpmd> "

var dpdkVersion = regexp.MustCompile(`DPDK [0-9.]+[0-9]`) // as EAL's argument -v shows it

// openTestpmd runs dpdk-testpmd with the arguments and starts forwarding.
func openTestpmd(o roleOptions) (roleWork, error) {
	// Its output to a pipe would wait until 4 KiB are there.
	p := &testpmd{cmd: exec.Command("stdbuf", append([]string{"-oL", "dpdk-testpmd"}, o.args...)...)}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = &p.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return roleWork{}, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return roleWork{}, err
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return roleWork{}, err
	}
	p.devices = len(devices.FindAllString(strings.Join(o.args, " "), -1))
	hello, err := p.until(testpmdPrompt)
	if err != nil {
		return roleWork{}, errors.Join(err, p.stop())
	}
	if _, err := fmt.Fprintln(p.in, "start"); err != nil {
		return roleWork{}, errors.Join(err, p.stop())
	}
	version := dpdkVersion.FindString(hello + p.stderr.String())
	return roleWork{version: version, counts: p.counts, cpu: p.cpu, stop: p.stop}, nil
}

// until reads what is printed up to some words.
func (p *testpmd) until(words string) (string, error) {
	var text []byte
	for !bytes.HasSuffix(text, []byte(words)) {
		c, err := p.out.ReadByte()
		if err != nil {
			return "", fmt.Errorf("dpdk-testpmd: %w: %s", err, p.stderr.String())
		}
		text = append(text, c)
	}
	return string(text), nil
}

var devices = regexp.MustCompile(`--vdev `)

var sentPackets = regexp.MustCompile(`TX-packets: +(\d+)`)

func (p *testpmd) counts() (map[string]uint64, error) {
	if c := p.last.Load(); c != nil {
		return *c, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := fmt.Fprintln(p.in, "show port stats all"); err != nil {
		return nil, err
	}
	sum := uint64(0)
	for seen := 0; seen < p.devices; { // it repeats its prompt as it likes
		line, err := p.until("\n")
		if err != nil {
			return nil, err
		}
		if m := sentPackets.FindStringSubmatch(line); m != nil {
			n, err := strconv.ParseUint(m[1], 10, 64)
			if err != nil {
				return nil, err
			}
			sum += n
			seen++
		}
	}
	return map[string]uint64{"packets": sum}, nil
}

func (p *testpmd) cpu() (int64, error) {
	if p.last.Load() != nil {
		return p.lastCPU.Load(), nil
	}
	d, err := harness.ProcessCPU(p.cmd.Process.Pid)
	return int64(d), err
}

// stop reads the last counts, and leaves DPDK time to take its XDP program off the interface.
func (p *testpmd) stop() error {
	c, err := p.counts()
	if err == nil {
		ns, _ := p.cpu()
		p.lastCPU.Store(ns)
		p.last.Store(&c)
	}
	_, _ = fmt.Fprintln(p.in, "quit")
	done := make(chan error, 1)
	go func() {
		_, _ = io.Copy(io.Discard, p.out)
		done <- p.cmd.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-time.After(5 * time.Second):
		return p.cmd.Process.Kill()
	}
}
