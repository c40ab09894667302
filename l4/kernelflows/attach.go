package kernelflows

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
)

// Hook configures where a device's packets are judged.
type Hook uint8

// The hooks, by driver.
const (
	HookTC     Hook = iota // at tc alone: no driver takes packets before
	HookXDP                // before the steering program of AF_XDP, and again at tc
	HookSocket             // in the filter of packet sockets: all packets of the interface must pass one before tc
)

// Why kernel flows cannot be had. Errors wrap one of them.
var (
	ErrPermission   = errors.New("kernel flows need CAP_BPF and CAP_NET_ADMIN")
	ErrNotSupported = errors.New("kernel flows need Linux 6.6 or later, with CONFIG_BPF_JIT and CONFIG_NET_XGRESS")
)

// device is the programs of a device.
type device struct {
	programs flowsPrograms
	link     link.Link
	next     *ebpf.Program // behind filter; nil before the first
}

// Attach attaches the program of device dev, as Desc.Port, to an interface of the network namespace of the calling
// thread. Connections may be entered whose packets come and leave by it. The driver of the device must be given the
// Prefilter before packets are forwarded at HookSocket, and should be at HookXDP: without it, it takes them first.
func (t *Table) Attach(dev, index int, hook Hook) (*pmd.Prefilter, error) {
	if dev < 0 || dev >= maxDevices {
		return nil, fmt.Errorf("kernel flows: device %d: at most %d are supported", dev, maxDevices)
	}
	if err := t.Detach(dev); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := &t.devices[dev]
	if err := t.attach(d, dev, index, hook); err != nil {
		return nil, errors.Join(explain(err), d.close())
	}
	to := path(index)
	if peerElsewhere(index) {
		to |= 1 << 32
	}
	t.paths[dev].Store(uint64(to))
	return &pmd.Prefilter{
		Socket: func(rules []unix.SockFilter) (int, error) { return t.socketFilter(dev, rules) },
		XDP:    func(next int, frags bool) (int, error) { return t.xdp(dev, next, frags) },
	}, nil
}

// attach loads the programs for device dev, whose number is a constant of them, and attaches the one of tc.
func (t *Table) attach(d *device, dev, index int, hook Hook) error {
	spec, err := specFor(len(t.slots))
	if err != nil {
		return err
	}
	err = errors.Join(spec.Variables[flowsVarDevice].Set(uint32(dev)), spec.Variables[flowsVarBehindXdp].Set(uint32(bit(hook == HookXDP))))
	if err != nil {
		return err
	}
	err = spec.LoadAndAssign(&d.programs, &ebpf.CollectionOptions{MapReplacements: t.maps()})
	if err != nil {
		return err
	}
	program := d.programs.Forward
	if hook == HookSocket {
		program = d.programs.ForwardJudged
	}
	// Before the programs of others, as they would see packets that are not theirs, and before the filter of pmd/afpacket.
	d.link, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: program, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	return err
}

// peerElsewhere reports whether the interface is one end of a veth pair whose other end is in another network namespace.
// Packets are then received there in the same run of the kernel, and not queued twice (bpf_redirect_peer).
func peerElsewhere(index int) bool {
	l, err := netlink.LinkByIndex(index)
	return err == nil && l.Type() == "veth" && l.Attrs().NetNsID >= 0
}

// maps returns the maps by their names in the object.
func (t *Table) maps() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		flowsMapFindings: t.objs.Findings, flowsMapFlows4: t.objs.Flows4, flowsMapFlows6: t.objs.Flows6,
		flowsMapGenerations: t.objs.Generations, flowsMapReasons: t.objs.Reasons, flowsMapRules: t.objs.Rules,
		flowsMapSlots: t.objs.Slots, flowsMapSteering: t.objs.Steering, flowsMapSteeringFrags: t.objs.SteeringFrags,
	}
}

// Detach detaches the program of device dev. Its connections come to the loops: no packet is redirected to it any more.
// The driver has no Prefilter any more, or is closed.
func (t *Table) Detach(dev int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.paths[dev].Swap(0) != 0 {
		for _, l := range t.loops { // a loop reads its generation before the device: what it enters now is of an old one
			l.Renew()
		}
	}
	d := &t.devices[dev]
	if d.link == nil {
		return d.close()
	}
	// The programs behind those of the device are the driver's: what they hold may be closed now.
	var errs []error
	for _, m := range []*ebpf.Map{t.objs.Rules, t.objs.Steering, t.objs.SteeringFrags} {
		if err := m.Delete(uint32(dev)); !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, d.close())...)
}

func (d *device) close() error {
	var err error
	if d.link != nil {
		err = d.link.Close()
	}
	if d.next != nil {
		err = errors.Join(err, d.next.Close())
	}
	err = errors.Join(err, d.programs.Close())
	*d = device{}
	return err
}

// socketFilter makes rules what follows the filter of device dev.
func (t *Table) socketFilter(dev int, rules []unix.SockFilter) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := &t.devices[dev]
	if d.link == nil {
		return -1, fmt.Errorf("kernel flows: device %d has no program", dev)
	}
	prog, err := translate(rules)
	if err != nil {
		return -1, err
	}
	next, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "rules", Type: ebpf.SocketFilter, Instructions: prog, License: "Dual BSD/GPL"})
	if err != nil {
		return -1, fmt.Errorf("load %d rules as eBPF: %w", len(rules), err)
	}
	if err := t.objs.Rules.Put(uint32(dev), next); err != nil {
		return -1, errors.Join(fmt.Errorf("enter the rules behind the filter: %w", err), next.Close())
	}
	if d.next != nil {
		err = d.next.Close()
	}
	d.next = next
	return d.programs.Filter.FD(), err
}

// xdp makes the program next what follows the XDP program of device dev.
func (t *Table) xdp(dev, next int, frags bool) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := &t.devices[dev]
	if d.link == nil {
		return -1, fmt.Errorf("kernel flows: device %d has no program", dev)
	}
	to, first := t.objs.Steering, d.programs.Steer
	if frags {
		to, first = t.objs.SteeringFrags, d.programs.SteerFrags
	}
	if err := to.Put(uint32(dev), uint32(next)); err != nil {
		return -1, fmt.Errorf("enter the steering program behind the first: %w", err)
	}
	return first.FD(), nil
}

// explain wraps the reasons for which a system does not have kernel flows.
func explain(err error) error {
	switch {
	case errors.As(err, new(*ebpf.VerifierError)): // with EACCES, most of the time
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: %w", ErrPermission, err)
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	}
	return err
}
