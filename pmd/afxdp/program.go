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
	"github.com/millrace/millrace/pmd/xdp"
)

//go:generate go tool -modfile=../../internal/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" steer bpf/steer.c

// program is the steering program on an interface. It exists twice in the object, because only one that is
// loaded as multi-buffer aware (BPF_F_XDP_HAS_FRAGS, Linux 5.18) may be attached where packets span buffers.
type program struct {
	objs         steerObjects
	link         link.Link   // alone on the interface
	member       *xdp.Member // of the interface's dispatcher, instead of link
	joined       *ebpf.Program
	all          uint32 // the program's constant
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
	p := &program{}
	if all {
		p.all = 1
	}
	if err := spec.Variables[steerVarAll].Set(p.all); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&p.objs, nil); err != nil {
		return nil, fmt.Errorf("load the steering program: %w", err)
	}
	return p, nil
}

// attach attaches the program to the interface, in native or generic mode as configured. It never replaces
// another program: that would cut off whatever depends on it. It joins a dispatcher, behind the programs that are there.
func (p *program) attach(ifindex int, mode Mode, frags bool) error {
	p.frags = frags
	if joined, err := p.join(ifindex, mode); joined || err != nil {
		return err
	}
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

// join makes the program the last component of the interface's dispatcher; false: the interface has none. What a packet
// meets before, a filter for instance, may drop it.
func (p *program) join(ifindex int, mode Mode) (bool, error) {
	id, err := attached(ifindex)
	if err != nil || id == 0 || !xdp.IsDispatcher(uint32(id)) {
		return false, err
	}
	fs, err := xdp.OpenFS(xdp.DefaultFS())
	if err != nil {
		return false, err
	}
	st, err := fs.Query(ifindex)
	if err != nil || !st.Dispatcher {
		return false, errors.Join(err, st.Foreign)
	}
	have := ModeNative
	if st.Mode != xdp.ModeNative {
		have = ModeGeneric
	}
	if mode != ModeAuto && mode != have {
		return false, fmt.Errorf("%w: the interface's XDP dispatcher is in %v mode", unix.EBUSY, st.Mode)
	}
	if p.joined, err = p.loadComponent(); err != nil {
		return false, fmt.Errorf("load the steering program for the interface's XDP dispatcher: %w", err)
	}
	p.mode = have
	p.member, err = fs.Join(ifindex, xdp.Component{FD: p.joined.FD(), Priority: xdp.Last, Actions: xdp.DefaultActions, Frags: p.frags})
	return err == nil, err
}

// loadComponent loads the steering program once more, as an extension program upon the same maps.
func (p *program) loadComponent() (*ebpf.Program, error) {
	fd, err := xdp.Template()
	if err != nil {
		return nil, err
	}
	template, err := ebpf.NewProgramFromFD(fd)
	if err != nil {
		return nil, err
	}
	defer template.Close()
	spec, err := loadSteer()
	if err != nil {
		return nil, err
	}
	name, other := steerProgSteer, steerProgSteerFrags
	if p.frags {
		name, other = other, name
	}
	delete(spec.Programs, other)
	s := spec.Programs[name]
	s.Type, s.AttachType, s.AttachTarget, s.AttachTo = ebpf.Extension, ebpf.AttachNone, template, xdp.Function
	s.Flags &^= unix.BPF_F_XDP_HAS_FRAGS
	if err := spec.Variables[steerVarAll].Set(p.all); err != nil {
		return nil, err
	}
	maps := map[string]*ebpf.Map{
		steerMapAddresses: p.objs.Addresses, steerMapCounters: p.objs.Counters, steerMapPorts: p.objs.Ports,
		steerMapPrefixes: p.objs.Prefixes, steerMapRanges: p.objs.Ranges, steerMapSockets: p.objs.Sockets,
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram(name), nil
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
	switch {
	case p.member != nil && f == nil:
		return nil
	case p.member != nil:
		return fmt.Errorf("%w: no program can be placed before the steering program in the interface's XDP dispatcher", pmd.ErrNotSupported)
	case f == nil:
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

// close detaches the program from the interface: the link is its last reference, or the dispatcher's pins are. The maps go with it, so that a later Open
// begins without rules.
func (p *program) close() error {
	var err error
	if p.link != nil {
		err = p.link.Close()
	}
	if p.member != nil {
		err = p.member.Leave()
	}
	if p.joined != nil {
		err = errors.Join(err, p.joined.Close())
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
