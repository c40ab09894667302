package cuda

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/millrace/millrace/gpukern/cuda/dl"
)

// ModuleInfo describes a module that a device has loaded.
type ModuleInfo struct {
	Name string        // "headers"
	Form string        // "sm_80", or "sm_90" where there is such a form and the device and driver take it
	Why  string        // why a later form was not taken; empty where it was or where there is none
	Took time.Duration // to translate and load it; the driver keeps translations on disk
}

// form is one compiled form of a module.
type form struct {
	name   string // of the module
	target string // "sm_80", "sm_90"
	ptx    []byte // ends in a zero
	needs  int    // the CUDA version that knows its PTX version, 11080 for instance
}

// formOf describes the PTX file NAME.ptx or NAME.sm_90.ptx.
func formOf(file string, text []byte) (form, error) {
	name := strings.TrimSuffix(path.Base(file), ".ptx")
	f := form{name: name, target: "sm_80", ptx: append(slices.Clip(text), 0)}
	if base, target, ok := strings.Cut(name, "."); ok {
		f.name, f.target = base, target
	}
	var major, minor int
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, ".version %d.%d", &major, &minor); err == nil {
			f.needs = cudaFor(major, minor)
			return f, nil
		}
	}
	return f, fmt.Errorf("cuda: %s names no PTX version", file)
}

// cudaFor returns the CUDA version that a PTX version came with (PTX ISA, "Release History"). The minor
// numbers ran in step until 8.5, which served CUDA 12.5 and 12.6.
func cudaFor(major, minor int) int {
	if major == 8 && minor > 5 {
		minor++
	}
	return (major+4)*1000 + minor*10
}

// forms returns every form of images by module name, the later targets first.
func forms(images fs.FS) (map[string][]form, error) {
	files, err := fs.Glob(images, "*.ptx")
	if err != nil {
		return nil, err
	}
	all := map[string][]form{}
	for _, file := range files {
		text, err := fs.ReadFile(images, file)
		if err != nil {
			return nil, err
		}
		f, err := formOf(file, text)
		if err != nil {
			return nil, err
		}
		all[f.name] = append(all[f.name], f)
	}
	for _, one := range all {
		latestFirst(one)
	}
	return all, nil
}

func latestFirst(all []form) {
	slices.SortFunc(all, func(a, b form) int { return strings.Compare(b.target, a.target) })
}

// choose takes the first form that the device and the driver can run, and says why it passed others by.
func choose(fs []form, capability, version int) (f form, why string, err error) {
	var reasons []string
	for _, f := range fs {
		var needs int
		fmt.Sscanf(f.target, "sm_%d", &needs)
		switch {
		case capability < needs:
			reasons = append(reasons, fmt.Sprintf("%s needs compute capability %.1f, the device has %.1f", f.target,
				float64(needs)/10, float64(capability)/10))
		case version < f.needs:
			reasons = append(reasons, fmt.Sprintf("%s needs a driver for CUDA %s, this one is for %s", f.target,
				versionText(f.needs), versionText(version)))
		default:
			return f, strings.Join(reasons, "; "), nil
		}
	}
	return form{}, "", &Error{
		Op: "load module " + fs[0].name, Text: strings.Join(reasons, "; "), kind: ErrTooOld,
		Remedy: remedies[codeUnsupportedPTX],
	}
}

// loadModules loads every module and finds every kernel, so that nothing is left to load while a
// persistent kernel runs. For the owner.
func (d *Device) loadModules() error {
	loaded, err := d.loadImages(dl.Kernels("cuda"))
	d.info.Modules = loaded
	return err
}

// loadImages loads every module of images. For the owner.
func (d *Device) loadImages(images fs.FS) (loaded []ModuleInfo, err error) {
	all, err := forms(images)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f, why, err := choose(all[name], d.info.Capability, d.lib.version)
		if err != nil {
			return loaded, err
		}
		start := time.Now()
		if err := d.loadForm(f); err != nil {
			return loaded, err
		}
		loaded = append(loaded, ModuleInfo{name, f.target, why, time.Since(start)})
	}
	return loaded, nil
}

// Load loads the modules of images, besides those of this package: kernels that few programs need
// and whose translation takes a driver seconds. No persistent kernel may run, as the driver may wait for it.
func (d *Device) Load(images fs.FS) (loaded []ModuleInfo, err error) {
	err = d.do(func() (err error) {
		loaded, err = d.loadImages(images)
		return err
	})
	return loaded, err
}

// loadForm has the driver translate a form and finds its kernels.
func (d *Device) loadForm(f form) error {
	m, err := d.lib.moduleLoad(f.name, f.ptx)
	if err != nil {
		return err
	}
	d.track(&resource{free: func() error { return d.lib.moduleUnload(m) }})
	for _, e := range entries(f.ptx) {
		k, err := d.newKernel(m, e)
		if err != nil {
			return fmt.Errorf("module %s: %w", f.name, err)
		}
		k.Form = f.name + "." + f.target
		d.kernels.Store(k.Name, k)
	}
	return nil
}

// newKernel finds a kernel and reads what it needs, which makes the driver load it.
func (d *Device) newKernel(m module, e entry) (*Kernel, error) {
	fn, err := d.lib.moduleFunction(m, append([]byte(e.name), 0))
	if err != nil {
		return nil, err
	}
	k := &Kernel{Name: e.name, d: d, fn: fn, bytes: e.bytes, most: sharedByDefault}
	for _, a := range []struct {
		a  int
		to *int
	}{{funcThreads, &k.Threads}, {funcRegisters, &k.Registers}, {funcLocal, &k.Local}, {funcShared, &k.Shared}} {
		if *a.to, err = d.lib.funcAttribute(fn, a.a); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// Options of cuModuleLoadDataEx (CUjit_option).
const (
	jitErrorLog     = 5
	jitErrorLogSize = 6
)

// moduleLoad translates PTX that ends in a zero. Where that fails the error has the translator's log.
func (l *library) moduleLoad(name string, ptx []byte) (m module, err error) {
	mem, err := mapMemory(16 << 10) // options, values and the log, outside of the Go heap
	if err != nil {
		return 0, err
	}
	defer unmap(mem)
	log := mem[4096:]
	*(*[2]uint32)(unsafe.Pointer(&mem[0])) = [2]uint32{jitErrorLog, jitErrorLogSize}
	*(*[2]uintptr)(unsafe.Pointer(&mem[64])) = [2]uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log) - 1)}
	err = l.call(cuModuleLoadDataEx, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&ptx[0])), 2,
		uintptr(unsafe.Pointer(&mem[0])), uintptr(unsafe.Pointer(&mem[64])))
	if e, ok := err.(*Error); ok {
		e.Op, e.Log = "load module "+name, strings.TrimSpace(text(log))
	}
	return m, err
}

// entry is a kernel as its PTX declares it.
type entry struct {
	name  string
	bytes int // of the one parameter
}

// declaration is the head of a kernel:
//
//	.visible .entry gk_read(
//		.param .align 8 .b8 gk_read_param_0[32]
//	)
var declaration = regexp.MustCompile(`(?m)^\s*\.visible \.entry (\w+)\(\s*\.param \.align \d+ \.b8 \w+\[(\d+)\]\s*\)`)

// entries lists the kernels of a module.
func entries(ptx []byte) (all []entry) {
	for _, m := range declaration.FindAllSubmatch(bytes.TrimRight(ptx, "\x00"), -1) {
		n, _ := strconv.Atoi(string(m[2]))
		all = append(all, entry{string(m[1]), n})
	}
	return all
}
