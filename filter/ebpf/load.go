package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/millrace/millrace/pmd/xdp"
)

// Load loads the programs and maps of an object file into the kernel and pins them under a name; "" is the name of the file
// without .o. Nothing is attached. A rejected program is a *VerifierError.
func (s *Store) Load(path, name string) (Object, error) {
	o, err := readObject(path)
	if err != nil {
		return Object{}, err
	}
	if name != "" {
		o.name = name
	}
	if !validName.MatchString(o.name) {
		return Object{}, fmt.Errorf("%w: the name %q: letters, digits, - and _ are allowed; choose one", ErrUsage, o.name)
	}
	return s.loadObject(o)
}

// loadObject loads a parsed object under its name.
func (s *Store) loadObject(o *object) (Object, error) {
	end, err := s.begin()
	if err != nil {
		return Object{}, err
	}
	defer end()
	if s.exists(o.name) == nil {
		return Object{}, fmt.Errorf("object %q: %w; replace it, unload it, or choose another name", o.name, ErrExists)
	}
	if err := s.stage(o, nil); err != nil {
		return Object{}, err
	}
	if err := os.Rename(s.staged(o.name), s.folder(o.name)); err != nil {
		return Object{}, errors.Join(err, removeTree(s.staged(o.name)))
	}
	return s.object(o.name)
}

// stage loads an object and pins it in its staging folder. maps are used in the place of new ones of the same names.
func (s *Store) stage(o *object, maps map[string]*ebpf.Map) (err error) {
	coll, err := load(o, maps)
	if err != nil {
		return permission(err)
	}
	defer coll.Close()
	dir := s.staged(o.name)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("pin object %s: %w", o.name, err), removeTree(dir))
		}
	}()
	for _, sub := range []string{"programs", "maps"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	for name, p := range coll.Programs {
		if err := p.Pin(filepath.Join(dir, "programs", pinName(name))); err != nil {
			return err
		}
	}
	for name, m := range coll.Maps {
		c, err := m.Clone() // a map of the old object has a pin, which Pin would move
		if err != nil {
			return err
		}
		err = c.Pin(filepath.Join(dir, "maps", pinName(name)))
		c.Close()
		if err != nil {
			return err
		}
	}
	step("staged")
	return writeAbout(dir, o.about)
}

// load creates the maps and loads the programs. XDP programs become extensions of the dispatcher's functions, the form in
// which several share an interface. Where the kernel refuses all extensions they are loaded as they are, which about notes:
// they can then be attached alone.
func load(o *object, maps map[string]*ebpf.Map) (*ebpf.Collection, error) {
	refused, err := xdp.Extensions()
	if err != nil {
		return nil, err
	}
	spec := o.spec.Copy()
	var template *ebpf.Program
	if o.has(KindXDP) && refused == nil {
		if template, err = newTemplate(); err != nil {
			return nil, err
		}
	}
	if template != nil {
		defer template.Close()
	}
	for i, a := range o.about.Programs {
		if a.Kind != KindXDP {
			continue
		}
		if refused != nil {
			o.about.Programs[i].Alone = refused.Error()
			continue
		}
		extend(spec.Programs[a.Name], template)
	}
	if err := dropAbsent(o.spec, o.weak); err != nil {
		return nil, err
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone // the object's folder has the pins
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil {
		return nil, explainCollection(o, err)
	}
	return coll, nil
}

// newTemplate loads a dispatcher for the verifier to check XDP programs against.
func newTemplate() (*ebpf.Program, error) {
	fd, err := xdp.Template()
	if err != nil {
		return nil, err
	}
	return ebpf.NewProgramFromFD(fd)
}

// removeTree removes a folder of pins with what is below it. os.RemoveAll is not used: it would follow nothing, but also
// remove what is no pin.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			err = errors.Join(err, removeTree(path))
		} else {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return errors.Join(err, os.Remove(dir))
}

// step is called between the steps of a change. Tests end the process there.
var step = func(string) {}
