// Package loader links a program with what loads NVIDIA's driver, and with the kernels, so that its engines can use a GPU:
//
//	import _ "github.com/millrace/millrace/gpukern/cuda/loader"
//
// Such a program is linked dynamically, also without cgo, and needs the C library of the machine. Without this import the engine
// "cuda" is an error (cuda.ErrNotLinked), and "auto" is the CPU.
package loader

import (
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/millrace/millrace/gpukern/cuda/dl"
	"github.com/millrace/millrace/gpukern/cuda/ptx"
	pubkey "github.com/millrace/millrace/gpukern/cuda/pubkey/ptx"
	symmetric "github.com/millrace/millrace/gpukern/cuda/symmetric/ptx"
)

func init() {
	dl.RegisterKernels("cuda", ptx.Files)
	dl.RegisterKernels("pubkey", pubkey.Files)
	dl.RegisterKernels("symmetric", symmetric.Files)
	dl.Register(dl.Loader{
		Open: func(path string) (uintptr, error) { return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL) },
		Find: func(handle uintptr, name string) (uintptr, error) {
			if handle == 0 {
				handle = purego.RTLD_DEFAULT
			}
			return purego.Dlsym(handle, name)
		},
		Call: func(fn uintptr, n int, args [dl.MostArgs]uintptr) uintptr {
			r, _, _ := purego.SyscallN(fn, args[:n]...)
			return r
		},
		CallBlock: func(fn uintptr, block unsafe.Pointer) { cgocall(fn, block) },
	})
}

// cgocall calls a function of C with one argument, on a stack of C's. It is what purego ends in as well, behind a list of 32 arguments and
// eight floating-point ones. Package runtime keeps it for such uses ("hall of shame"), and purego provides what it needs without cgo.
//
//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn uintptr, arg unsafe.Pointer) int32
