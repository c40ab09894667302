// Package dl loads shared libraries and calls their functions, in programs that are linked with a loader. Package gpukern/cuda/loader
// registers one. A loader needs the C library's dynamic linker, so that a program with one does not run where that is missing: on
// musl, or in an image with nothing else. Programs without it are static.
package dl

import (
	"errors"
	"io/fs"
	"unsafe"
)

// ErrNoLoader reports that the program is linked without a loader.
var ErrNoLoader = errors.New("the program is linked without a loader of shared libraries")

// MostArgs is the number of arguments that a call may have.
const MostArgs = 15

// Loader loads libraries.
type Loader struct {
	Open func(path string) (handle uintptr, err error)
	// Find finds a function in a library, or with handle 0 in those that the process has loaded.
	Find func(handle uintptr, name string) (fn uintptr, err error)
	// Call calls a function with the first n arguments. They come by value: behind a variable, a slice of them would be allocated.
	Call func(fn uintptr, n int, args [MostArgs]uintptr) uintptr
	// CallBlock calls a function whose one argument is a pointer.
	CallBlock func(fn uintptr, block unsafe.Pointer)
}

// loader is set by init functions alone, and read after them.
var loader *Loader

// Register makes l the loader of the program. Only init functions may call it.
func Register(l Loader) { loader = &l }

// kernels are those that the loader brings, by the names of their packages. Programs without a loader do without them.
var kernels = map[string]fs.FS{}

// RegisterKernels makes files, PTX, the kernels of a package. Only init functions may call it.
func RegisterKernels(name string, files fs.FS) { kernels[name] = files }

// Kernels returns the kernels of a package; nil without a loader.
func Kernels(name string) fs.FS { return kernels[name] }

// Linked reports whether the program has a loader.
func Linked() bool { return loader != nil }

// Open loads a library; its initializers run.
func Open(path string) (handle uintptr, err error) {
	if loader == nil {
		return 0, ErrNoLoader
	}
	return loader.Open(path)
}

// Find returns the address of a function in a library that Open has loaded, or with handle 0 in any.
func Find(handle uintptr, name string) (fn uintptr, err error) {
	if loader == nil {
		return 0, ErrNoLoader
	}
	return loader.Find(handle, name)
}

// Call calls a function that Find has found, and returns its result. What pointers among the arguments point to stays where it is
// until Call returns, if they are converted in the list of arguments.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) uintptr {
	var all [MostArgs]uintptr
	return loader.Call(fn, copy(all[:], args), all)
}

// CallBlock calls a function, void fn(struct block *), that Find has found: nothing is allocated, and no argument but one is copied, so
// that it costs a third of Call. Arguments and results are in the block, which the caller keeps on the heap, with what its pointers
// point to.
func CallBlock(fn uintptr, block unsafe.Pointer) { loader.CallBlock(fn, block) }
