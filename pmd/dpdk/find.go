package dpdk

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// shimPrefix begins the name of a shim; its ABI number and ".so" follow.
const shimPrefix = "libmillrace-dpdk-"

// Find looks for DPDK and shims in a file system. named is the value of ShimVariable, a folder or a file, which is then
// the only one; program is the path of the running program, beside which shims may be.
func Find(root fs.FS, named, program string) Found {
	f := Found{Installed: installed(root)}
	switch {
	case strings.HasSuffix(named, ".so"):
		if abi, ok := abiOf(filepath.Base(named)); ok && exists(root, named) {
			f.Shims = []ShimFile{{named, abi}}
		}
		f.Searched = []string{named}
		return f
	case named != "":
		f.Searched = []string{named}
	default:
		if program != "" {
			f.Searched = append(f.Searched, filepath.Dir(program))
		}
		for _, dir := range shimFolders {
			f.Searched = append(f.Searched, "/"+dir)
		}
	}
	for _, dir := range f.Searched {
		f.Shims = append(f.Shims, shims(root, dir)...)
	}
	// A shim without its DPDK is tried last: the linker's error then names what is missing.
	slices.SortStableFunc(f.Shims, func(a, b ShimFile) int {
		if x, y := slices.Contains(f.Installed, a.ABI), slices.Contains(f.Installed, b.ABI); x != y {
			if x {
				return -1
			}
			return 1
		}
		return b.ABI - a.ABI
	})
	return f
}

// relative returns a path as fs.FS has it.
func relative(path string) string {
	return strings.TrimPrefix(filepath.ToSlash(filepath.Clean(path)), "/")
}

func exists(root fs.FS, path string) bool {
	_, err := fs.Stat(root, relative(path))
	return err == nil
}

// shims lists the shims in a folder.
func shims(root fs.FS, dir string) (list []ShimFile) {
	entries, err := fs.ReadDir(root, relative(dir))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if abi, ok := abiOf(e.Name()); ok {
			list = append(list, ShimFile{filepath.Join(dir, e.Name()), abi})
		}
	}
	return list
}

// abiOf returns the ABI number in the name of a shim.
func abiOf(name string) (int, bool) {
	s, ok := strings.CutPrefix(name, shimPrefix)
	if s, ok = strings.CutSuffix(s, ".so"); !ok {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil && n > 0
}

// installed returns the ABI numbers of DPDK's libraries, newest first.
func installed(root fs.FS) (abis []int) {
	for _, dir := range libraryFolders {
		entries, err := fs.ReadDir(root, dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			s, ok := strings.CutPrefix(e.Name(), "librte_eal.so.")
			major, _, _ := strings.Cut(s, ".")
			if n, err := strconv.Atoi(major); ok && err == nil && !slices.Contains(abis, n) {
				abis = append(abis, n)
			}
		}
	}
	slices.SortFunc(abis, func(a, b int) int { return b - a })
	return abis
}
