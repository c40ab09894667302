package cuda

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpukern/cuda/dl"
)

// symbol numbers a function of the driver.
type symbol int

const (
	cuInit symbol = iota
	cuDriverGetVersion
	cuGetErrorName
	cuGetErrorString
	cuDeviceGet
	cuDeviceGetCount
	cuDeviceGetName
	cuDeviceGetAttribute
	cuDeviceTotalMem
	cuDeviceGetPCIBusId
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostRegister
	cuMemHostUnregister
	cuMemHostGetDevicePointer
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemsetD8Async
	cuStreamCreateWithPriority
	cuStreamDestroy
	cuStreamQuery
	cuStreamWaitEvent
	cuCtxGetStreamPriorityRange
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventQuery
	cuEventElapsedTime
	cuModuleLoadDataEx
	cuModuleUnload
	cuModuleGetFunction
	cuFuncSetAttribute
	cuFuncGetAttribute
	cuLaunchKernel
	cuOccupancyMaxActiveBlocksPerMultiprocessor
	symbols
)

// exports are the names that the driver exports its functions by. Those that were changed bear the
// version of the form that this package calls.
var exports = [symbols]string{
	cuInit:                      "cuInit",
	cuDriverGetVersion:          "cuDriverGetVersion",
	cuGetErrorName:              "cuGetErrorName",
	cuGetErrorString:            "cuGetErrorString",
	cuDeviceGet:                 "cuDeviceGet",
	cuDeviceGetCount:            "cuDeviceGetCount",
	cuDeviceGetName:             "cuDeviceGetName",
	cuDeviceGetAttribute:        "cuDeviceGetAttribute",
	cuDeviceTotalMem:            "cuDeviceTotalMem_v2",
	cuDeviceGetPCIBusId:         "cuDeviceGetPCIBusId",
	cuDevicePrimaryCtxRetain:    "cuDevicePrimaryCtxRetain",
	cuDevicePrimaryCtxRelease:   "cuDevicePrimaryCtxRelease_v2",
	cuCtxSetCurrent:             "cuCtxSetCurrent",
	cuMemGetInfo:                "cuMemGetInfo_v2",
	cuMemAlloc:                  "cuMemAlloc_v2",
	cuMemFree:                   "cuMemFree_v2",
	cuMemHostRegister:           "cuMemHostRegister_v2",
	cuMemHostUnregister:         "cuMemHostUnregister",
	cuMemHostGetDevicePointer:   "cuMemHostGetDevicePointer_v2",
	cuMemcpyHtoDAsync:           "cuMemcpyHtoDAsync_v2",
	cuMemcpyDtoHAsync:           "cuMemcpyDtoHAsync_v2",
	cuMemcpyDtoDAsync:           "cuMemcpyDtoDAsync_v2",
	cuMemsetD8Async:             "cuMemsetD8Async",
	cuStreamCreateWithPriority:  "cuStreamCreateWithPriority",
	cuStreamDestroy:             "cuStreamDestroy_v2",
	cuStreamQuery:               "cuStreamQuery",
	cuStreamWaitEvent:           "cuStreamWaitEvent",
	cuCtxGetStreamPriorityRange: "cuCtxGetStreamPriorityRange",
	cuEventCreate:               "cuEventCreate",
	cuEventDestroy:              "cuEventDestroy_v2",
	cuEventRecord:               "cuEventRecord",
	cuEventQuery:                "cuEventQuery",
	cuEventElapsedTime:          "cuEventElapsedTime",
	cuModuleLoadDataEx:          "cuModuleLoadDataEx",
	cuModuleUnload:              "cuModuleUnload",
	cuModuleGetFunction:         "cuModuleGetFunction",
	cuFuncSetAttribute:          "cuFuncSetAttribute",
	cuFuncGetAttribute:          "cuFuncGetAttribute",
	cuLaunchKernel:              "cuLaunchKernel",
	cuOccupancyMaxActiveBlocksPerMultiprocessor: "cuOccupancyMaxActiveBlocksPerMultiprocessor",
}

func (s symbol) String() string { return exports[s] }

// library is the driver's library, loaded.
type library struct {
	path    string
	fn      [symbols]uintptr
	version int // as cuDriverGetVersion returns it: 12040 is CUDA 12.4
	pinned  pinned
}

// libraries are those that this process has loaded, by path. They stay: the driver does not support
// being unloaded.
var libraries = struct {
	sync.Mutex
	by map[string]*library
}{by: map[string]*library{}}

