package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Program loads an XDP program of a process in the form that an interface needs. The descriptors that its functions return
// stay the caller's.
type Program struct {
	// Alone returns the program as it is attached by itself.
	Alone func() (fd int, err error)

	// Component loads the program as an extension (BPF_PROG_TYPE_EXT) of Function in the dispatcher with the descriptor
	// template, which it takes.
	Component func(template int) (fd int, err error)

	Priority uint32 // of the component
	Frags    bool   // the component takes packets of several buffers
}

// Held is a program that is attached until Close or the end of the process. A component of a dispatcher that another process
// has rebuilt stays after SIGKILL until the next change by this package (Member).
type Held struct {
	link      link.Link // alone on the interface
	member    *Member   // of its dispatcher, instead of link
	mode      Mode
	notNative error
}

// Hold attaches a program to an interface of the calling thread's network namespace: as a component of the dispatcher that
// is there, and by a bpf_link, which ends with the process, where there is no program. It replaces no other program, since
// that would cut off whatever depends on it: the error is ErrForeign, names the program and wraps the kernel's.
func Hold(ifindex int, p Program, mode Mode) (*Held, error) {
	id, _, err := attached(ifindex)
	if err != nil {
		return nil, err
	}
	if id == 0 || !IsDispatcher(id) {
		return holdAlone(ifindex, p, mode)
	}
	fs, err := OpenFS(DefaultFS())
	if err != nil {
		return nil, err
	}
	st, err := fs.Query(ifindex)
	switch {
	case err != nil:
		return nil, err
	case !st.Dispatcher:
		return nil, st.Foreign
	case mode != ModeAny && mode != st.Mode:
		return nil, fmt.Errorf("%w: the interface's XDP dispatcher is in %v mode", unix.EBUSY, st.Mode)
	}
	return fs.holdComponent(ifindex, p, st.Mode)
}

func (f *FS) holdComponent(ifindex int, p Program, mode Mode) (*Held, error) {
	template, err := Template()
	if err != nil {
		return nil, err
	}
	fd, err := p.Component(template)
	if err != nil {
		return nil, fmt.Errorf("load the program for the interface's XDP dispatcher: %w", err)
	}
	m, err := f.Join(ifindex, Component{FD: fd, Priority: p.Priority, Actions: DefaultActions, Frags: p.Frags})
	if err != nil {
		return nil, err
	}
	return &Held{member: m, mode: mode}, nil
}

func holdAlone(ifindex int, p Program, mode Mode) (*Held, error) {
	fd, err := p.Alone()
	if err != nil {
		return nil, err
	}
	prog, err := programOf(fd)
	if err != nil {
		return nil, err
	}
	defer prog.Close() // the link holds it
	h := &Held{mode: ModeNative}
	opts := link.XDPOptions{Program: prog, Interface: ifindex, Flags: link.XDPDriverMode}
	if mode != ModeGeneric {
		if h.link, err = link.AttachXDP(opts); err == nil {
			return h, nil
		}
		if mode == ModeNative || independentOfMode(err) {
			return nil, holdError(ifindex, ModeNative, err)
		}
		h.notNative = err
	}
	h.mode, opts.Flags = ModeGeneric, link.XDPGenericMode
	if h.link, err = link.AttachXDP(opts); err != nil {
		return nil, holdError(ifindex, ModeGeneric, err)
	}
	return h, nil
}

// independentOfMode reports whether generic mode would fail with the same error. Falling back then would only replace the
// reason that the user needs by another one.
func independentOfMode(err error) bool {
	return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV)
}

// holdError names the program in the way, which the kernel's error does not.
func holdError(ifindex int, mode Mode, err error) error {
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		if now, _, e := attached(ifindex); e == nil && now != 0 {
			err = fmt.Errorf("%w: %s: %w", ErrForeign, Describe(now), err)
		}
	}
	return fmt.Errorf("attach in %v mode: %w", mode, err)
}

// programOf returns a reference of its own to the program with a descriptor.
func programOf(fd int) (*ebpf.Program, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	p, err := ebpf.NewProgramFromFD(own)
	if err != nil {
		return nil, errors.Join(err, unix.Close(own))
	}
	return p, nil
}

// InDispatcher reports whether the program is a component of the interface's dispatcher.
func (h *Held) InDispatcher() bool { return h.member != nil }

// Mode returns where the program runs: ModeNative or ModeGeneric, or the dispatcher's mode.
func (h *Held) Mode() Mode { return h.mode }

// NotNative returns the error of native mode where ModeAny has fallen back to generic mode, and nil otherwise.
func (h *Held) NotNative() error { return h.notNative }

// Replace attaches the program with a descriptor, which it borrows, in the place of one that is alone. The kernel does so
// atomically: packets meet the old or the new program. For a component the error wraps errors.ErrUnsupported.
func (h *Held) Replace(fd int) error {
	if h.member != nil {
		return fmt.Errorf("a component of the interface's XDP dispatcher cannot be replaced: %w", errors.ErrUnsupported)
	}
	p, err := programOf(fd)
	if err != nil {
		return err
	}
	defer p.Close() // the link holds it
	return h.link.Update(p)
}

// Close takes the program off the interface. It is called once.
func (h *Held) Close() error {
	if h.member != nil {
		return h.member.Leave()
	}
	return h.link.Close()
}
