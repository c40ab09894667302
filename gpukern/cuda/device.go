package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Options say which GPU to open.
type Options struct {
	Ordinal int // the GPU's number as CUDA counts, from 0

	// Library and Management are the paths of the driver's libraries, for tests; empty is libcuda.so.1
	// and libnvidia-ml.so.1, as the loader finds them.
	Library    string
	Management string

	// Patience is that of engines whose Config has none; 0 is 1 s. A driver that runs kernels on a busy CPU needs more.
	Patience time.Duration

	// Fault gives the device up when it is closed, as if it had stopped: for tests of what goes on without it. nil is
	// never.
	Fault <-chan struct{}
}

// Info describes a device.
type Info struct {
	Name       string // of the GPU
	Bus        string // its PCI address
	Driver     string // the CUDA version that the driver is for: "12.4"
	Capability int    // compute capability, times ten: 90
	SMs        int    // multiprocessors
	Memory     uint64 // bytes
	L2         int    // bytes of second-level cache
	SharedSM   int    // bytes of shared memory of a multiprocessor
	Shared     int    // the most of them that one block may have
	Modules    []ModuleInfo
}

// job is work for the owner of a context.
type job struct {
	f    func() error
	done chan error
}

// Device is a GPU with its context and the kernels. Its methods may be called from any goroutine; they
// do not return before the driver has taken the call.
type Device struct {
	lib     *library
	dev     int32
	ctx     context
	info    Info
	kernels sync.Map      // of *Kernel, by name
	wait    time.Duration // Options.Patience
	params  *parameters
	power   *power
	stage   stage

	jobs   chan job
	ended  chan struct{} // closed when the owner has ended
	once   sync.Once
	closed error                 // what Close returned
	lost   atomic.Pointer[Error] // the result that ended the context

	// Of the owner alone.
	over      bool           // after this job the owner ends
	resources []*resource    // what was made and is not closed, in that order
	unmaps    []func() error // host memory to unmap once the context is gone
}

// Open opens a GPU: it takes hold of the GPU's primary context and loads every kernel. The caller closes
// the device. Errors are of the kinds ErrNoDriver, ErrNoDevice, ErrTooOld and ErrOutOfMemory.
func Open(o Options) (*Device, error) {
	if o.Library == "" {
		o.Library = defaultLibrary
	}
	lib, err := openLibrary(o.Library)
	if err != nil {
		return nil, err
	}
	d := &Device{lib: lib, jobs: make(chan job), ended: make(chan struct{}), wait: o.Patience}
	if err := d.describe(o.Ordinal); err != nil {
		return nil, err
	}
	d.power = openPower(o.Management, d.info.Bus)
	go d.runOwner()
	if o.Fault != nil {
		go d.awaitFault(o.Fault)
	}
	if err := d.do(d.begin); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// awaitFault gives the device up at the end of fault.
func (d *Device) awaitFault(fault <-chan struct{}) {
	select {
	case <-fault:
		d.markLost(&Error{Op: "serve batches", Text: "a test has given the device up", kind: ErrLost})
	case <-d.ended:
	}
}

// describe reads what the GPU is and refuses one that cannot run the kernels.
func (d *Device) describe(ordinal int) (err error) {
	n, err := d.lib.deviceCount()
	if err != nil {
		return err
	}
	if ordinal < 0 || ordinal >= n {
		return &Error{
			Op: fmt.Sprintf("open device %d", ordinal), kind: ErrNoDevice,
			Text: fmt.Sprintf("the driver shows %d", n), Remedy: remedies[codeInvalidDevice],
		}
	}
	if d.dev, err = d.lib.device(ordinal); err != nil {
		return err
	}
	if err := d.identify(); err != nil {
		return err
	}
	if d.info.Capability < leastCapability {
		return &Error{
			Op: "open " + d.info.Name, kind: ErrTooOld, Remedy: remedies[codeNoBinaryForGPU],
			Text: fmt.Sprintf("its compute capability is %.1f", float64(d.info.Capability)/10),
		}
	}
	return nil
}

// leastCapability is that of the kernels' common form, sm_80.
const leastCapability = 80

func (d *Device) identify() error {
	var err error
	d.info.Driver = versionText(d.lib.version)
	if d.info.Name, err = d.lib.deviceName(d.dev); err != nil {
		return err
	}
	if d.info.Bus, err = d.lib.busID(d.dev); err != nil {
		return err
	}
	if d.info.Memory, err = d.lib.totalMem(d.dev); err != nil {
		return err
	}
	var major, minor int
	for _, a := range []struct {
		a  attribute
		to *int
	}{
		{attrMajor, &major},
		{attrMinor, &minor},
		{attrMultiprocessors, &d.info.SMs},
		{attrL2Size, &d.info.L2},
		{attrSharedPerSM, &d.info.SharedSM},
		{attrSharedOptin, &d.info.Shared},
	} {
		if *a.to, err = d.lib.attribute(d.dev, a.a); err != nil {
			return err
		}
	}
	d.info.Capability = 10*major + minor
	return nil
}

// Info describes the device.
func (d *Device) Info() Info { return d.info }

// runOwner runs the owner of the context.
func (d *Device) runOwner() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(d.ended)
	for !d.over {
		j := <-d.jobs
		j.done <- d.noteLost(j.f())
	}
}

// done are the channels that callers of do wait on.
var done = sync.Pool{New: func() any { return make(chan error, 1) }}

// do has the owner run f and returns what f returned. f must not call do: it calls d.lib and the
// functions whose comments say that they are for the owner.
func (d *Device) do(f func() error) error {
	c := done.Get().(chan error)
	defer done.Put(c)
	select {
	case <-d.ended:
		return ErrClosed
	default:
	}
	select {
	case d.jobs <- job{f, c}:
		return <-c
	case <-d.ended:
		return ErrClosed
	}
}

// noteLost remembers a result that ended the context.
func (d *Device) noteLost(err error) error {
	var e *Error
	if err != nil && errors.As(err, &e) && e.Code.lost() {
		d.lost.CompareAndSwap(nil, e)
	}
	return err
}

// Lost returns the error that ended the device's context, or nil. Such a device does nothing more but
// Close.
func (d *Device) Lost() error {
	if e := d.lost.Load(); e != nil {
		return e
	}
	return nil
}

// begin makes the owner's thread one of the context and loads the kernels.
func (d *Device) begin() (err error) {
	if d.ctx, err = d.lib.retain(d.dev); err != nil {
		return err
	}
	if err := d.lib.setCurrent(d.ctx); err != nil {
		return err
	}
	if d.params, err = newParameters(); err != nil {
		return err
	}
	d.track(&resource{unmap: d.params.close})
	if err := d.stage.open(d); err != nil {
		return err
	}
	return d.loadModules()
}

// Free returns the bytes of device memory that are free.
func (d *Device) Free() (free uint64, err error) {
	err = d.do(func() (err error) {
		free, _, err = d.lib.memInfo()
		return err
	})
	return free, err
}

// Close releases everything that was made with the device, the last first, and the context. No kernel
// may run any more but those that end by themselves. Closing twice does nothing more.
func (d *Device) Close() error {
	d.once.Do(func() {
		d.closed = d.do(d.end)
		<-d.ended
	})
	return d.closed
}

// end is Close, for the owner.
func (d *Device) end() error {
	d.over = true
	errs := []error{d.freeAll()}
	if d.ctx != 0 {
		unset := d.lib.setCurrent(0) // the thread may serve others
		if err := d.lib.release(d.dev); d.Lost() == nil {
			errs = append(errs, unset, err)
		}
	}
	for _, f := range d.unmaps {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
