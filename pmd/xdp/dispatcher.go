package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Why a change to an interface is refused. Errors wrap one of them.
var (
	ErrForeign = errors.New("the interface has an XDP program that is no dispatcher")
	ErrFull    = errors.New("the dispatcher has no place left")
	ErrRace    = errors.New("the XDP program of the interface changes all the time")
)

// updateTries bounds how often an update begins again because another loader was faster.
const updateTries = 20

// State describes the XDP hook of an interface.
type State struct {
	Ifindex    int
	Mode       Mode
	Program    uint32 // id of the program that the kernel calls; 0: none
	Name       string // of that program
	Dispatcher bool   // Program is a dispatcher that Update can change
	Frags      bool   // the dispatcher takes packets of several buffers
	Components []Component

	// Foreign reports why Update refuses the program; nil without a program and for a dispatcher.
	Foreign error

	prog *ebpf.Program
	held []heldLink // of members of this process, of a dispatcher that is being built
}

// close gives the references to programs back.
func (s *State) close() {
	closeAll(s.Components)
	if s.prog != nil {
		s.prog.Close()
	}
}

// Query reads the state of an interface of the calling thread's network namespace.
func (f *FS) Query(ifindex int) (State, error) {
	s, err := f.read(ifindex)
	s.close()
	for i := range s.Components {
		s.Components[i].prog = nil
	}
	s.prog = nil
	return s, err
}

// read is Query with references to the programs, which the caller closes also after an error.
func (f *FS) read(ifindex int) (s State, err error) {
	s.Ifindex = ifindex
	for range updateTries {
		if s.Program, s.Mode, err = attached(ifindex); err != nil {
			return s, err
		}
		if s.Mode == ModeSeveral {
			s.Foreign = fmt.Errorf("%w: it has programs in native and generic mode at once", ErrForeign)
			return s, nil
		}
		if s.Program == 0 {
			return s, nil
		}
		s.Foreign = s.open(f)
		if now, _, err := attached(ifindex); err != nil || now == s.Program {
			return s, err
		}
		s.close() // another loader has replaced it meanwhile
		s = State{Ifindex: ifindex}
	}
	return s, ErrRace
}

// open reads the program of the interface. The error says why it cannot be joined.
func (s *State) open(f *FS) (err error) {
	if s.prog, err = ebpf.NewProgramFromID(ebpf.ProgramID(s.Program)); err != nil {
		return fmt.Errorf("XDP program %d: %w", s.Program, err)
	}
	info, err := s.prog.Info()
	if err != nil {
		return err
	}
	s.Name = info.Name
	maps, _ := info.MapIDs()
	if info.Name != dispatcherName || len(maps) != 1 {
		return fmt.Errorf("%w: %s", ErrForeign, describe(s.Program, s.prog.FD()))
	}
	conf, err := readConfig(maps[0])
	if err != nil {
		return fmt.Errorf("XDP dispatcher %d: %w", s.Program, err)
	}
	s.Frags = conf.frags
	if s.Components, err = f.components(s.Ifindex, s.Program, &conf); err != nil {
		return fmt.Errorf("XDP dispatcher %d: %w", s.Program, err)
	}
	s.Dispatcher = true
	return nil
}

// readConfig reads the .rodata map of a dispatcher.
func readConfig(id ebpf.MapID) (config, error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return config{}, err
	}
	defer m.Close()
	if m.KeySize() != 4 || m.MaxEntries() != 1 {
		return config{}, errors.New("its map is no configuration")
	}
	var b []byte
	if err := m.Lookup(uint32(0), &b); err != nil {
		return config{}, fmt.Errorf("read the configuration: %w", err)
	}
	return parseConfig(b)
}

