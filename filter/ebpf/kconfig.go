package ebpf

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// A program reads the kernel's configuration by extern variables of the virtual section .kconfig (libbpf's __kconfig). A weak
// one (__weak) is zero where the kernel does not have the option; one that is not weak must be there. The library refuses
// weak ones: their symbols are made global before it reads the object, and what the kernel lacks of them leaves the section,
// so that their bytes of the map stay zero.

// weakOptions makes the weak symbols of kernel options global, in the bytes of an object that f has parsed, and returns their
// names. A name that does not begin as those of options do is a function or variable of the kernel, whose weakness the library
// understands.
func weakOptions(b []byte, f *elf.File) (names []string, err error) {
	symbols, err := f.Symbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if f.Class != elf.ELFCLASS64 {
		return nil, nil // the library refuses it
	}
	table := f.SectionByType(elf.SHT_SYMTAB)
	for i, s := range symbols {
		if elf.ST_BIND(s.Info) != elf.STB_WEAK || !strings.HasPrefix(s.Name, "CONFIG_") {
			continue
		}
		// Symbols leaves out the first entry, which is none. st_info is the byte behind the four of st_name.
		at := table.Offset + uint64(i+1)*elf.Sym64Size + 4
		if at >= uint64(len(b)) {
			return nil, fmt.Errorf("symbol %s lies beyond the file", s.Name)
		}
		b[at] = elf.ST_INFO(elf.STB_GLOBAL, elf.ST_TYPE(s.Info))
		names = append(names, s.Name)
	}
	return names, nil
}

// dropAbsent removes the weak options that the running kernel lacks from the section of a parsed object. The programs' loads
// of the section share its type with the spec, but not with a copy of the spec.
func dropAbsent(spec *ebpf.CollectionSpec, weak []string) error {
	if len(weak) == 0 || spec.Types == nil {
		return nil
	}
	var section *btf.Datasec
	if err := spec.Types.TypeByName(".kconfig", &section); errors.Is(err, btf.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	config, err := openKernelConfig()
	if err != nil {
		return err
	}
	defer config.Close()
	have, err := setOptions(config)
	if err != nil {
		return fmt.Errorf("%s: %w", config.Name(), err)
	}
	section.Vars = slices.DeleteFunc(section.Vars, func(s btf.VarSecinfo) bool {
		v, ok := s.Type.(*btf.Var)
		return ok && slices.Contains(weak, v.Name) && !have[v.Name]
	})
	return nil
}

// openKernelConfig opens the configuration of the running kernel, in the order in which the library looks for it.
func openKernelConfig() (*os.File, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return nil, err
	}
	boot := "/boot/config-" + unix.ByteSliceToString(name.Release[:])
	f, err := os.Open(boot)
	if err == nil {
		return f, nil
	}
	if f, err = os.Open("/proc/config.gz"); err == nil {
		return f, nil
	}
	return nil, fmt.Errorf("the object reads options of the kernel, whose configuration is neither in %s nor in /proc/config.gz", boot)
}

// maxConfig bounds the configuration as text; that of a distribution is 300 KB.
const maxConfig = 16 << 20

// setOptions returns the options that a configuration sets: "CONFIG_NAME=value" lines, compressed by gzip or not.
func setOptions(f io.Reader) (map[string]bool, error) {
	r := bufio.NewReader(f)
	var text io.Reader = r
	if head, _ := r.Peek(2); len(head) == 2 && binary.BigEndian.Uint16(head) == 0x1f8b { // RFC 1952, 2.3.1
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		text = z
	}
	have := map[string]bool{}
	lines := bufio.NewScanner(io.LimitReader(text, maxConfig))
	for lines.Scan() {
		if name, _, ok := bytes.Cut(lines.Bytes(), []byte{'='}); ok && bytes.HasPrefix(name, []byte("CONFIG_")) {
			have[string(name)] = true
		}
	}
	return have, lines.Err()
}
