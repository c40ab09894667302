package consttime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Requests of ptrace(2) that package unix has no name for.
const ptraceSingleBlock = 33

// markSignal stops a child where its trace begins and ends.
const markSignal = unix.SIGUSR2

// mark stops this thread if it is traced, and without a function of the runtime's scheduler.
func mark() {
	_, _, _ = unix.RawSyscall(unix.SYS_TGKILL, uintptr(os.Getpid()), uintptr(unix.Gettid()), uintptr(markSignal))
}

// Branches fails the test if a subject takes different branches for its secrets. Only functions count whose names begin with
// one of within; those whose names end with one of public work on what is public, and do not. Assembly functions whose names
// end with one of straight have no branches, and are run at once: that takes a fraction of the time.
func Branches(t *testing.T, subject string, secrets int, within, public, straight []string) {
	t.Helper()
	if testing.CoverMode() != "" {
		t.Skip("the counters of a test of coverage are not of the code")
	}
	steps, difference, err := compare(subject, secrets, &codeFilter{within: within, public: public, straight: straight})
	switch {
	case errors.Is(err, errNoTrace):
		t.Skip(err)
	case err != nil:
		t.Fatalf("%s: %v", subject, err)
	case steps == 0:
		t.Fatalf("%s: nothing in %v was run", subject, within)
	case difference != "":
		t.Errorf("%s: %s", subject, difference)
	}
	t.Logf("%s: %d steps", subject, steps)
}

// compare traces a subject with each secret. It returns the steps with the first one, and how another differs.
func compare(subject string, secrets int, filter *codeFilter) (steps int, difference string, err error) {
	var first []uint64
	for secret := range secrets {
		got, err := trace(subject, secret, filter)
		if err != nil {
			return 0, "", fmt.Errorf("secret %d: %w", secret, err)
		}
		if secret == 0 {
			first = got
		}
		if !slices.Equal(first, got) {
			return len(first), fmt.Sprintf("secret %d: %s", secret, firstDifference(first, got)), nil
		}
	}
	return len(first), "", nil
}

// firstDifference describes where two traces part.
func firstDifference(a, b []uint64) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("step %d is to %s, not %s", i, place(b[i]), place(a[i]))
		}
	}
	return fmt.Sprintf("%d steps, not %d", len(b), len(a))
}

func place(pc uint64) string {
	f := runtime.FuncForPC(uintptr(pc))
	if f == nil {
		return fmt.Sprintf("%#x", pc)
	}
	file, line := f.FileLine(uintptr(pc))
	return fmt.Sprintf("%s (%s:%d)", f.Name(), filepath.Base(file), line)
}

// codeFilter knows which addresses count. Parent and child are one binary, which lies at the same place.
type codeFilter struct {
	within, public, straight []string
	known                    map[uint64]code
}

// code is what an address is.
type code struct {
	counts bool
	enters bool // a straight function
}

func (f *codeFilter) at(pc uint64) code {
	if c, ok := f.known[pc]; ok {
		return c
	}
	var c code
	if fn := runtime.FuncForPC(uintptr(pc)); fn != nil {
		name := fn.Name()
		ends := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
		c.counts = slices.ContainsFunc(f.within, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) &&
			!slices.ContainsFunc(f.public, ends)
		c.enters = uint64(fn.Entry()) == pc && slices.ContainsFunc(f.straight, ends)
	}
	if f.known == nil {
		f.known = map[uint64]code{}
	}
	f.known[pc] = c
	return c
}

// errNoTrace is that this machine does not let a test trace its child.
var errNoTrace = errors.New("ptrace(2) is not permitted here")

