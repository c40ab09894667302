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
	"time"

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
// one of within; those whose names end with one of public work on what is public, and do not. Functions whose names end with one
// of straight have no branches on data, and are run at once, with what they call: that takes a fraction of the time.
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
	enters bool   // a straight function
	grows  bool   // it is of the runtime's functions that a prologue calls to grow the stack, or to yield
	entry  uint64 // of its function
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
		c.entry = uint64(fn.Entry())
		c.grows = strings.HasPrefix(name, "runtime.morestack")
		c.enters = c.entry == pc && slices.ContainsFunc(f.straight, ends)
	}
	if f.known == nil {
		f.known = map[uint64]code{}
	}
	f.known[pc] = c
	return c
}

// patience is longer than a trace takes on a busy machine.
const patience = 5 * time.Minute

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
	guard := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer func() {
		guard.Stop()
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	}()
	if _, err := c.wait(); err != nil { // of execve
		return nil, err
	}
	if err := c.runTo(markSignal); err != nil {
		return nil, err
	}
	return c.steps(filter)
}

// child is a traced process, stopped.
type child struct{ pid int }

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

// steps steps until the next mark.
func (c child) steps(filter *codeFilter) ([]uint64, error) {
	t := tracer{filter: filter}
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
			return t.targets, nil
		case got != unix.SIGTRAP:
			deliver = uintptr(got)
			continue
		}
		deliver = 0
		if err := unix.PtraceGetRegs(c.pid, &regs); err != nil {
			return nil, err
		}
		if !t.step(regs.Rip) {
			continue
		}
		if err := c.runToReturn(uintptr(regs.Rsp)); err != nil {
			return nil, err
		}
	}
}

// tracer collects the steps that count.
type tracer struct {
	filter  *codeFilter
	targets []uint64
	last    code
	resumes uint64 // the function that begins again, as its prologue was interrupted
}

// step takes the address that a step leads to. It reports whether the function there is to be run at once.
//
// The scheduler interrupts goroutines that run for long, in the prologue of a function, which then begins again. When it does is
// chance: the trace is as if it did not.
func (t *tracer) step(pc uint64) (enters bool) {
	at, last := t.filter.at(pc), t.last
	t.last = at
	switch {
	case t.resumes != 0 && pc != t.resumes:
		return false
	case at.grows && last.counts && !last.grows: // what it does until the function begins again is the scheduler's
		for n := len(t.targets); n > 0 && t.resumes == 0; n = len(t.targets) {
			if t.targets[n-1] == last.entry {
				t.resumes = last.entry
			}
			t.targets = t.targets[:n-1]
		}
		return at.entry == pc
	}
	t.resumes = 0
	if at.counts {
		t.targets = append(t.targets, pc)
	}
	return at.enters
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
