package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ReplaceOptions configure how an object is replaced.
type ReplaceOptions struct {
	FreshMaps bool // contents of maps are not kept
}

// Replaced is the result of Replace.
type Replaced struct {
	Object Object   `json:"object"`
	Places []string `json:"places"`    // where programs were swapped
	Kept   []string `json:"kept_maps"` // maps that the new programs share with the old
	New    []string `json:"new_maps"`
}

// Replace loads another object file in the place of a loaded object. At each hook where a program of the object is attached
// the program of the same name takes its place: a packet meets the old or the new one. Maps of the same name and shape keep
// their contents, but for those of global variables. On an error the old object stays.
func (s *Store) Replace(path, name string, opts ReplaceOptions) (r Replaced, err error) {
	o, err := readObject(path)
	if err != nil {
		return r, err
	}
	o.name = name
	end, err := s.begin()
	if err != nil {
		return r, err
	}
	defer end()
	old, err := s.Object(name)
	if err != nil {
		return r, err
	}
	places, err := s.where(old)
	if err != nil {
		return r, err
	}
	for _, at := range places {
		if !slices.ContainsFunc(o.about.Programs, func(a aboutProgram) bool { return a.Name == at.program.Name && a.Kind == at.program.Kind }) {
			return r, fmt.Errorf("%w: %s is attached (%s) and %s has no program for %s of this name",
				ErrUsage, at.program.Name, at.what, path, at.program.Kind)
		}
		r.Places = append(r.Places, at.program.Name+" at "+at.what)
	}
	maps, err := s.sharedMaps(o, opts)
	defer func() {
		for _, m := range maps {
			m.Close()
		}
	}()
	if err != nil {
		return r, err
	}
	for name := range o.spec.Maps {
		if maps[name] != nil {
			r.Kept = append(r.Kept, name)
		} else {
			r.New = append(r.New, name)
		}
	}
	slices.Sort(r.Kept)
	slices.Sort(r.New)
	if err := s.stage(o, maps); err != nil {
		return r, err
	}
	if err := s.finishReplace(name); err != nil {
		return r, errors.Join(err, removeTree(s.staged(name)))
	}
	r.Object, err = s.object(name)
	return r, err
}

// sharedMaps opens the maps of the old object that the new one can go on with.
func (s *Store) sharedMaps(o *object, opts ReplaceOptions) (map[string]*ebpf.Map, error) {
	maps := map[string]*ebpf.Map{}
	for name, spec := range o.spec.Maps {
		if opts.FreshMaps || strings.HasPrefix(name, ".") { // .rodata is frozen, .data and .bss begin with the object's values
			continue
		}
		m, err := ebpf.LoadPinnedMap(filepath.Join(s.folder(o.name), "maps", pinName(name)), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return maps, err
		}
		if spec.Compatible(m) != nil {
			m.Close()
			continue
		}
		maps[name] = m
	}
	return maps, nil
}

// finishReplace swaps the programs of the staged object in wherever those of the object are attached and makes it the
// object. Where a swap fails those before it are undone.
func (s *Store) finishReplace(name string) error {
	old, err := s.object(name)
	if err != nil {
		return err
	}
	next, err := readFolder(s.staged(name), name)
	if err != nil {
		return err
	}
	if err := s.swapAll(old, next, s.staged(name)); err != nil {
		return errors.Join(err, s.swapAll(next, old, s.folder(name)))
	}
	step("swapped")
	if err := unix.Renameat2(unix.AT_FDCWD, s.staged(name), unix.AT_FDCWD, s.folder(name), unix.RENAME_EXCHANGE); err != nil {
		return errors.Join(fmt.Errorf("exchange the pins of %s (Linux 5.16 or later): %w", name, err), s.swapAll(next, old, s.folder(name)))
	}
	step("exchanged")
	return removeTree(s.staged(name))
}

// swapAll swaps, wherever a program of from is attached, the one of the same name of to in, whose pins are in folder.
func (s *Store) swapAll(from, to Object, folder string) error {
	places, err := s.where(from)
	if err != nil {
		return err
	}
	for _, at := range places {
		i := slices.IndexFunc(to.Programs, func(p Program) bool { return p.Name == at.program.Name })
		if i < 0 {
			return fmt.Errorf("%w: program %s", ErrNotFound, at.program.Name)
		}
		next, err := ebpf.LoadPinnedProgram(filepath.Join(folder, "programs", pinName(at.program.Name)), nil)
		if err != nil {
			return err
		}
		err = s.swap(at, to.Programs[i], next)
		next.Close()
		if err != nil {
			return fmt.Errorf("replace %s at %s: %w", at.program.Name, at.what, permission(err))
		}
		step("swapped one")
	}
	return nil
}

// Unload removes a loaded object. Its programs must be attached nowhere, or detach must be true. It returns where they were.
func (s *Store) Unload(name string, detach bool) (places []string, err error) {
	end, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	o, err := s.Object(name)
	if err != nil {
		return nil, err
	}
	list, err := s.where(o)
	if err != nil {
		return nil, err
	}
	for _, at := range list {
		places = append(places, at.program.Name+" at "+at.what)
	}
	if len(list) > 0 && !detach {
		return places, fmt.Errorf("object %s: %w: %s", name, ErrAttached, some(places))
	}
	for _, at := range list {
		if err := s.remove(at); err != nil {
			return places, fmt.Errorf("detach %s from %s: %w", at.program.Name, at.what, permission(err))
		}
	}
	if err := os.Rename(s.folder(name), s.staged(name)); err != nil {
		return places, err
	}
	step("unloading")
	return places, errors.Join(removeTree(s.staged(name)), removeTree(s.links(name)))
}

// Recover finishes or undoes what killed processes have left: a replacement of which a part was done is done to the end, and
// anything else that is staged is removed. Every change begins with it.
func (s *Store) Recover() error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return errors.Join(s.recover(), s.fs.Sweep())
}

// recover is Recover under the lock.
func (s *Store) recover() error {
	entries, err := os.ReadDir(filepath.Join(s.base(), "staged"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.recoverOne(e.Name()); err != nil {
			return fmt.Errorf("finish an interrupted change of object %s: %w", e.Name(), err)
		}
	}
	return nil
}

func (s *Store) recoverOne(name string) error {
	next, err := readFolder(s.staged(name), name)
	if err == nil && s.exists(name) == nil {
		places, err := s.where(next)
		if err != nil {
			return err
		}
		if len(places) > 0 {
			return s.finishReplace(name)
		}
	}
	return removeTree(s.staged(name))
}
