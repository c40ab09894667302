package ebpf

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/millrace/millrace/pmd/xdp"
)

// The sentinels of the package.
var (
	ErrNotFound   = errors.New("not found")
	ErrExists     = errors.New("it exists already")
	ErrAttached   = errors.New("it is attached")
	ErrUsage      = errors.New("not possible for this program")
	ErrPermission = errors.New("loading eBPF needs root, or CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN and, to mount bpffs, CAP_SYS_ADMIN")
	ErrForbidden  = errors.New("this process has the capabilities, so a security policy (an LSM, lockdown, seccomp) or the kernel's build forbids it")
)

// Store is the loaded objects of a BPF file system. Its methods act on the interfaces of the calling thread's network
// namespace. Processes may use one file system at once: changes wait for each other.
type Store struct {
	fs *xdp.FS
}

// Open opens the store of a BPF file system, which it mounts where there is none; "" is xdp.DefaultFS.
func Open(bpffs string) (*Store, error) {
	if bpffs == "" {
		bpffs = xdp.DefaultFS()
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory for BPF maps: %w", permission(err))
	}
	fs, err := xdp.OpenFS(bpffs)
	if err != nil {
		return nil, permission(err)
	}
	return &Store{fs: fs}, nil
}

// FS returns the BPF file system.
func (s *Store) FS() *xdp.FS { return s.fs }

func (s *Store) base() string              { return filepath.Join(s.fs.Root(), "millrace") }
func (s *Store) folder(name string) string { return filepath.Join(s.base(), "objects", name) }
func (s *Store) links(name string) string  { return filepath.Join(s.base(), "links", name) }
func (s *Store) staged(name string) string { return filepath.Join(s.base(), "staged", name) }

// lock makes this process the only one that changes objects. The lock is that of the XDP programs' protocol on another
// folder; Update takes the protocol's own inside of it.
func (s *Store) lock() (unlock func(), err error) {
	for _, dir := range []string{"objects", "staged", "links"} {
		if err := os.MkdirAll(filepath.Join(s.base(), dir), 0o700); err != nil {
			return nil, permission(err)
		}
	}
	return xdp.LockFolder(filepath.Join(s.base(), "objects"))
}

// begin locks the store and finishes what killed processes have left: every change begins with it.
func (s *Store) begin() (end func(), err error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	if err := s.recover(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// The map that holds about.
const aboutMap = "about"

// writeAbout pins what is known of an object. It is the last pin: a folder without it is not complete.
func writeAbout(dir string, a about) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "about", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(b)), MaxEntries: 1})
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Put(uint32(0), b); err != nil {
		return err
	}
	return m.Pin(filepath.Join(dir, aboutMap))
}

// readAbout is the reverse of writeAbout.
func readAbout(dir string) (a about, err error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, aboutMap), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return a, err
	}
	defer m.Close()
	var b []byte
	if err := m.Lookup(uint32(0), &b); err != nil {
		return a, err
	}
	return a, json.Unmarshal(b, &a)
}

// names returns the names of the loaded objects, sorted.
func (s *Store) names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.base(), "objects"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, permission(err)
}

// exists returns ErrNotFound where no object has the name.
func (s *Store) exists(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%w: object %q: names are letters, digits, - and _", ErrNotFound, name)
	}
	if _, err := os.Stat(s.folder(name)); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			return permission(err)
		}
		names, _ := s.names()
		if len(names) == 0 {
			return fmt.Errorf("%w: object %q: none is loaded", ErrNotFound, name)
		}
		return fmt.Errorf("%w: object %q: loaded are %s", ErrNotFound, name, some(names))
	}
	return nil
}

// some returns the first names of a list.
func some(names []string) string {
	const shown = 8
	text := ""
	for i, n := range names[:min(shown, len(names))] {
		if i > 0 {
			text += ", "
		}
		text += n
	}
	if len(names) > shown {
		text += fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return text
}
