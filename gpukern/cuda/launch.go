package cuda

import (
	"fmt"
	"unsafe"
)

// Grid is the shape of a launch.
type Grid struct {
	Blocks  int
	Threads int // of a block
	Shared  int // bytes of dynamic shared memory of a block
}

// Kernel is a function that the device runs.
type Kernel struct {
	Name      string
	Form      string // the module that it came from: "headers", or "headers.sm_90"
	Threads   int    // the most that a block may have
	Registers int    // of a thread
	Local     int    // bytes of local memory of a thread: spills and arrays
	Shared    int    // bytes of shared memory that the source itself asks for

	d     *Device
	fn    function
	bytes int // of the struct that it takes
	most  int // dynamic shared memory that was asked for so far
}

// Kernel finds a kernel by its name.
func (d *Device) Kernel(name string) (*Kernel, error) {
	if k, ok := d.kernels.Load(name); ok {
		return k.(*Kernel), nil
	}
	return nil, &Error{Op: "find kernel " + name, Text: "no module has it"}
}

// sharedByDefault is the dynamic shared memory that a kernel may have without asking.
const sharedByDefault = 48 << 10

// Resident returns how many blocks of k the whole device runs at once: no more may wait for each other.
func (k *Kernel) Resident(threads, shared int) (n int, err error) {
	err = k.d.do(func() error {
		if err := k.allow(shared); err != nil {
			return err
		}
		n, err = k.d.lib.occupancy(k.fn, threads, shared)
		n *= k.d.info.SMs
		return err
	})
	return n, err
}

// allow asks for n bytes of dynamic shared memory. For the owner.
func (k *Kernel) allow(n int) error {
	if n <= k.most {
		return nil
	}
	if err := k.d.lib.funcSetAttribute(k.fn, funcDynamicShared, n); err != nil {
		return fmt.Errorf("%s with %d bytes of shared memory: %w", k.Name, n, err)
	}
	k.most = n
	return nil
}

// parameters is a page outside of the Go heap from which the driver reads the parameters of a launch. The
// owner alone uses it: one launch at a time.
//
//	[0]   five words: BUFFER_POINTER, its address, BUFFER_SIZE, the address of the size, END
//	[64]  the size
//	[128] the struct that the kernel takes
type parameters struct{ mem []byte }

// Where things lie in parameters, and what its words say.
const (
	paramSizeAt   = 64
	paramAt       = 128
	paramMost     = 4096 - paramAt
	paramEnd      = 0 // CU_LAUNCH_PARAM_END
	paramPointer  = 1 // CU_LAUNCH_PARAM_BUFFER_POINTER
	paramSizeWord = 2 // CU_LAUNCH_PARAM_BUFFER_SIZE
)

func newParameters() (*parameters, error) {
	mem, err := mapMemory(4096)
	if err != nil {
		return nil, err
	}
	p := &parameters{mem}
	base := uintptr(unsafe.Pointer(&mem[0]))
	*(*[5]uintptr)(unsafe.Pointer(&mem[0])) = [5]uintptr{paramPointer, base + paramAt, paramSizeWord, base + paramSizeAt, paramEnd}
	return p, nil
}

// extra puts params in place and returns what a launch takes.
func (p *parameters) extra(params []byte) uintptr {
	*(*uintptr)(unsafe.Pointer(&p.mem[paramSizeAt])) = uintptr(len(params))
	copy(p.mem[paramAt:], params)
	return uintptr(unsafe.Pointer(&p.mem[0]))
}

func (p *parameters) close() error { return unmap(p.mem) }

// Launch runs k on the stream. params points to the struct that k takes, laid out as in C; it is copied
// before Launch returns and holds addresses of the device only.
func Launch[P any](s *Stream, k *Kernel, g Grid, params *P) error {
	return s.d.do(func() error { return s.launch(k, g, bytesOf(params)) })
}

// launch is Launch, for the owner.
func (s *Stream) launch(k *Kernel, g Grid, params []byte) error {
	if len(params) != k.bytes {
		return &Error{Op: "launch " + k.Name, Text: fmt.Sprintf("%d bytes of parameters, it takes %d", len(params), k.bytes)}
	}
	if g.Shared > 0 {
		if err := k.allow(g.Shared); err != nil {
			return err
		}
	}
	if err := s.d.lib.launch(k.fn, g, s.id, s.d.params.extra(params)); err != nil {
		return fmt.Errorf("launch %s: %w", k.Name, err)
	}
	return nil
}

// bytesOf borrows the memory of a struct without pointers.
func bytesOf[P any](p *P) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))
}

// Recorder puts kernels on a stream, for the owner: what HeaderPass and Search launch goes by it.
type Recorder struct{ s *Stream }

// Record puts a launch on the stream of r.
func Record[P any](r *Recorder, k *Kernel, g Grid, params *P) error {
	return r.s.launch(k, g, bytesOf(params))
}
