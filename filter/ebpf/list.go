package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// Object is a loaded object.
type Object struct {
	Name     string    `json:"name"`
	Source   string    `json:"source"` // path of the file that it was loaded from
	SHA256   string    `json:"sha256"` // of that file
	Programs []Program `json:"programs"`
	Maps     []Map     `json:"maps"`
}

// Program is a loaded program of an object.
type Program struct {
	Name     string   `json:"name"`
	Section  string   `json:"section"`
	Kind     Kind     `json:"kind"`
	ID       uint32   `json:"id"`
	Tag      string   `json:"tag"`
	Priority uint32   `json:"priority,omitempty"`
	Actions  []string `json:"actions,omitempty"` // that continue with the next XDP program
	Frags    bool     `json:"frags,omitempty"`
	Alone    string   `json:"alone,omitempty"` // why it cannot share an interface

	about aboutProgram
}

// Map is a map of an object.
type Map struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	ID         uint32 `json:"id"`
	KeySize    uint32 `json:"key_size"`   // bytes
	ValueSize  uint32 `json:"value_size"` // bytes
	MaxEntries uint32 `json:"max_entries"`
}

// Objects returns the loaded objects, sorted by name. An object that another process removes meanwhile is left out.
func (s *Store) Objects() ([]Object, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	list := make([]Object, 0, len(names))
	for _, name := range names {
		o, err := s.object(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

// Object returns a loaded object.
func (s *Store) Object(name string) (Object, error) {
	if err := s.exists(name); err != nil {
		return Object{}, err
	}
	return s.object(name)
}

func (s *Store) object(name string) (Object, error) { return readFolder(s.folder(name), name) }

// readFolder reads an object from its pins.
func readFolder(dir, name string) (o Object, err error) {
	a, err := readAbout(dir)
	if err != nil {
		return o, fmt.Errorf("object %s: %w", name, err)
	}
	o = Object{Name: name, Source: a.Source, SHA256: a.SHA256, Programs: []Program{}, Maps: []Map{}}
	for _, p := range a.Programs {
		prog := Program{Name: p.Name, Section: p.Section, Kind: p.Kind, Priority: p.Priority, Frags: p.Frags, Alone: p.Alone, about: p}
		if p.Kind == KindXDP {
			prog.Actions = p.Actions.Names()
		}
		if err := prog.read(filepath.Join(dir, "programs", pinName(p.Name))); err != nil {
			return o, fmt.Errorf("object %s: program %s: %w", name, p.Name, err)
		}
		o.Programs = append(o.Programs, prog)
	}
	o.Maps, err = readMaps(filepath.Join(dir, "maps"))
	return o, err
}

// read reads the identity of a pinned program.
func (p *Program) read(path string) error {
	prog, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		return err
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return err
	}
	id, _ := info.ID()
	p.ID, p.Tag = uint32(id), info.Tag
	return nil
}

// readMaps reads the identities of the maps pinned in a folder.
func readMaps(dir string) ([]Map, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	list := make([]Map, 0, len(entries))
	for _, e := range entries {
		m, err := readMap(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", unpinName(e.Name()), err)
		}
		m.Name = unpinName(e.Name())
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Map) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func readMap(path string) (out Map, err error) {
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return out, err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return out, err
	}
	id, _ := info.ID()
	return Map{Type: info.Type.String(), ID: uint32(id), KeySize: info.KeySize, ValueSize: info.ValueSize, MaxEntries: info.MaxEntries}, nil
}

// program finds a program by "OBJECT" or "OBJECT/PROGRAM". Without PROGRAM the object must have one of the kind.
func (s *Store) program(ref string, kind Kind) (Object, Program, error) {
	name, prog, named := strings.Cut(ref, "/")
	o, err := s.Object(name)
	if err != nil {
		return o, Program{}, err
	}
	var found []Program
	var names []string
	for _, p := range o.Programs {
		if named && p.Name == prog && p.Kind != kind {
			return o, p, fmt.Errorf("%w: %s/%s is in section %s, which is no program for %s", ErrUsage, o.Name, p.Name, p.Section, kind)
		}
		if p.Kind == kind {
			names = append(names, o.Name+"/"+p.Name)
			if !named || p.Name == prog {
				found = append(found, p)
			}
		}
	}
	switch {
	case len(names) == 0:
		return o, Program{}, fmt.Errorf("%w: object %s has no program for %s", ErrUsage, o.Name, kind)
	case len(found) == 0:
		return o, Program{}, fmt.Errorf("%w: program %s; there are %s", ErrNotFound, ref, some(names))
	case len(found) > 1:
		return o, Program{}, fmt.Errorf("%w: object %s has %d programs for %s; name one: %s", ErrUsage, o.Name, len(names), kind, some(names))
	}
	return o, found[0], nil
}

// open opens a pinned program of an object.
func (s *Store) open(o Object, p Program) (*ebpf.Program, error) {
	return ebpf.LoadPinnedProgram(filepath.Join(s.folder(o.Name), "programs", pinName(p.Name)), nil)
}

// Hook describes the programs at one hook of an interface.
type Hook struct {
	Interface string `json:"interface"`
	Index     int    `json:"index"`
	Hook      string `json:"hook"` // xdp, tc-ingress or tc-egress
	Mode      string `json:"mode"` // xdp: native, generic or offloaded; tc: tcx or clsact

	Dispatcher uint32   `json:"dispatcher,omitempty"` // id of the XDP dispatcher
	Chain      []Called `json:"chain"`                // in the order in which packets meet them
}

// Called is a program at a hook.
type Called struct {
	ID       uint32        `json:"id"`
	Name     string        `json:"name"`
	Object   string        `json:"object,omitempty"` // "OBJECT/PROGRAM" of the store; "": another program's
	Priority uint32        `json:"priority,omitempty"`
	Actions  []string      `json:"actions,omitempty"`
	Loaded   time.Duration `json:"loaded_ns"` // since boot
	Note     string        `json:"note,omitempty"`
}

// Hooks returns what the interfaces of this network namespace run. only, if not "", is the one interface to look at.
func (s *Store) Hooks(only string) ([]Hook, error) {
	owners, err := s.owners()
	if err != nil {
		return nil, err
	}
	ifaces, err := interfaces(only)
	if err != nil {
		return nil, err
	}
	hooks := []Hook{}
	for _, i := range ifaces {
		x, err := s.xdpHook(i, owners)
		if err != nil {
			return nil, err
		}
		if x != nil {
			hooks = append(hooks, *x)
		}
		tc, err := s.tcHooks(i, owners)
		if err != nil {
			return nil, err
		}
		hooks = append(hooks, tc...)
	}
	return hooks, nil
}

// owners maps ids of programs to "OBJECT/PROGRAM".
func (s *Store) owners() (map[uint32]string, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	owners := map[uint32]string{}
	for _, name := range names {
		dir := filepath.Join(s.folder(name), "programs")
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			var p Program
			if p.read(filepath.Join(dir, e.Name())) == nil {
				owners[p.ID] = name + "/" + unpinName(e.Name())
			}
		}
	}
	return owners, nil
}

// xdpHook returns the XDP hook of an interface; nil: it has no program.
func (s *Store) xdpHook(i iface, owners map[uint32]string) (*Hook, error) {
	st, err := s.fs.Query(i.index)
	if err != nil || st.Program == 0 && st.Foreign == nil {
		return nil, err
	}
	h := &Hook{Interface: i.name, Index: i.index, Hook: "xdp", Mode: st.Mode.String(), Chain: []Called{}}
	if !st.Dispatcher {
		c := Called{ID: st.Program, Name: st.Name, Object: owners[st.Program]}
		if c.Object == "" {
			c.Note = st.Foreign.Error()
		}
		h.Chain = append(h.Chain, c)
		return h, nil
	}
	h.Dispatcher = st.Program
	for _, c := range st.Components {
		h.Chain = append(h.Chain, Called{ID: c.ID, Name: c.Name, Object: owners[c.ID], Priority: c.Priority, Actions: c.Actions.Names(), Loaded: c.Loaded})
	}
	return h, nil
}
