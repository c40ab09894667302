package hostkern

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	_ "github.com/millrace/millrace/gpukern/cuda/loader" // of the driver, for the tests that have one
)

// Driver is a CUDA driver without a GPU (gpukern/cuda/testdata/fakecuda): it runs the kernels on the CPU.
// A test has it to itself. A program that is started with LD_LIBRARY_PATH set to the library's folder runs
// on it, too.
type Driver struct {
	Path string // of the library: the driver's, and the management library too

	handle uintptr
}

// driverFile compiles the driver, once in a process.
var driverFile = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "millrace-driver-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	kernels, err := sources(nil)
	if err != nil {
		return nil, err
	}
	driver, err := filepath.Glob(filepath.Join(Sources(), "testdata/fakecuda/*.cc"))
	if err != nil {
		return nil, err
	}
	lib := filepath.Join(dir, "libcuda.so.1")
	if err := compile(lib, slices.Concat(kernels, []string{filepath.Join(Sources(), "testdata/probe.cu"), filepath.Join(Sources(), "pubkey/testdata/arithmetic.cu"), filepath.Join(Sources(), "host.cc")}, driver)); err != nil {
		return nil, err
	}
	return os.ReadFile(lib)
})

// OpenDriver loads a new driver. When the test has ended, it fails if something was left over in the
// driver or was done that must not be. A machine without the compiler skips the test.
func OpenDriver(t testing.TB) *Driver {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("%v: run `make deps`", err)
	}
	lib, err := driverFile()
	if err != nil {
		t.Fatal(err)
	}
	// Each copy is a library of its own to the loader, with its own state.
	d := &Driver{Path: filepath.Join(t.TempDir(), "libcuda.so.1")}
	if err := os.WriteFile(d.Path, lib, 0o700); err != nil {
		t.Fatal(err)
	}
	if d.handle, err = purego.Dlopen(d.Path, purego.RTLD_NOW); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if f := d.Faults(); f != "" {
			t.Errorf("driver: %s", f)
		}
	})
	return d
}

// call calls a function of the driver's controls.
//
//go:uintptrescapes
func (d *Driver) call(name string, args ...uintptr) uintptr {
	fn, err := purego.Dlsym(d.handle, name)
	if err != nil {
		panic(err) // a fault of the fake driver
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// cstring is s with a zero at its end.
func cstring(s string) []byte { return append([]byte(s), 0) }

// Set changes the machine, before a device is opened: "devices" (1), "version" (12040), "capability"
// (80), "sms" (4), "memory" (bytes, 1 GiB), "stall" (milliseconds that a call waits for kernels to end
// before that counts as a fault, 3000).
func (d *Driver) Set(what string, v int) {
	w := cstring(what)
	d.call("fake_set", uintptr(unsafe.Pointer(&w[0])), uintptr(v))
}

// Fail has the n-th call of a function from now on return code: "cuMemAlloc_v2"; of any function where
// name is empty. A code of 700 to 719 loses the device.
func (d *Driver) Fail(name string, n, code int) {
	w := cstring(name)
	d.call("fake_fail", uintptr(unsafe.Pointer(&w[0])), uintptr(n), uintptr(code))
}

// Lose loses the device: kernels stop where they are, and every call returns code until the context has
// been given up.
func (d *Driver) Lose(code int) { d.call("fake_lose", uintptr(code)) }

// Calls returns how often a function was called; of "priority -5", how many streams of that priority were made.
func (d *Driver) Calls(name string) int {
	w := cstring(name)
	return int(d.call("fake_calls", uintptr(unsafe.Pointer(&w[0]))))
}

// Faults returns what was done that must not be and what is left over, "" if nothing, and clears the
// former.
func (d *Driver) Faults() string {
	var b [4096]byte
	d.call("fake_faults", uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b[:])
}
