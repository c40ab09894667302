package cuda

import "unsafe"

// Ptr is an address as the device sees it.
type Ptr uint64

// Handles of the driver. 0 is none.
type (
	context  uintptr
	module   uintptr
	function uintptr
	streamID uintptr
	eventID  uintptr
)

// attribute is a CUdevice_attribute.
type attribute int

const (
	attrMultiprocessors attribute = 16
	attrL2Size          attribute = 38
	attrMajor           attribute = 75
	attrMinor           attribute = 76
	attrSharedPerSM     attribute = 81
	attrSharedOptin     attribute = 97 // the most that one block may ask for
)

// Flags of calls.
const (
	registerPortable  = 1 << 0
	registerDeviceMap = 1 << 1
	streamNonBlocking = 1 << 0 // does not wait for the default stream, nor that for it
	eventPlain        = 0
)

func (l *library) deviceCount() (n int, err error) {
	var v int32
	err = l.call(cuDeviceGetCount, uintptr(unsafe.Pointer(&v)))
	return int(v), err
}

func (l *library) device(ordinal int) (dev int32, err error) {
	err = l.call(cuDeviceGet, uintptr(unsafe.Pointer(&dev)), uintptr(ordinal))
	return dev, err
}

func (l *library) deviceName(dev int32) (string, error) {
	var b [256]byte
	err := l.call(cuDeviceGetName, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(dev))
	return text(b[:]), err
}

func (l *library) busID(dev int32) (string, error) {
	var b [32]byte
	err := l.call(cuDeviceGetPCIBusId, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(dev))
	return text(b[:]), err
}

func (l *library) totalMem(dev int32) (n uint64, err error) {
	err = l.call(cuDeviceTotalMem, uintptr(unsafe.Pointer(&n)), uintptr(dev))
	return n, err
}

func (l *library) attribute(dev int32, a attribute) (int, error) {
	var v int32
	err := l.call(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(dev))
	return int(v), err
}

func (l *library) retain(dev int32) (c context, err error) {
	err = l.call(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&c)), uintptr(dev))
	return c, err
}

func (l *library) release(dev int32) error { return l.call(cuDevicePrimaryCtxRelease, uintptr(dev)) }

func (l *library) setCurrent(c context) error { return l.call(cuCtxSetCurrent, uintptr(c)) }

func (l *library) memInfo() (free, total uint64, err error) {
	err = l.call(cuMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	return free, total, err
}

func (l *library) memAlloc(n int) (p Ptr, err error) {
	err = l.call(cuMemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n))
	return p, err
}

func (l *library) memFree(p Ptr) error { return l.call(cuMemFree, uintptr(p)) }

// hostRegister pins memory outside of the Go heap; the driver keeps its address.
func (l *library) hostRegister(mem []byte, flags uint) error {
	return l.call(cuMemHostRegister, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(flags))
}

func (l *library) hostUnregister(at uintptr) error { return l.call(cuMemHostUnregister, at) }

func (l *library) hostDevicePointer(at uintptr) (p Ptr, err error) {
	err = l.call(cuMemHostGetDevicePointer, uintptr(unsafe.Pointer(&p)), at, 0)
	return p, err
}

func (l *library) copyIn(to Ptr, from uintptr, n int, s streamID) error {
	return l.call(cuMemcpyHtoDAsync, uintptr(to), from, uintptr(n), uintptr(s))
}

func (l *library) copyOut(to uintptr, from Ptr, n int, s streamID) error {
	return l.call(cuMemcpyDtoHAsync, to, uintptr(from), uintptr(n), uintptr(s))
}

func (l *library) copyWithin(to, from Ptr, n int, s streamID) error {
	return l.call(cuMemcpyDtoDAsync, uintptr(to), uintptr(from), uintptr(n), uintptr(s))
}

func (l *library) fill(to Ptr, v byte, n int, s streamID) error {
	return l.call(cuMemsetD8Async, uintptr(to), uintptr(v), uintptr(n), uintptr(s))
}

