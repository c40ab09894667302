package xdp

import (
	"errors"
	"fmt"
)

// Attach makes the XDP program with a descriptor the only one of an interface, by netlink: it stays when the process ends.
// It is for programs that cannot be components. old is the id of the program whose place it takes; 0: none. Where another is
// there, the error is ErrForeign and names it.
func (f *FS) Attach(ifindex, fd int, old uint32, mode Mode) error {
	unlock, err := f.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	return f.setAlone(ifindex, fd, old, mode)
}

// Detach takes the program with an id off an interface, whoever attached it by netlink.
func (f *FS) Detach(ifindex int, id uint32) error {
	unlock, err := f.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	return f.setAlone(ifindex, noProgram, id, ModeAny)
}

func (f *FS) setAlone(ifindex, fd int, old uint32, mode Mode) (err error) {
	s, err := f.read(ifindex)
	defer s.close()
	if err != nil {
		return err
	}
	if s.Program != old {
		fd := -1
		if s.prog != nil {
			fd = s.prog.FD()
		}
		return fmt.Errorf("%w: %s", ErrForeign, describeAt(s.Program, fd))
	}
	next, err := f.rememberAlone(ifindex, fd)
	if err != nil {
		return err
	}
	if old == 0 {
		err = setAny(ifindex, fd, mode)
	} else if s.prog != nil {
		err = setProgram(ifindex, fd, s.prog.FD(), s.Mode)
	}
	if err == nil {
		step("swapped")
		return f.unpin(ifindex, old)
	}
	defer func() { err = errors.Join(err, f.unpin(ifindex, next)) }()
	if err = f.swapError(s, err); errors.Is(err, errLost) {
		now, _, _ := attached(ifindex)
		return fmt.Errorf("%w: %s", ErrForeign, describeAt(now, -1))
	}
	return err
}

// rememberAlone records the program with a descriptor, before it is attached: a process that is killed behind the swap would
// else leave a program that no command finds. The record of one that was not attached in the end goes with the next sweep.
func (f *FS) rememberAlone(ifindex, fd int) (id uint32, err error) {
	if fd == noProgram {
		return 0, nil
	}
	p, err := programOf(fd)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	if id, err = programID(p); err != nil {
		return 0, err
	}
	if err = f.remember(ifindex, id); err == nil {
		step("recorded")
	}
	return id, err
}

// describeAt is describe, also for no program.
func describeAt(id uint32, fd int) string {
	if id == 0 {
		return "it has none any more"
	}
	return describe(id, fd)
}
