package ebpf

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// typedMap is an open map with the types of its keys and values.
type typedMap struct {
	*ebpf.Map
	name       string
	key, value btf.Type // nil: bytes
	valueSize  int      // of one CPU, in memory: rounded up to 8 for a map per CPU
	cpus       int      // 0: the map is not per CPU
}

// openMap opens "OBJECT/MAP", "id:N" or the path of a pin.
func (s *Store) openMap(ref string) (*typedMap, error) {
	m, err := s.findMap(ref)
	if err != nil {
		return nil, err
	}
	t := &typedMap{Map: m, name: ref, valueSize: int(m.ValueSize())}
	switch m.Type() {
	case ebpf.PerCPUHash, ebpf.PerCPUArray, ebpf.LRUCPUHash, ebpf.PerCPUCGroupStorage:
		t.valueSize = (t.valueSize + 7) &^ 7
		if t.cpus, err = ebpf.PossibleCPU(); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	if err := t.readTypes(); err != nil {
		return nil, errors.Join(fmt.Errorf("types of map %s: %w", ref, err), m.Close())
	}
	return t, nil
}

func (s *Store) findMap(ref string) (*ebpf.Map, error) {
	if id, ok := strings.CutPrefix(ref, "id:"); ok {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%w: map id %q is no number", ErrUsage, id)
		}
		m, err := ebpf.NewMapFromID(ebpf.MapID(n))
		if err != nil {
			return nil, fmt.Errorf("%w: map %s: %w", ErrNotFound, id, permission(err))
		}
		return m, nil
	}
	if filepath.IsAbs(ref) {
		m, err := ebpf.LoadPinnedMap(ref, nil)
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", ref, permission(err))
		}
		return m, nil
	}
	object, name, ok := strings.Cut(ref, "/")
	if !ok {
		return nil, fmt.Errorf("%w: map %q: say OBJECT/MAP, id:N or the path of a pin", ErrUsage, ref)
	}
	o, err := s.Object(object)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range o.Maps {
		if m.Name == name {
			return ebpf.LoadPinnedMap(filepath.Join(s.folder(object), "maps", pinName(name)), nil)
		}
		names = append(names, m.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: map %s: the object has none", ErrNotFound, ref)
	}
	return nil, fmt.Errorf("%w: map %s; there are %s", ErrNotFound, ref, some(names))
}

// mapInfo is the head of struct bpf_map_info of linux/bpf.h, of which the library keeps the ids of types for itself.
type mapInfo struct {
	_                     [40]byte
	_, _                  uint32 // ifindex, btf_vmlinux_value_type_id
	_, _                  uint64 // netns_dev, netns_ino
	btf, keyType, valType uint32
	_                     uint32
}

const objGetInfoByFD = 15 // BPF_OBJ_GET_INFO_BY_FD

// readTypes finds the BTF types of a map; without BTF they stay nil.
func (t *typedMap) readTypes() error {
	var info mapInfo
	attr := struct {
		fd, size uint32
		info     uint64
	}{uint32(t.FD()), uint32(unsafe.Sizeof(info)), uint64(uintptr(unsafe.Pointer(&info)))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, objGetInfoByFD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(&info)
	if errno != 0 {
		return errno
	}
	switch t.Type() {
	case ebpf.Array, ebpf.PerCPUArray:
		t.key = &btf.Int{Name: "__u32", Size: 4} // the index, also of a map of global variables
	}
	if info.btf == 0 {
		return nil
	}
	h, err := btf.NewHandleFromID(btf.ID(info.btf))
	if err != nil {
		return err
	}
	defer h.Close()
	spec, err := h.Spec(nil)
	if err != nil {
		return err
	}
	if info.keyType != 0 {
		if t.key, err = sized(spec, info.keyType, int(t.KeySize())); err != nil {
			return err
		}
	}
	if info.valType != 0 {
		t.value, err = sized(spec, info.valType, int(t.ValueSize()))
	}
	return err
}

// sized returns a type, or nil where it does not have the size that the map says.
func sized(spec *btf.Spec, id uint32, size int) (btf.Type, error) {
	typ, err := spec.TypeByID(btf.TypeID(id))
	if err != nil {
		return nil, err
	}
	if n, err := btf.Sizeof(typ); err != nil || n != size {
		return nil, nil
	}
	return typ, nil
}
