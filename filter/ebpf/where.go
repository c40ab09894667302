package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/pmd/xdp"
)

// ErrElsewhere reports that a program is attached to an interface of another network namespace.
var ErrElsewhere = errors.New("a program is attached in another network namespace: run the command there")

// place is where a program of an object is attached.
type place struct {
	program Program
	what    string // for messages
	xdp     *xdp.Place
	pin     string // of a link at tcx
	filter  *netlink.BpfFilter
	iface   iface
	dir     Direction
}

// where returns the places at which the programs of an object are attached.
func (s *Store) where(o Object) (list []place, err error) {
	byID, ids := map[uint32]Program{}, map[uint32]bool{}
	for _, p := range o.Programs {
		byID[p.ID], ids[p.ID] = p, true
	}
	places, err := s.fs.Where(ids)
	if err != nil {
		return nil, err
	}
	for _, at := range places {
		p := byID[at.Program]
		if at.Elsewhere {
			return nil, fmt.Errorf("%s/%s: %w", o.Name, p.Name, ErrElsewhere)
		}
		list = append(list, place{program: p, xdp: &at, iface: iface{index: at.Ifindex}, what: "xdp of " + nameOf(at.Ifindex)})
	}
	tcx, err := s.whereTCX(o, byID)
	if err != nil {
		return nil, err
	}
	clsact, err := s.whereClsact(byID)
	return append(append(list, tcx...), clsact...), err
}

// nameOf returns the name of an interface of this network namespace.
func nameOf(ifindex int) string {
	if l, err := netlink.LinkByIndex(ifindex); err == nil {
		return l.Attrs().Name
	}
	return fmt.Sprintf("interface %d", ifindex)
}

// nameOfLink returns the name of the interface of a link at tcx, which the kernel gives by its index alone: pin, of linkPath,
// has the network namespace.
func nameOfLink(pin string, ifindex int) string {
	var cookie uint64
	_, rest, _ := strings.Cut(pin, "-")
	here, err := xdp.Namespace()
	if n, _ := fmt.Sscanf(rest, "%x-", &cookie); n != 1 || err != nil || cookie != here {
		return fmt.Sprintf("interface %d of another network namespace", ifindex)
	}
	return nameOf(ifindex)
}

// whereTCX finds links by their pins, in all network namespaces: the kernel does not say in which an interface is.
func (s *Store) whereTCX(o Object, byID map[uint32]Program) (list []place, err error) {
	entries, err := os.ReadDir(s.links(o.Name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		path := filepath.Join(s.links(o.Name), e.Name())
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			continue
		}
		info, err := l.Info()
		l.Close()
		if err != nil {
			return nil, err
		}
		p, ours := byID[uint32(info.Program)]
		if x := info.TCX(); ours && x != nil && x.Ifindex != 0 {
			list = append(list, place{program: p, pin: path, iface: iface{index: int(x.Ifindex)}, what: "tcx of " + nameOfLink(e.Name(), int(x.Ifindex))})
		}
	}
	return list, err
}

// whereClsact finds filters on the interfaces of this network namespace.
func (s *Store) whereClsact(byID map[uint32]Program) (list []place, err error) {
	tc := false
	for _, p := range byID {
		tc = tc || p.Kind == KindTC
	}
	if !tc {
		return nil, nil
	}
	ifaces, err := interfaces("")
	if err != nil {
		return nil, err
	}
	for _, i := range ifaces {
		for _, d := range []Direction{Ingress, Egress} {
			filters, err := clsactFilters(i, d)
			if err != nil {
				return nil, err
			}
			for _, f := range filters {
				if p, ours := byID[uint32(f.Id)]; ours {
					list = append(list, place{program: p, filter: f, iface: i, dir: d, what: fmt.Sprintf("clsact of %s", i.name)})
				}
			}
		}
	}
	return list, nil
}

// swap makes next, of which p describes what is new, the program of the place. The kernel does so atomically.
func (s *Store) swap(at place, p Program, next *ebpf.Program) error {
	switch {
	case at.xdp != nil && at.xdp.Alone:
		return s.fs.Attach(at.xdp.Ifindex, next.FD(), at.program.ID, xdp.ModeAny)
	case at.xdp != nil:
		return s.fs.Update(at.xdp.Ifindex, xdp.ModeAny, func(now []xdp.Component) ([]xdp.Component, error) {
			for i, c := range now {
				if c.ID == at.program.ID { // what was said at attaching stays
					now[i] = xdp.Component{FD: next.FD(), Priority: c.Priority, Actions: c.Actions, Frags: p.Frags}
				}
			}
			return now, nil
		})
	case at.pin != "":
		l, err := link.LoadPinnedLink(at.pin, nil)
		if err != nil {
			return err
		}
		defer l.Close()
		return l.Update(next)
	}
	f := at.filter
	return netlink.FilterReplace(clsactFilter(at.iface.index, at.dir, next.FD(), f.Name, f.Handle, f.Priority))
}

// remove detaches the program from the place.
func (s *Store) remove(at place) error {
	switch {
	case at.xdp != nil && at.xdp.Alone:
		return s.fs.Detach(at.xdp.Ifindex, at.program.ID)
	case at.xdp != nil:
		return s.fs.Update(at.xdp.Ifindex, xdp.ModeAny, func(now []xdp.Component) (rest []xdp.Component, err error) {
			for _, c := range now {
				if c.ID != at.program.ID {
					rest = append(rest, c)
				}
			}
			return rest, nil
		})
	case at.pin != "":
		return atTC{mode: "tcx", pin: at.pin}.detach()
	}
	return atTC{mode: "clsact", filter: at.filter}.detach()
}