// trace runs a subject as a child, and returns where its steps lead between its marks. A step is what runs up to a branch
// that is taken. In many virtual machines the CPU cannot stop at those, and a step is one instruction.
func trace(subject string, secret int, filter *codeFilter) ([]uint64, error) {
	runtime.LockOSThread() // the tracer of a process is a thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+subject+"/"+strconv.Itoa(secret),
		"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoTrace, err)
	}
	c := child{pid: cmd.Process.Pid}
	defer func() {
		_ = unix.Kill(c.pid, unix.SIGKILL)
		for _, tid := range c.others { // the process ends once its tracer has seen its threads end
			for err := error(nil); err == nil; {
				_, err = child{pid: tid}.wait()
			}
		}
		_, _ = cmd.Process.Wait()
	}()
	if _, err := c.wait(); err != nil { // of execve
		return nil, err
	}
	if err := c.runTo(markSignal); err != nil {
		return nil, err
	}
	if err := c.freezeOthers(); err != nil {
		return nil, err
	}
	return c.steps(filter)
}

// child is a traced process, stopped, and its other threads that are.
type child struct {
	pid    int
	others []int
}

// wait waits until the child stops, and returns the signal.
func (c child) wait() (unix.Signal, error) {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(c.pid, &status, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if !status.Stopped() {
			return 0, fmt.Errorf("the child has ended: status %#x", int(status))
		}
		return status.StopSignal(), nil
	}
}

// runTo lets the child run until a signal is to be delivered to it, and does not deliver that.
func (c child) runTo(signal unix.Signal) error {
	deliver := 0
	for {
		if err := unix.PtraceCont(c.pid, deliver); err != nil {
			return err
		}
		got, err := c.wait()
		if err != nil || got == signal {
			return err
		}
		deliver = int(got)
	}
}

// freezeOthers stops the other threads: the runtime's monitor would have goroutines yield that run for long.
func (c *child) freezeOthers() error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", c.pid))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		if err != nil || tid == c.pid {
			continue
		}
		if err := unix.PtraceSeize(tid); err != nil {
			return fmt.Errorf("thread %d: %w", tid, err)
		}
		c.others = append(c.others, tid)
		if err := unix.PtraceInterrupt(tid); err != nil {
			return fmt.Errorf("thread %d: %w", tid, err)
		}
		if _, err := (child{pid: tid}).wait(); err != nil {
			return fmt.Errorf("thread %d: %w", tid, err)
		}
	}
	return nil
}

// steps steps until the next mark.
func (c child) steps(filter *codeFilter) (targets []uint64, err error) {
	var regs unix.PtraceRegs
	deliver := uintptr(0)
	for {
		if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, ptraceSingleBlock, uintptr(c.pid), 0, deliver, 0, 0); errno != 0 {
			return nil, fmt.Errorf("%w: %w", errNoTrace, errno)
		}
		got, err := c.wait()
		switch {
		case err != nil:
			return nil, err
		case got == markSignal:
			return targets, nil
		case got != unix.SIGTRAP:
			deliver = uintptr(got)
			continue
		}
		deliver = 0
		if err := unix.PtraceGetRegs(c.pid, &regs); err != nil {
			return nil, err
		}
		at := filter.at(regs.Rip)
		if at.counts {
			targets = append(targets, regs.Rip)
		}
		if at.enters {
			if err := c.runToReturn(uintptr(regs.Rsp)); err != nil {
				return nil, err
			}
		}
	}
}

// runToReturn runs the function that has just been entered, up to its return: a breakpoint (INT3) is there meanwhile.
func (c child) runToReturn(stack uintptr) error {
	var address [8]byte
	if _, err := unix.PtracePeekData(c.pid, stack, address[:]); err != nil {
		return err
	}
	to := uintptr(binary.LittleEndian.Uint64(address[:]))
	var was [8]byte
	if _, err := unix.PtracePeekText(c.pid, to, was[:]); err != nil {
		return err
	}
	breakpoint := was
	breakpoint[0] = 0xcc
	if _, err := unix.PtracePokeText(c.pid, to, breakpoint[:]); err != nil {
		return err
	}
	if err := c.runTo(unix.SIGTRAP); err != nil {
		return err
	}
	if _, err := unix.PtracePokeText(c.pid, to, was[:]); err != nil {
		return err
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(c.pid, &regs); err != nil {
		return err
	}
	regs.Rip = uint64(to) // it is behind the breakpoint
	return unix.PtraceSetRegs(c.pid, &regs)
}