// priorities returns the least and the greatest priority of streams; greater ones are smaller numbers.
func (l *library) priorities() (least, greatest int, err error) {
	var lo, hi int32
	err = l.call(cuCtxGetStreamPriorityRange, uintptr(unsafe.Pointer(&lo)), uintptr(unsafe.Pointer(&hi)))
	return int(lo), int(hi), err
}

func (l *library) streamCreate(priority int) (s streamID, err error) {
	err = l.call(cuStreamCreateWithPriority, uintptr(unsafe.Pointer(&s)), streamNonBlocking, uintptr(priority))
	return s, err
}

func (l *library) streamDestroy(s streamID) error { return l.call(cuStreamDestroy, uintptr(s)) }

// ready returns what the result of a query says.
func (l *library) ready(s symbol, handle uintptr) (bool, error) {
	switch c := l.result(s, handle); c {
	case codeSuccess:
		return true, nil
	case codeNotReady:
		return false, nil
	default:
		return false, l.failure(exports[s], c)
	}
}

func (l *library) streamQuery(s streamID) (bool, error) { return l.ready(cuStreamQuery, uintptr(s)) }

// streamWait has what comes after on s wait for e.
func (l *library) streamWait(s streamID, e eventID) error {
	return l.call(cuStreamWaitEvent, uintptr(s), uintptr(e), 0)
}

func (l *library) eventCreate(flags uint) (e eventID, err error) {
	err = l.call(cuEventCreate, uintptr(unsafe.Pointer(&e)), uintptr(flags))
	return e, err
}

func (l *library) eventDestroy(e eventID) error { return l.call(cuEventDestroy, uintptr(e)) }

func (l *library) eventRecord(e eventID, s streamID) error {
	return l.call(cuEventRecord, uintptr(e), uintptr(s))
}

func (l *library) eventQuery(e eventID) (bool, error) { return l.ready(cuEventQuery, uintptr(e)) }

// eventElapsed returns the milliseconds between two events that have happened, to half a microsecond.
func (l *library) eventElapsed(from, to eventID) (ms float32, err error) {
	err = l.call(cuEventElapsedTime, uintptr(unsafe.Pointer(&ms)), uintptr(from), uintptr(to))
	return ms, err
}

func (l *library) moduleUnload(m module) error { return l.call(cuModuleUnload, uintptr(m)) }

// moduleFunction finds a kernel; name ends in a zero.
func (l *library) moduleFunction(m module, name []byte) (f function, err error) {
	err = l.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&name[0])))
	return f, err
}

// Attributes of functions (CUfunction_attribute).
const (
	funcThreads       = 0 // the most that a block may have
	funcShared        = 1 // bytes of shared memory that the source asks for
	funcLocal         = 3 // bytes of local memory of a thread: spills and arrays
	funcRegisters     = 4
	funcDynamicShared = 8 // the most that a launch may add
)

func (l *library) funcAttribute(f function, a int) (int, error) {
	var v int32
	err := l.call(cuFuncGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(f))
	return int(v), err
}

func (l *library) funcSetAttribute(f function, a, v int) error {
	return l.call(cuFuncSetAttribute, uintptr(f), uintptr(a), uintptr(v))
}

// occupancy returns how many blocks of f one multiprocessor runs at once.
func (l *library) occupancy(f function, threads, dynamicShared int) (int, error) {
	var v int32
	err := l.call(cuOccupancyMaxActiveBlocksPerMultiprocessor, uintptr(unsafe.Pointer(&v)), uintptr(f),
		uintptr(threads), uintptr(dynamicShared))
	return int(v), err
}

// launch runs f; extra leads to the parameters, outside of the Go heap (parameters.extra). The driver has
// copied them when launch returns.
func (l *library) launch(f function, g Grid, s streamID, extra uintptr) error {
	return l.call(cuLaunchKernel, uintptr(f), uintptr(g.Blocks), 1, 1, uintptr(g.Threads), 1, 1,
		uintptr(g.Shared), uintptr(s), 0, extra)
}

// text returns the string up to the first zero.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