// defaultLibrary is the name that the driver installs its library under, on every distribution.
const defaultLibrary = "libcuda.so.1"

// openLibrary loads and starts the driver, once in a process.
func openLibrary(path string) (*library, error) {
	libraries.Lock()
	defer libraries.Unlock()
	if l := libraries.by[path]; l != nil {
		return l, nil
	}
	handle, err := dl.Open(path)
	if errors.Is(err, dl.ErrNoLoader) {
		return nil, &Error{Op: "load " + path, Text: ErrNotLinked.Error(), kind: ErrNotLinked, Remedy: notLinkedRemedy}
	}
	if err != nil {
		return nil, &Error{
			Op: "load " + path, Text: err.Error(), kind: ErrNoDriver,
			Remedy: "install the NVIDIA driver, or use the CPU engine",
		}
	}
	l := &library{path: path}
	if err := l.resolve(handle); err != nil {
		return nil, err
	}
	if err := l.start(); err != nil {
		return nil, err
	}
	libraries.by[path] = l
	return l, nil
}

// resolve finds the functions.
func (l *library) resolve(handle uintptr) error {
	for s, name := range exports {
		fn, err := dl.Find(handle, name)
		if err != nil {
			return &Error{
				Op: "load " + l.path, Text: "it has no function " + name, kind: ErrTooOld,
				Remedy: fmt.Sprintf("install a driver for CUDA %s or later", versionText(leastVersion)),
			}
		}
		l.fn[s] = fn
	}
	return nil
}

// leastVersion is the oldest driver that the package accepts.
const leastVersion = 11040

// versionText writes a version as people do.
func versionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// environment sets variables that the driver reads when it starts. With 8 connections, as usual, more streams than
// that share some: a persistent kernel that waits for the end of the one before would hold up all launches
// behind it in the same connection. 32 is the most there are.
var environment = map[string]string{"CUDA_MODULE_LOADING": "EAGER", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}

// start initializes the driver. Kernels are to be loaded with their module, not at their first launch:
// that would wait for a persistent kernel to end.
func (l *library) start() error {
	for name, value := range environment {
		if err := setenv(name, value); err != nil {
			return err
		}
	}
	if c := l.result(cuInit, 0); c != codeSuccess {
		return l.failedStart(c)
	}
	var v int32
	if err := l.call(cuDriverGetVersion, uintptr(unsafe.Pointer(&v))); err != nil {
		return err
	}
	if l.version = int(v); l.version < leastVersion {
		return &Error{
			Op: "open " + l.path, kind: ErrTooOld,
			Text:   fmt.Sprintf("the driver is for CUDA %s, at least %s is needed", versionText(l.version), versionText(leastVersion)),
			Remedy: "install a newer NVIDIA driver",
		}
	}
	return nil
}

// failedStart makes the error of cuInit: a driver that is there and does not work is as good as none.
func (l *library) failedStart(c Code) error {
	err := l.failure("cuInit", c).(*Error)
	if err.kind == nil || err.kind == ErrLost {
		err.kind, err.Remedy = ErrNoDriver, "the driver is installed but does not work: nvidia-smi says why"
	}
	return err
}

// setenv sets a variable where the C library looks, which os.Setenv need not reach.
func setenv(name, value string) error {
	fn, err := dl.Find(0, "setenv")
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	n, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	v, err := unix.BytePtrFromString(value)
	if err != nil {
		return err
	}
	dl.Call(fn, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(v)), 1)
	return nil
}

// call calls a function of the driver. Pointers are converted in the list of arguments, where the
// compiler sees that what they point to must stay.
//
//go:uintptrescapes
func (l *library) call(s symbol, args ...uintptr) error {
	if c := l.result(s, args...); c != codeSuccess {
		return l.failure(exports[s], c)
	}
	return nil
}

// result is call for callers that look at the result themselves.
//
//go:uintptrescapes
func (l *library) result(s symbol, args ...uintptr) Code {
	return Code(uint32(dl.Call(l.fn[s], args...)))
}

// describe returns the driver's name and text of a result.
func (l *library) describe(c Code) (name, text string) {
	var n, t *byte
	if l.result(cuGetErrorName, uintptr(c), uintptr(unsafe.Pointer(&n))) != codeSuccess || n == nil {
		return "unknown result", ""
	}
	l.result(cuGetErrorString, uintptr(c), uintptr(unsafe.Pointer(&t)))
	return unix.BytePtrToString(n), unix.BytePtrToString(t)
}
