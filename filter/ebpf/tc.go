package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/rtnl"
	"github.com/millrace/millrace/pmd/xdp"
)

// Direction is the side of an interface that a tc program sees.
type Direction string

// The directions. AnyDirection is egress for SEC("tcx/egress"), and ingress otherwise.
const (
	AnyDirection Direction = ""
	Ingress      Direction = "ingress"
	Egress       Direction = "egress"
)

// attachType returns the hook of tcx.
func (d Direction) attachType() ebpf.AttachType {
	if d == Egress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

// parent returns the parent of filters of a clsact qdisc.
func (d Direction) parent() uint32 {
	if d == Egress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

// TCOptions configure how a tc program is attached. The zero value is the default.
type TCOptions struct {
	Direction Direction
	Clsact    bool   // at a clsact qdisc although the kernel has tcx
	Priority  uint16 // of the filter at a clsact qdisc; 0: the kernel chooses. tcx appends.
}

// direction returns the direction of a program.
func (p Program) direction(d Direction) Direction {
	switch {
	case d != AnyDirection:
		return d
	case p.about.Egress:
		return Egress
	}
	return Ingress
}

// AttachTC attaches a program to an interface behind those that are there: by tcx where the kernel has it (Linux 6.6), and
// otherwise as a filter with direct action of a clsact qdisc, which is added if need be. It returns which of both.
func (s *Store) AttachTC(ref, ifname string, opts TCOptions) (mode string, err error) {
	end, err := s.begin()
	if err != nil {
		return "", err
	}
	defer end()
	o, p, i, err := s.attachment(ref, KindTC, ifname)
	if err != nil {
		return "", err
	}
	d := p.direction(opts.Direction)
	if at, err := s.findTC(o, p, i, d); err != nil {
		return "", err
	} else if at.mode != "" {
		return "", fmt.Errorf("%s/%s on %s %s: %w", o.Name, p.Name, ifname, d, ErrAttached)
	}
	prog, err := s.open(o, p)
	if err != nil {
		return "", err
	}
	defer prog.Close()
	if !opts.Clsact {
		err := s.attachTCX(o, p, prog, i, d)
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return "tcx", permission(err)
		}
	}
	return "clsact", permission(attachClsact(i, d, prog, o.Name+"/"+p.Name, 1, opts.Priority))
}

// attachTCX attaches and pins the link, which would end with the process.
func (s *Store) attachTCX(o Object, p Program, prog *ebpf.Program, i iface, d Direction) error {
	l, err := link.AttachTCX(link.TCXOptions{Interface: i.index, Program: prog, Attach: d.attachType()})
	if err != nil {
		return err
	}
	defer l.Close()
	path, err := s.linkPath(o.Name, p.Name, i.index, d)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.links(o.Name), 0o700); err != nil {
		return err
	}
	_ = os.Remove(path) // of an interface that is gone and had this index
	return l.Pin(path)
}

// linkPath returns where the link of a program at tcx is pinned.
func (s *Store) linkPath(object, program string, index int, d Direction) (string, error) {
	cookie, err := xdp.Namespace()
	if err != nil {
		return "", err
	}
	return filepath.Join(s.links(object), fmt.Sprintf("%s-%x-%d-%s", d, cookie, index, pinName(program))), nil
}

// attachClsact adds a filter of a clsact qdisc.
func attachClsact(i iface, d Direction, prog *ebpf.Program, name string, handle uint32, priority uint16) error {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: i.index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add a clsact qdisc to %s: %w", i.name, err)
	}
	f := clsactFilter(i.index, d, prog.FD(), name, handle, priority)
	if err := netlink.FilterAdd(f); err != nil {
		return fmt.Errorf("add a filter to the clsact qdisc of %s: %w", i.name, err)
	}
	return nil
}

func clsactFilter(index int, d Direction, fd int, name string, handle uint32, priority uint16) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs:  netlink.FilterAttrs{LinkIndex: index, Parent: d.parent(), Handle: handle, Protocol: unix.ETH_P_ALL, Priority: priority},
		Fd:           fd,
		Name:         name,
		DirectAction: true,
	}
}

// atTC is where a program is attached at tc; mode "" is nowhere.
type atTC struct {
	mode   string // tcx or clsact
	pin    string // of the link at tcx
	filter *netlink.BpfFilter
}

