package xdp

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Component is a program that a dispatcher calls.
type Component struct {
	// FD is a descriptor of an extension program, loaded for the Function of a Template, that Update adds. Update borrows it.
	// It is 0 in a Component that Query returns, and for one that is in the dispatcher already and stays.
	FD int

	Priority uint32  // the lowest is called first
	Actions  Actions // results that continue with the next component; Continue is always among them
	Frags    bool    // it reads packets of several buffers correctly (BPF_F_XDP_HAS_FRAGS)

	// What follows is read from the program.

	ID     uint32        // of the program in the kernel
	Name   string        // of its function
	Tag    string        // the kernel's hash of its instructions
	Loaded time.Duration // since boot

	prog *ebpf.Program
}

// open takes a reference to the program and reads what it says about itself.
func (c *Component) open() error {
	p, err := programOf(c.FD)
	if err != nil {
		return fmt.Errorf("component: %w", err)
	}
	c.prog = p
	return c.describe()
}

// describe reads the identity of the program. The name is that of its function, because the kernel cuts the program's own
// at 15 bytes and libxdp orders by the whole.
func (c *Component) describe() error {
	if t := c.prog.Type(); t != ebpf.Extension {
		return fmt.Errorf("a component is an extension program, not of type %v", t)
	}
	info, err := c.prog.Info()
	if err != nil {
		return err
	}
	id, _ := info.ID()
	c.ID, c.Name, c.Tag = uint32(id), info.Name, info.Tag
	c.Loaded, _ = info.LoadTime()
	if name, ok := functionName(info); ok {
		c.Name = name
	}
	return nil
}

// functionName returns the name of the first function of a program by its BTF.
func functionName(info *ebpf.ProgramInfo) (string, bool) {
	funcs, err := info.FuncInfos()
	if err != nil || len(funcs) == 0 {
		return "", false
	}
	return funcs[0].Func.Name, true
}

// compare is the order of the protocol: priority, name, programs that are loaded before new ones, tag, time.
func compare(a, b Component) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name),
		cmp.Compare(newness(a), newness(b)), bytes.Compare([]byte(a.Tag), []byte(b.Tag)), cmp.Compare(a.Loaded, b.Loaded))
}

func newness(c Component) int {
	if c.FD != 0 {
		return 1
	}
	return 0
}

func closeAll(list []Component) {
	for _, c := range list {
		if c.prog != nil {
			c.prog.Close()
		}
	}
}

// detachFD returns the descriptor of a program as the caller's own.
func detachFD(p *ebpf.Program) (int, error) {
	defer p.Close()
	fd, err := unix.FcntlInt(uintptr(p.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("fcntl", err)
	}
	return fd, nil
}
