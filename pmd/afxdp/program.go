package afxdp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/xdp"
)

//go:generate go tool -modfile=../../internal/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" steer bpf/steer.c

// program is the steering program on an interface. It exists twice in the object, because only one that is
// loaded as multi-buffer aware (BPF_F_XDP_HAS_FRAGS, Linux 5.18) may be attached where packets span buffers.
type program struct {
	objs      steerObjects
	held      *xdp.Held     // nil: not attached
	component *ebpf.Program // what held is in the interface's dispatcher
	all       uint32        // the program's constant
	frags     bool          // steer_frags is attached
	mode      Mode          // in use
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

// attach attaches the program to the interface, in native or generic mode as configured, and behind the programs of a
// dispatcher that is there. What a packet meets before, a filter for instance, may drop it.
func (p *program) attach(ifindex int, mode Mode, frags bool) (err error) {
	p.frags = frags
	steer := xdp.Program{
		Alone:     func() (int, error) { return p.steer().FD(), nil },
		Component: p.loadComponent,
		Priority:  xdp.Last,
		Frags:     frags,
	}
	want := map[Mode]xdp.Mode{ModeAuto: xdp.ModeAny, ModeNative: xdp.ModeNative, ModeGeneric: xdp.ModeGeneric}[mode]
	if p.held, err = xdp.Hold(ifindex, steer, want); err != nil {
		return fmt.Errorf("steering program: %w", err)
	}
	p.mode = ModeGeneric
	if p.held.Mode() == xdp.ModeNative {
		p.mode = ModeNative
	}
	return nil
}

// loadComponent loads the steering program once more, as an extension program upon the same maps. It takes template.
func (p *program) loadComponent(template int) (fd int, err error) {
	target, err := ebpf.NewProgramFromFD(template)
	if err != nil {
		return -1, err
	}
	spec, err := loadSteer()
	if err != nil {
		return -1, err
	}
	name, other := steerProgSteer, steerProgSteerFrags
	if p.frags {
		name, other = other, name
	}
	delete(spec.Programs, other)
	s := spec.Programs[name]
	s.Type, s.AttachType, s.AttachTarget, s.AttachTo = ebpf.Extension, ebpf.AttachNone, target, xdp.Function
	s.Flags &^= unix.BPF_F_XDP_HAS_FRAGS
	if err := spec.Variables[steerVarAll].Set(p.all); err != nil {
		return -1, err
	}
	maps := map[string]*ebpf.Map{
		steerMapAddresses: p.objs.Addresses, steerMapCounters: p.objs.Counters, steerMapPorts: p.objs.Ports,
		steerMapPrefixes: p.objs.Prefixes, steerMapRanges: p.objs.Ranges, steerMapSockets: p.objs.Sockets,
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil {
		return -1, err
	}
	defer coll.Close()
	p.component = coll.DetachProgram(name)
	return p.component.FD(), nil
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
	case p.held.InDispatcher() && f == nil:
		return nil
	case p.held.InDispatcher():
		return fmt.Errorf("%w: no program can be placed before the steering program in the interface's XDP dispatcher", pmd.ErrNotSupported)
	case f == nil:
		return p.held.Replace(p.steer().FD())
	}
	fd, err := f.XDP(p.steer().FD(), p.frags)
	if err != nil {
		return err
	}
	return p.held.Replace(fd)
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
	if p.held != nil {
		err = p.held.Close()
	}
	if p.component != nil {
		err = errors.Join(err, p.component.Close())
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
