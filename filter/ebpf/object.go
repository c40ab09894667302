package ebpf

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/millrace/millrace/pmd/xdp"
)

// ErrObject reports that a file is no eBPF object that can be loaded.
var ErrObject = errors.New("not an eBPF object")

// Bounds of an object file. The largest objects of xdp-tools and of Cilium are below 2 MiB.
const (
	maxObject   = 16 << 20 // bytes of the file
	maxSections = 64 << 20 // bytes of all sections as they lie in memory, .bss too
	maxParts    = 1024     // programs, and maps
)

// Kind is where a program may be attached.
type Kind string

// The kinds.
const (
	KindXDP   Kind = "xdp"
	KindTC    Kind = "tc"
	KindOther Kind = "other" // loaded and pinned, and attached by nothing here
)

// about describes a loaded object beyond its pins, as JSON in a map.
type about struct {
	Source   string         `json:"source"`
	SHA256   string         `json:"sha256"`
	Programs []aboutProgram `json:"programs"`
}

// aboutProgram describes a program of an object.
type aboutProgram struct {
	Name     string      `json:"name"`
	Section  string      `json:"section"`
	Kind     Kind        `json:"kind"`
	Priority uint32      `json:"priority,omitempty"`
	Actions  xdp.Actions `json:"actions,omitempty"`
	Frags    bool        `json:"frags,omitempty"`
	Egress   bool        `json:"egress,omitempty"` // SEC("tcx/egress")

	// Alone reports why an XDP program shares no interface with others: the kernel refuses extension programs. "": it may.
	Alone string `json:"alone,omitempty"`
}

// object is a parsed file.
type object struct {
	name  string
	spec  *ebpf.CollectionSpec
	weak  []string // options of the kernel that it may lack
	about about
}

// has reports whether the object has a program of a kind.
func (o *object) has(k Kind) bool {
	return slices.ContainsFunc(o.about.Programs, func(a aboutProgram) bool { return a.Kind == k })
}

// readObject reads and parses a file.
func readObject(path string) (*object, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxObject+1))
	if err != nil {
		return nil, err
	}
	o, err := parseObject(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	o.name = strings.TrimSuffix(filepath.Base(path), ".o")
	o.about.Source, _ = filepath.Abs(path)
	return o, nil
}

// parseObject parses the bytes of an object.
func parseObject(b []byte) (o *object, err error) {
	sum := sha256.Sum256(b)
	weak, err := checkELF(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrObject, err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrObject, err)
	}
	if len(spec.Programs) > maxParts || len(spec.Maps) > maxParts {
		return nil, fmt.Errorf("%w: %d programs and %d maps; %d are allowed", ErrObject, len(spec.Programs), len(spec.Maps), maxParts)
	}
	o = &object{spec: spec, weak: weak, about: about{SHA256: hex.EncodeToString(sum[:])}}
	for _, name := range sortedKeys(spec.Programs) {
		p, err := describeProgram(spec, name)
		if err != nil {
			return nil, fmt.Errorf("%w: program %s: %w", ErrObject, name, err)
		}
		o.about.Programs = append(o.about.Programs, p)
	}
	if len(o.about.Programs) == 0 {
		return nil, fmt.Errorf("%w: it has no programs", ErrObject)
	}
	return o, nil
}

// checkELF bounds what a parser allocates: a .bss of gigabytes is a few bytes of a file. It makes weak options of the kernel
// global in b, and returns their names.
func checkELF(b []byte) (weak []string, err error) {
	if len(b) > maxObject {
		return nil, fmt.Errorf("it is larger than %d MiB", maxObject>>20)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	if f.Machine != elf.EM_BPF && f.Machine != elf.EM_NONE {
		return nil, fmt.Errorf("it is machine code for %v, not for BPF: compile it by clang -target bpf -g -O2", f.Machine)
	}
	var sum uint64
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_COMPRESSED != 0 {
			return nil, fmt.Errorf("section %s is compressed", s.Name)
		}
		if sum += s.Size; s.Size > maxSections || sum > maxSections {
			return nil, fmt.Errorf("its sections have more than %d MiB", maxSections>>20)
		}
	}
	return weakOptions(b, f)
}

// describeProgram reads what the object says about one of its programs.
func describeProgram(spec *ebpf.CollectionSpec, name string) (aboutProgram, error) {
	p := spec.Programs[name]
	a := aboutProgram{Name: name, Section: p.SectionName, Kind: KindOther}
	switch {
	case p.Type == ebpf.XDP && p.AttachType != ebpf.AttachXDPDevMap && p.AttachType != ebpf.AttachXDPCPUMap:
		a.Kind, a.Frags = KindXDP, p.Flags&hasFrags != 0
		run, err := readRunConfig(spec.Types, name)
		a.Priority, a.Actions = run.priority, run.actions
		return a, err
	case p.Type == ebpf.SchedCLS:
		a.Kind, a.Egress = KindTC, p.AttachType == ebpf.AttachTCXEgress
	}
	return a, nil
}

const hasFrags = 1 << 5 // BPF_F_XDP_HAS_FRAGS

// validName matches the names of objects: bpffs refuses dots in names.
var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// pinName returns the file name of a map or program: bpffs allows no dots, which are in .rodata.
func pinName(name string) string { return strings.ReplaceAll(name, ".", "~") }

// unpinName is the reverse of pinName.
func unpinName(file string) string { return strings.ReplaceAll(file, "~", ".") }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
