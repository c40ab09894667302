package ebpf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/internal/rtnl"
	"github.com/millrace/millrace/pmd/xdp"
)

// iface is a network interface.
type iface struct {
	name  string
	index int
	link  netlink.Link
}

// interfaces returns those of the calling thread's network namespace, or one of them.
func interfaces(only string) ([]iface, error) {
	if only != "" {
		i, err := lookUp(only)
		return []iface{i}, err
	}
	links, err := rtnl.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	list := make([]iface, 0, len(links))
	for _, l := range links {
		list = append(list, iface{l.Attrs().Name, l.Attrs().Index, l})
	}
	return list, nil
}

func lookUp(name string) (iface, error) {
	l, err := rtnl.Dump(func() (netlink.Link, error) { return netlink.LinkByName(name) })
	if err != nil {
		return iface{}, fmt.Errorf("%w: interface %s: %w", ErrNotFound, name, err)
	}
	return iface{l.Attrs().Name, l.Attrs().Index, l}, nil
}

// XDPOptions configure how an XDP program is attached. The zero value is the object's own configuration, or libxdp's defaults.
type XDPOptions struct {
	Mode     xdp.Mode    // of an interface without a program
	Priority uint32      // 0: the object's
	Actions  xdp.Actions // that continue with the next program; 0: the object's, unless NoActions
	// NoActions has no action continue: the program ends the chain.
	NoActions bool
}

// attachment finds the program and the interface of an attachment.
func (s *Store) attachment(ref string, kind Kind, ifname string) (o Object, p Program, i iface, err error) {
	if o, p, err = s.program(ref, kind); err == nil {
		i, err = lookUp(ifname)
	}
	return o, p, i, err
}

// detachable is attachment for a program that is to be detached: of an object with several, the one that is attached to the
// interface need not be named.
func (s *Store) detachable(ref string, kind Kind, ifname string) (o Object, p Program, i iface, err error) {
	o, p, i, err = s.attachment(ref, kind, ifname)
	if err == nil || !errors.Is(err, ErrUsage) || strings.Contains(ref, "/") {
		return o, p, i, err
	}
	at, lookErr := lookUp(ifname)
	places, whereErr := s.where(o)
	if lookErr != nil || whereErr != nil {
		return o, p, i, errors.Join(err, lookErr, whereErr)
	}
	found := map[string]Program{}
	for _, q := range places {
		if q.iface.index == at.index && q.program.Kind == kind {
			found[q.program.Name] = q.program
		}
	}
	for _, one := range found {
		if len(found) == 1 {
			return o, one, at, nil
		}
	}
	return o, p, i, err
}

// Attached returns "OBJECT/PROGRAM" of the one program of the store that is attached to an interface at hooks of a kind, for
// tc in a direction or with AnyDirection in both.
func (s *Store) Attached(kind Kind, ifname string, d Direction) (ref string, err error) {
	hooks, err := s.Hooks(ifname)
	if err != nil {
		return "", err
	}
	at := string(kind)
	if d != AnyDirection {
		at += "-" + string(d)
	}
	found := map[string]bool{}
	for _, h := range hooks {
		for _, c := range h.Chain {
			if c.Object != "" && (h.Hook == at || strings.HasPrefix(h.Hook, at+"-")) {
				found[c.Object] = true
			}
		}
	}
	names := sortedKeys(found)
	switch len(names) {
	case 0:
		return "", fmt.Errorf("%w: %s has no program of a loaded object at %s", ErrNotFound, ifname, at)
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("%w: %s has %d programs at %s; name one: %s", ErrUsage, ifname, len(names), at, some(names))
}

// AttachXDP attaches a program, "OBJECT" or "OBJECT/PROGRAM", to the XDP hook of an interface, beside those that are there.
func (s *Store) AttachXDP(ref, ifname string, opts XDPOptions) error {
	end, err := s.begin()
	if err != nil {
		return err
	}
	defer end()
	o, p, i, err := s.attachment(ref, KindXDP, ifname)
	if err != nil {
		return err
	}
	prog, err := s.open(o, p)
	if err != nil {
		return err
	}
	defer prog.Close()
	if p.Alone != "" {
		left, err := s.leftover(p, i)
		if err != nil {
			return err
		}
		return permission(s.fs.Attach(i.index, prog.FD(), left, opts.Mode))
	}
	c := xdp.Component{FD: prog.FD(), Priority: p.Priority, Actions: p.about.Actions, Frags: p.Frags}
	if opts.Priority != 0 {
		c.Priority = opts.Priority
	}
	if opts.Actions != 0 || opts.NoActions {
		c.Actions = opts.Actions
	}
	return permission(s.fs.Update(i.index, opts.Mode, func(now []xdp.Component) ([]xdp.Component, error) {
		if slices.ContainsFunc(now, func(n xdp.Component) bool { return n.ID == p.ID }) {
			return nil, fmt.Errorf("%s/%s on %s: %w", o.Name, p.Name, ifname, ErrAttached)
		}
		return append(now, c), nil
	}))
}

// DetachXDP takes a program, "OBJECT" or "OBJECT/PROGRAM", off the XDP hook of an interface. The others stay.
func (s *Store) DetachXDP(ref, ifname string) error {
	end, err := s.begin()
	if err != nil {
		return err
	}
	defer end()
	o, p, i, err := s.detachable(ref, KindXDP, ifname)
	if err != nil {
		return err
	}
	if p.Alone != "" {
		return permission(s.detachAlone(o, p, i))
	}
	return permission(s.fs.Update(i.index, xdp.ModeAny, func(now []xdp.Component) ([]xdp.Component, error) {
		n := len(now)
		now = slices.DeleteFunc(now, func(c xdp.Component) bool { return c.ID == p.ID })
		if len(now) == n {
			return nil, notAttached(o, p, ifname)
		}
		return now, nil
	}))
}

func (s *Store) detachAlone(o Object, p Program, i iface) error {
	st, err := s.fs.Query(i.index)
	if err != nil {
		return err
	}
	if st.Program != p.ID {
		left, err := s.leftover(p, i)
		if err != nil {
			return err
		}
		if left == 0 {
			return notAttached(o, p, i.name)
		}
		return s.fs.Detach(i.index, left)
	}
	return s.fs.Detach(i.index, p.ID)
}

// leftover returns the id of a program alone on an interface that is p loaded another time, and of no object: a change that
// was killed behind its swap left such, before it recorded a program ahead of attaching it. 0: none is there. Name, tag (the
// kernel's hash of the instructions) and the lack of a process that holds it tell it from a program of others.
func (s *Store) leftover(p Program, i iface) (id uint32, err error) {
	st, err := s.fs.Query(i.index)
	if err != nil || st.Program == 0 || st.Dispatcher {
		return 0, err
	}
	owners, err := s.owners()
	if err != nil || owners[st.Program] != "" || len(xdp.Processes(st.Program)) > 0 {
		return 0, err
	}
	there, err := ebpf.NewProgramFromID(ebpf.ProgramID(st.Program))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, permission(err)
	}
	defer there.Close()
	info, err := there.Info()
	if err != nil || info.Tag != p.Tag || !strings.HasPrefix(p.Name, info.Name) || info.Name == "" {
		return 0, err
	}
	return st.Program, nil
}

func notAttached(o Object, p Program, ifname string) error {
	return fmt.Errorf("%w: %s/%s is not attached to %s", ErrNotFound, o.Name, p.Name, ifname)
}
