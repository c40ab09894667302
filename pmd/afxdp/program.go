package afxdp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
)

//go:generate go tool -modfile=../../internal/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" steer bpf/steer.c

// program is the steering program on an interface. It exists twice in the object, because only one that is
// loaded as multi-buffer aware (BPF_F_XDP_HAS_FRAGS, Linux 5.18) may be attached where packets span buffers.
type program struct {
	objs         steerObjects
	link         link.Link
	frags        bool   // steer_frags is attached
	mode         Mode   // in use
	whyNotNative string // native mode was not, in ModeAuto
}

// load loads the program and its maps into the kernel. all is a constant of the program, so that the verifier
// removes the lookups that All does not need.
func load(all bool) (*program, error) {
	if err := rlimit.RemoveMemlock(); err != nil { // before Linux 5.11 maps count as locked memory
		return nil, fmt.Errorf("raise the limit of locked memory for BPF maps: %w", err)
	}
	spec, err := loadSteer()
	if err != nil {
		return nil, err
	}
	if all {
		if err := spec.Variables[steerVarAll].Set(uint32(1)); err != nil {
			return nil, err
		}
	}
	p := &program{}
	if err := spec.LoadAndAssign(&p.objs, nil); err != nil {
		return nil, fmt.Errorf("load the steering program: %w", err)
	}
	return p, nil
}

// attach attaches the program to the interface, in native or generic mode as configured. It never replaces
// another program: that would cut off whatever depends on it.
func (p *program) attach(ifindex int, mode Mode, frags bool) error {
	p.frags = frags
	opts := link.XDPOptions{Program: p.steer(), Interface: ifindex, Flags: link.XDPDriverMode}
	var err error
	if mode != ModeGeneric {
		if p.link, err = link.AttachXDP(opts); err == nil {
			p.mode = ModeNative
			return nil
		}
		if mode == ModeNative || independentOfMode(err) {
			return fmt.Errorf("attach the steering program in native mode: %w", err)
		}
		p.whyNotNative = whyNotNative(err)
	}
	opts.Flags = link.XDPGenericMode
	if p.link, err = link.AttachXDP(opts); err != nil {
		return fmt.Errorf("attach the steering program in generic mode: %w", err)
	}
	p.mode = ModeGeneric
	return nil
}

// steer returns the program that steers.
func (p *program) steer() *ebpf.Program {
	if p.frags {
		return p.objs.SteerFrags
	}
	return p.objs.Steer
}

// setPrefilter attaches f in the place of the steering program, which it continues with; nil: the steering program
// again. The kernel does so atomically: packets meet the old or the new program.
func (p *program) setPrefilter(f *pmd.Prefilter) error {
	if f == nil {
		return p.link.Update(p.steer())
	}
	fd, err := f.XDP(p.steer().FD(), p.frags)
	if err != nil {
		return err
	}
	if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return err
	}
	first, err := ebpf.NewProgramFromFD(fd)
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	defer first.Close() // the link holds it
	return p.link.Update(first)
}

// independentOfMode reports whether generic mode would fail with the same error. Falling back then would only replace the
// reason that the user needs by another one.
func independentOfMode(err error) bool {
	return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV)
}

// whyNotNative returns in words why the driver rejected the program.
func whyNotNative(err error) string {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return "the driver has no XDP"
	case errors.Is(err, unix.ERANGE), errors.Is(err, unix.E2BIG):
		return "the MTU of the interface or its peer is too large for one buffer"
	}
	return err.Error()
}

// steering returns the rules of the program, none yet, for an interface with the address filter nic.
func (p *program) steering(all bool, nic *addressFilter) *Steering {
	return &Steering{maps: p.objs.steerMaps, all: all, nic: nic, addrs: make(map[netip.Addr]*entry)}
}

// close detaches the program from the interface: the link is its last reference. The maps go with it, so that a later Open
// begins without rules.
func (p *program) close() error {
	var err error
	if p.link != nil {
		err = p.link.Close()
	}
	return errors.Join(err, p.objs.Close())
}

// attached returns the id of the XDP program on the interface by netlink (IFLA_XDP_PROG_ID), 0 for none. It finds programs
// that were attached by netlink or by a bpf_link alike.
func attached(ifindex int) (ebpf.ProgramID, error) {
	l, err := linkByIndex(ifindex)
	if err != nil || l.Attrs().Xdp == nil {
		return 0, err
	}
	return ebpf.ProgramID(l.Attrs().Xdp.ProgId), nil
}

// bind makes the program redirect packets of queue id to a socket (BPF_MAP_TYPE_XSKMAP). Until then the queue's packets
// pass to the kernel. The kernel removes the entry when the socket is closed.
func (p *program) bind(id, fd int) error {
	if err := p.objs.Sockets.Put(uint32(id), uint32(fd)); err != nil {
		return fmt.Errorf("steer to the socket: %w", err)
	}
	return nil
}
