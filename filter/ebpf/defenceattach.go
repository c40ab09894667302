package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/millrace/millrace/pmd/xdp"
)

// defencePriority is that of _defence in bpf/defence.c: before programs that count or steer.
const defencePriority = 5

// LoadDefence makes the maps of a defence of this process, without pins. Attach and Before load its program for interfaces.
// Maps and program end with the process, except in a dispatcher after SIGKILL (Attach).
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
	prog, next closer    // nil: none. Of a chain next is the map with the program behind
	held       *xdp.Held // nil for a chain, which its driver attaches
	fd         int
	how        string
}

type closer interface{ Close() error }

// FD returns the descriptor of the program, which stays the Attachment's.
func (a *Attachment) FD() int { return a.fd }

// String describes how the program is attached.
func (a *Attachment) String() string { return a.how }

// Close takes the program off the interface. A chain is taken off by its driver before.
func (a *Attachment) Close() (err error) {
	if a.held != nil {
		err = a.held.Close()
	}
	for _, c := range []closer{a.prog, a.next} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// Before returns a program to be attached by the holder of an interface's XDP hook: what the defence lets pass goes on to
// the program next. frags means that both take packets of several buffers.
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

// Attach attaches the defence to an interface of the calling thread's network namespace: as the first component of a
// dispatcher that is there, and by a bpf_link, in native mode if the driver has it, where there is no program. The link ends
// with the process. A component stays after SIGKILL, and drops what the maps name, until the next change (xdp.Member). Any other program is refused and named (xdp.ErrForeign).
func (d *Defence) Attach(ifindex int) (*Attachment, error) {
	a := &Attachment{}
	load := func(prepare func(*ebpf.ProgramSpec)) (int, error) {
		prog, err := d.defence(prepare)
		if err != nil {
			return -1, err
		}
		a.prog, a.fd = prog, prog.FD()
		return a.fd, nil
	}
	held, err := xdp.Hold(ifindex, xdp.Program{
		Alone:     func() (int, error) { return load(func(*ebpf.ProgramSpec) {}) },
		Component: func(template int) (int, error) { return loadUpon(template, load) },
		Priority:  defencePriority,
		Frags:     true,
	}, xdp.ModeAny)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach the defence: %w", err), a.Close())
	}
	a.held, a.how = held, howHeld(held)
	return a, nil
}

// loadUpon loads a program as an extension of the dispatcher with the descriptor template, which it takes.
func loadUpon(template int, load func(prepare func(*ebpf.ProgramSpec)) (int, error)) (int, error) {
	target, err := ebpf.NewProgramFromFD(template)
	if err != nil {
		return -1, err
	}
	defer target.Close()
	return load(func(p *ebpf.ProgramSpec) { extend(p, target) })
}

// extend makes a program an extension of the dispatcher target.
func extend(p *ebpf.ProgramSpec, target *ebpf.Program) {
	p.Type, p.AttachType, p.AttachTarget, p.AttachTo = ebpf.Extension, ebpf.AttachNone, target, xdp.Function
	p.Flags &^= hasFrags
}

// defence loads the program of the defence, as prepare has changed it.
func (d *Defence) defence(prepare func(*ebpf.ProgramSpec)) (*ebpf.Program, error) {
	spec, err := loadDefence()
	if err != nil {
		return nil, err
	}
	prepare(spec.Programs[defenceProgDefence])
	coll, err := d.program(spec)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram(defenceProgDefence), nil
}

// howHeld describes an attachment, with the reason of a fallback.
func howHeld(h *xdp.Held) string {
	switch {
	case h.InDispatcher():
		return "in the interface's XDP dispatcher"
	case h.NotNative() != nil:
		return fmt.Sprintf("alone, in generic mode (native: %v)", h.NotNative())
	}
	return fmt.Sprintf("alone, in %v mode", h.Mode())
}
