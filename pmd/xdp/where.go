package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// Place is an interface that a program is attached to.
type Place struct {
	Ifindex int
	Program uint32 // the component, or the program that is alone
	Alone   bool
	// Elsewhere is true for an interface of another network namespace.
	Elsewhere bool
}

// Where returns the interfaces that XDP programs with one of the ids are attached to, in every network namespace that has
// used this file system.
func (f *FS) Where(ids map[uint32]bool) ([]Place, error) {
	cookie, err := Namespace()
	if err != nil {
		return nil, err
	}
	records, err := os.ReadDir(f.records())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var places []Place
	known := map[string]bool{}
	for _, e := range records {
		var c uint64
		p := Place{}
		if n, _ := fmt.Sscanf(e.Name(), "%x-%d-%d", &c, &p.Ifindex, &p.Program); n != 3 {
			continue
		}
		known[f.folder(p.Ifindex, p.Program)] = c != cookie
		if ids[p.Program] {
			p.Alone, p.Elsewhere = true, c != cookie
			places = append(places, p)
		}
	}
	folders, err := filepath.Glob(filepath.Join(f.dispatchers(), "dispatch-*-*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range folders {
		var p Place
		var id uint32
		if n, _ := fmt.Sscanf(filepath.Base(dir), "dispatch-%d-%d", &p.Ifindex, &id); n != 2 {
			continue
		}
		p.Elsewhere = known[dir]
		if now, _, err := attached(p.Ifindex); !p.Elsewhere && (err != nil || now != id) {
			p.Elsewhere = true // another loader's, in another namespace
		}
		for _, c := range pinnedPrograms(dir) {
			if ids[c] {
				p.Program = c
				places = append(places, p)
			}
		}
	}
	return here(places)
}

// here leaves out programs that were alone on an interface of this namespace and are there no more.
func here(all []Place) (list []Place, err error) {
	for _, p := range all {
		if p.Alone && !p.Elsewhere {
			if now, _, err := attached(p.Ifindex); err != nil || now != p.Program {
				continue
			}
		}
		list = append(list, p)
	}
	return list, nil
}

// pinnedPrograms returns the ids of the components that are pinned in a folder.
func pinnedPrograms(dir string) (ids []uint32) {
	for i := range MaxComponents {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(dir, fmt.Sprintf("prog%d-prog", i)), nil)
		if err != nil {
			continue
		}
		if id, err := programID(p); err == nil {
			ids = append(ids, id)
		}
		p.Close()
	}
	return ids
}
