// Package hostkern runs the kernels of gpukern/cuda on the CPU, so that tests check their logic where
// no GPU is. It compiles the sources with clang++-19 as they are, with gk.h's form for the CPU, and
// calls them through the dynamic loader: a test needs neither cgo nor a driver.
//
// It is for tests alone and shows nothing about speed.
package hostkern

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/millrace/millrace/internal/testkit/checkout"
)

// Library is the kernels, compiled for this machine.
type Library struct {
	handle uintptr
	run    uintptr
	atOnce uintptr
}

// built are the libraries of this process: by the names of their files, what build returned.
var built sync.Map

// Open compiles and loads kernels, once in a process: those in files, which are relative to Sources, or
// without any all that a device is given. A machine without the compiler skips the test.
func Open(t testing.TB, files ...string) *Library {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("%v: run `make deps`", err)
	}
	once, _ := built.LoadOrStore(strings.Join(files, " "), sync.OnceValues(func() (*Library, error) { return build(files) }))
	l, err := once.(func() (*Library, error))()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Sources returns the folder of the kernels.
func Sources() string {
	root, err := checkout.Root()
	if err != nil {
		panic(err) // a test runs elsewhere
	}
	return filepath.Join(root, "gpukern", "cuda")
}

func build(files []string) (*Library, error) {
	dir, err := os.MkdirTemp("", "millrace-kernels-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // the loaded library stays mapped
	kernels, err := sources(files)
	if err != nil {
		return nil, err
	}
	lib := filepath.Join(dir, "kernels.so")
	if err := compile(lib, append(kernels, filepath.Join(Sources(), "host.cc"))); err != nil {
		return nil, err
	}
	l := new(Library)
	if l.handle, err = purego.Dlopen(lib, purego.RTLD_NOW); err != nil {
		return nil, err
	}
	if l.run, err = purego.Dlsym(l.handle, "gk_run"); err != nil {
		return nil, err
	}
	l.atOnce, err = purego.Dlsym(l.handle, "gk_run_at_once")
	return l, err
}

// sources returns the paths of the kernels to compile, by default of all but the forms for one GPU alone
// (NAME.sm_90.cu), which have no form for the CPU.
func sources(files []string) ([]string, error) {
	if len(files) == 0 {
		packets, err := filepath.Glob(filepath.Join(Sources(), "*.cu"))
		keys, err2 := filepath.Glob(filepath.Join(Sources(), "pubkey", "*.cu"))
		kernels := slices.DeleteFunc(packets, func(file string) bool { return strings.Contains(filepath.Base(file), ".sm_") })
		symmetric, err3 := filepath.Glob(filepath.Join(Sources(), "symmetric", "*.cu"))
		return slices.Concat(kernels, keys, symmetric), errors.Join(err, err2, err3)
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, filepath.Join(Sources(), f))
	}
	return paths, nil
}

// Run runs a kernel over a grid of blocks of threads, with params pointing to the struct that it takes
// and dynamicShared bytes of shared memory for each block. It returns when all threads have ended.
func (l *Library) Run(t testing.TB, kernel string, params unsafe.Pointer, grid, block, dynamicShared int) {
	t.Helper()
	purego.SyscallN(l.run, l.find(t, kernel), uintptr(params), uintptr(grid), uintptr(block), uintptr(dynamicShared))
	runtime.KeepAlive(params)
}

// Start is Run for kernels whose blocks wait for each other or for the host: all blocks run at once, beside
// the caller. The channel is closed when all have ended. What params points to lies outside of the Go
// heap, or is not moved.
func (l *Library) Start(t testing.TB, kernel string, params unsafe.Pointer, grid, block, dynamicShared int) <-chan struct{} {
	t.Helper()
	k, ended := l.find(t, kernel), make(chan struct{})
	go func() {
		purego.SyscallN(l.atOnce, k, uintptr(params), uintptr(grid), uintptr(block), uintptr(dynamicShared))
		runtime.KeepAlive(params)
		close(ended)
	}()
	return ended
}

func (l *Library) find(t testing.TB, kernel string) uintptr {
	t.Helper()
	k, err := purego.Dlsym(l.handle, kernel)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
