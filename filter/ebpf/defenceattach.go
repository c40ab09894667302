package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd/xdp"
)

// defencePriority is that of _defence in bpf/defence.c: before programs that count or steer.
const defencePriority = 5

// LoadDefence makes the maps of a defence of this process: nothing is pinned, and all ends with the process. Attach and
// Before load its program for interfaces.
func LoadDefence() (*Defence, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory for BPF maps: %w", err)
	}
	spec, err := loadDefence()
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{Maps: spec.Maps, Types: spec.Types, ByteOrder: spec.ByteOrder})
	if err != nil {
		return nil, fmt.Errorf("maps of the defence: %w", err)
	}
	defer coll.Close()
	d := &Defence{front: &front{slots: map[uint32][4]byte{}}}
	for name, m := range d.maps() {
		*m = coll.DetachMap(name)
	}
	return d, nil
}

// Attachment is a program of a Defence at an interface.
type Attachment struct {
	prog, next closer // nil: none. Of a chain next is the map with the program behind
	link       link.Link
	member     *xdp.Member
	fd         int
	how        string
}

type closer interface{ Close() error }

// FD returns the descriptor of the program, which stays the Attachment's.
func (a *Attachment) FD() int { return a.fd }

// String says how the program is attached.
func (a *Attachment) String() string { return a.how }

// Close takes the program off the interface. A chain is taken off by its driver before.
func (a *Attachment) Close() (err error) {
	if a.link != nil {
		err = a.link.Close()
	}
	if a.member != nil {
		err = errors.Join(err, a.member.Leave())
	}
	for _, c := range []closer{a.prog, a.next} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// Before returns a program to be attached by the holder of an interface's XDP hook: what the defence lets pass goes on to
// the program next. frags says that both take packets of several buffers.
func (d *Defence) Before(next int, frags bool) (*Attachment, error) {
	spec, err := loadChained()
	if err != nil {
		return nil, err
	}
	p := spec.Programs[chainedProgChained]
	if !frags {
		p.Flags &^= hasFrags
	}
	coll, err := d.program(spec)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	m := coll.Maps[chainedMapNext]
	if err := m.Put(uint32(0), uint32(next)); err != nil {
		return nil, fmt.Errorf("enter the program behind the defence: %w", err)
	}
	a := &Attachment{how: "before the driver's program"}
	prog := coll.DetachProgram(chainedProgChained)
	a.prog, a.next, a.fd = prog, coll.DetachMap(chainedMapNext), prog.FD()
	return a, nil
}

// program loads a program upon the maps of d.
func (d *Defence) program(spec *ebpf.CollectionSpec) (*ebpf.Collection, error) {
	maps := map[string]*ebpf.Map{}
	for name, m := range d.maps() {
		if spec.Maps[name] != nil {
			maps[name] = *m
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil {
		return nil, fmt.Errorf("load the defence: %w", err)
	}
	return coll, nil
}

// Attach attaches the defence to an interface of the calling thread's network namespace, for as long as the process lives:
// as the first component of a dispatcher that is there, and by a bpf_link, in native mode if the driver has it, where there
// is no program. Any other program is refused and named (xdp.ErrForeign).
func (d *Defence) Attach(ifindex int) (*Attachment, error) {
	fs, err := xdp.OpenFS(xdp.DefaultFS())
	if err != nil {
		return nil, err
	}
	st, err := fs.Query(ifindex)
	switch {
	case err != nil:
		return nil, err
	case st.Dispatcher:
		return d.join(fs, ifindex)
	case st.Foreign != nil:
		return nil, st.Foreign
	}
	return d.alone(ifindex)
}

// join makes the defence the first component of the dispatcher.
func (d *Defence) join(fs *xdp.FS, ifindex int) (*Attachment, error) {
	spec, err := loadDefence()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate()
	if err != nil {
		return nil, err
	}
	defer template.Close()
	p := spec.Programs[defenceProgDefence]
	p.Type, p.AttachType, p.AttachTarget, p.AttachTo = ebpf.Extension, ebpf.AttachNone, template, xdp.Function
	p.Flags &^= hasFrags
	coll, err := d.program(spec)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	prog := coll.DetachProgram(defenceProgDefence)
	c := xdp.Component{FD: prog.FD(), Priority: defencePriority, Actions: xdp.DefaultActions, Frags: true}
	member, err := fs.Join(ifindex, c)
	if err != nil {
		return nil, errors.Join(err, prog.Close())
	}
	return &Attachment{prog: prog, member: member, fd: prog.FD(), how: "in the interface's XDP dispatcher"}, nil
}

// alone attaches the defence by a bpf_link.
func (d *Defence) alone(ifindex int) (*Attachment, error) {
	spec, err := loadDefence()
	if err != nil {
		return nil, err
	}
	coll, err := d.program(spec)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	prog := coll.DetachProgram(defenceProgDefence)
	a := &Attachment{prog: prog, fd: prog.FD(), how: "alone, in native mode"}
	opts := link.XDPOptions{Program: prog, Interface: ifindex, Flags: link.XDPDriverMode}
	if a.link, err = link.AttachXDP(opts); err == nil {
		return a, nil
	}
	native := err
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
		return nil, errors.Join(fmt.Errorf("attach the defence: %w", err), prog.Close()) // generic mode would fail alike
	}
	opts.Flags = link.XDPGenericMode
	if a.link, err = link.AttachXDP(opts); err != nil {
		return nil, errors.Join(fmt.Errorf("attach the defence: %w", err), prog.Close())
	}
	a.how = fmt.Sprintf("alone, in generic mode (native: %v)", native)
	return a, nil
}