// components opens the programs that a dispatcher calls, by their pins. What their object said is not read again: the
// configuration has what was in force.
func (f *FS) components(ifindex int, id uint32, conf *config) (list []Component, err error) {
	for i := range conf.count {
		c := Component{Priority: conf.prios[i], Actions: conf.actions[i] &^ Continue, Frags: conf.flags[i]&hasFrags != 0}
		path := filepath.Join(f.folder(ifindex, id), fmt.Sprintf("prog%d-prog", i))
		if c.prog, err = ebpf.LoadPinnedProgram(path, nil); err != nil {
			closeAll(list)
			return nil, fmt.Errorf("its programs are not pinned in the BPF file system at %s: %w", f.root, err)
		}
		if err = c.describe(); err != nil {
			closeAll(append(list, c))
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// Update changes the components of an interface of the calling thread's network namespace. It passes to edit those that are
// there and makes what edit returns the new set, in the order of the protocol; none takes the dispatcher off. It calls edit
// again where another loader has changed the interface meanwhile. mode is that of an interface without a program.
//
// Packets meet the old or the new set. On an error the old one stays.
func (f *FS) Update(ifindex int, mode Mode, edit func(now []Component) ([]Component, error)) error {
	unlock, err := f.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := f.sweep(); err != nil {
		return err
	}
	for range updateTries {
		err = f.update(ifindex, mode, edit)
		if !errors.Is(err, errLost) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrRace, err)
}

// errLost reports that another loader has changed the program first.
var errLost = errors.New("another loader was faster")

func (f *FS) update(ifindex int, mode Mode, edit func([]Component) ([]Component, error)) error {
	old, err := f.read(ifindex)
	defer old.close()
	if err != nil {
		return err
	}
	if old.Foreign != nil {
		return old.Foreign
	}
	now := slices.Clone(old.Components)
	gone := f.orphans(ifindex, now)
	for _, id := range gone {
		now = without(now, id)
	}
	want, err := edit(now)
	if err != nil {
		return err
	}
	if old.Program != 0 {
		mode = old.Mode
	}
	if len(want) == 0 && old.Program == 0 {
		return nil
	}
	next := State{Ifindex: ifindex, Mode: mode}
	if len(want) > 0 {
		if next, err = f.build(ifindex, mode, want); err != nil {
			return err
		}
		defer next.prog.Close()
	}
	err = f.swap(old, next)
	holdOrClose(next.held, err == nil || f.runs(next))
	if err != nil {
		return err
	}
	return f.forgetOrphans(ifindex, gone)
}

// runs reports whether a dispatcher is on its interface.
func (f *FS) runs(s State) bool {
	now, _, err := attached(s.Ifindex)
	return err == nil && now == s.Program
}

// build loads a dispatcher with all its components attached and pins them. It is on no interface yet.
func (f *FS) build(ifindex int, mode Mode, want []Component) (State, error) {
	next := State{Ifindex: ifindex, Mode: mode, Dispatcher: true, Name: dispatcherName}
	if len(want) > MaxComponents {
		return next, fmt.Errorf("%w: it has %d programs at most", ErrFull, MaxComponents)
	}
	var opened []Component
	defer func() { closeAll(opened) }()
	for i := range want {
		if want[i].FD == 0 {
			continue
		}
		if err := want[i].open(); err != nil {
			return next, err
		}
		opened = append(opened, want[i])
	}
	slices.SortStableFunc(want, compare)
	conf := configOf(want)
	prog, err := newDispatcher(&conf)
	if err != nil {
		return next, err
	}
	next.prog = prog
	if next.Program, err = programID(prog); err == nil {
		next.held, err = f.pin(ifindex, next.Program, prog, want)
	}
	if err != nil {
		holdOrClose(next.held, false)
		return next, errors.Join(err, f.unpin(ifindex, next.Program), prog.Close())
	}
	return next, nil
}

// configOf returns the configuration of a dispatcher. It takes packets of several buffers where all components do: one that
// does not would see the first buffer alone and not know.
func configOf(list []Component) (c config) {
	c.count, c.frags = len(list), true
	for i, p := range list {
		c.actions[i], c.prios[i] = p.Actions|Continue, p.Priority
		if p.Frags {
			c.flags[i] = hasFrags
		}
		c.frags = c.frags && p.Frags
	}
	return c
}

// pin attaches the components to a dispatcher and pins them and the attachments, which would end with this process. It returns
// the attachments of members of this process instead, which are to end with it. In the place of such an attachment a second
// pin of the program has its name: libxdp removes the pins by their names, and stops at one that is missing.
func (f *FS) pin(ifindex int, id uint32, dispatcher *ebpf.Program, list []Component) (held []heldLink, err error) {
	if err := f.remember(ifindex, id); err != nil {
		return nil, err
	}
	step("recorded")
	dir := f.folder(ifindex, id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	for i, c := range list {
		l, err := attachComponent(dispatcher, fmt.Sprintf("prog%d", i), c.prog)
		if err != nil {
			return held, fmt.Errorf("attach %s to the dispatcher: %w", c.Name, err)
		}
		path := filepath.Join(dir, fmt.Sprintf("prog%d-link", i))
		if m := memberOf(c.ID); m != nil {
			held = append(held, heldLink{m, l})
			err = pinProgram(c.prog, path)
		} else {
			err = errors.Join(l.Pin(path), l.Close()) // the pin holds it
		}
		if err == nil {
			err = pinProgram(c.prog, filepath.Join(dir, fmt.Sprintf("prog%d-prog", i)))
		}
		if err != nil {
			return held, fmt.Errorf("pin %s: %w", c.Name, err)
		}
		step("pinned one")
	}
	step("pinned")
	return held, nil
}

// attachComponent attaches an extension program in the place of a function of a dispatcher.
var attachComponent = func(dispatcher *ebpf.Program, function string, component *ebpf.Program) (attachment, error) {
	return link.AttachFreplace(dispatcher, function, component)
}

// pinProgram pins a program that may be pinned elsewhere already, which stays.
func pinProgram(p *ebpf.Program, path string) error {
	c, err := p.Clone()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Pin(path)
}

// swap makes next the program of the interface in the place of old and removes the pins of old. Either may be none.
func (f *FS) swap(old, next State) error {
	if old.Program != 0 { // for the sweep after a death between the swap and the unpinning
		if err := f.remember(old.Ifindex, old.Program); err != nil {
			return errors.Join(err, f.unpin(next.Ifindex, next.Program))
		}
	}
	fd, oldFD := noProgram, noProgram
	if next.prog != nil {
		fd = next.prog.FD()
	}
	var err error
	if old.prog != nil {
		oldFD = old.prog.FD()
		err = setProgram(next.Ifindex, fd, oldFD, next.Mode)
	} else {
		err = setAny(next.Ifindex, fd, next.Mode)
	}
	if err != nil {
		return errors.Join(f.swapError(old, err), f.unpin(next.Ifindex, next.Program))
	}
	step("swapped")
	return f.unpin(old.Ifindex, old.Program)
}

// swapError returns errLost where the program that swap expected is there no more, and otherwise why it failed.
func (f *FS) swapError(old State, err error) error {
	now, _, e := attached(old.Ifindex)
	switch {
	case e != nil:
		return errors.Join(err, e)
	case now != old.Program:
		return errLost
	case errors.Is(err, unix.EBUSY) && now != 0:
		return fmt.Errorf("%w: %s", ErrForeign, Describe(now)) // by a bpf_link, which netlink may not replace
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("attach the XDP dispatcher: the driver has no XDP in this mode: %w", err)
	case errors.Is(err, unix.ERANGE), errors.Is(err, unix.E2BIG), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("attach the XDP dispatcher: the MTU may need programs for packets of several buffers (SEC(\"xdp.frags\")): %w", err)
	}
	return fmt.Errorf("attach the XDP dispatcher: %w", err)
}

func programID(p *ebpf.Program) (uint32, error) {
	info, err := p.Info()
	if err != nil {
		return 0, err
	}
	id, _ := info.ID()
	return uint32(id), nil
}

// step is called between the steps of an update. Tests end the process there.
var step = func(string) {}