// findTC finds a program of the store at a hook.
func (s *Store) findTC(o Object, p Program, i iface, d Direction) (at atTC, err error) {
	path, err := s.linkPath(o.Name, p.Name, i.index, d)
	if err != nil {
		return at, err
	}
	if l, err := link.LoadPinnedLink(path, nil); err == nil {
		defer l.Close()
		info, err := l.Info()
		if err != nil {
			return at, err
		}
		if x := info.TCX(); x != nil && int(x.Ifindex) == i.index { // 0: the interface of the link is gone
			return atTC{mode: "tcx", pin: path}, nil
		}
	}
	filters, err := clsactFilters(i, d)
	for _, f := range filters {
		if uint32(f.Id) == p.ID {
			return atTC{mode: "clsact", filter: f}, err
		}
	}
	return at, err
}

// clsactFilters returns the BPF filters of a clsact qdisc, in the order in which they see a packet; none without a qdisc.
func clsactFilters(i iface, d Direction) ([]*netlink.BpfFilter, error) {
	all, err := rtnl.Dump(func() ([]netlink.Filter, error) { return netlink.FilterList(i.link, d.parent()) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // no qdisc there, or none that has this parent
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the filters of %s: %w", i.name, err)
	}
	var list []*netlink.BpfFilter
	for _, f := range all {
		if b, ok := f.(*netlink.BpfFilter); ok {
			list = append(list, b)
		}
	}
	slices.SortStableFunc(list, func(a, b *netlink.BpfFilter) int { return int(a.Priority) - int(b.Priority) })
	return list, nil
}

// DetachTC takes a program off an interface: from the direction, or with AnyDirection from where it is.
func (s *Store) DetachTC(ref, ifname string, d Direction) error {
	end, err := s.begin()
	if err != nil {
		return err
	}
	defer end()
	o, p, i, err := s.detachable(ref, KindTC, ifname)
	if err != nil {
		return err
	}
	sides := []Direction{Ingress, Egress}
	if d != AnyDirection {
		sides = []Direction{d}
	}
	found := false
	for _, d := range sides {
		at, err := s.findTC(o, p, i, d)
		if err == nil && at.mode != "" {
			found, err = true, at.detach()
		}
		if err != nil {
			return permission(err)
		}
	}
	if !found {
		return notAttached(o, p, ifname)
	}
	return nil
}

func (at atTC) detach() error {
	if at.mode == "clsact" {
		return netlink.FilterDel(at.filter)
	}
	l, err := link.LoadPinnedLink(at.pin, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Unpin() // its last reference, but for l's own
}

// tcHooks returns the programs at the tc hooks of an interface.
func (s *Store) tcHooks(i iface, owners map[uint32]string) ([]Hook, error) {
	var hooks []Hook
	for _, d := range []Direction{Ingress, Egress} {
		h := Hook{Interface: i.name, Index: i.index, Hook: "tc-" + string(d), Mode: "tcx"}
		at, err := link.QueryPrograms(link.QueryOptions{Target: i.index, Attach: d.attachType()})
		if err == nil {
			for _, p := range at.Programs {
				h.Chain = append(h.Chain, called(uint32(p.ID), owners))
			}
		} else if !errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, unix.EINVAL) {
			return nil, fmt.Errorf("tcx programs of %s: %w", i.name, err)
		}
		if len(h.Chain) > 0 {
			hooks = append(hooks, h)
		}
		filters, err := clsactFilters(i, d)
		if err != nil {
			return nil, err
		}
		h.Mode, h.Chain = "clsact", nil
		for _, f := range filters {
			c := called(uint32(f.Id), owners)
			c.Priority = uint32(f.Priority)
			h.Chain = append(h.Chain, c)
		}
		if len(h.Chain) > 0 {
			hooks = append(hooks, h)
		}
	}
	return hooks, nil
}

// called describes a program by its id. One that is gone by now has no name.
func called(id uint32, owners map[uint32]string) Called {
	c := Called{ID: id, Object: owners[id]}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return c
	}
	defer p.Close()
	if info, err := p.Info(); err == nil {
		c.Name = info.Name
		c.Loaded, _ = info.LoadTime()
		if _, own, ok := strings.Cut(c.Object, "/"); ok {
			c.Name = own // the kernel cuts names
		}
	}
	return c
}
