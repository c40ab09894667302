package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"
)

// Region is memory of another owner that the device reads and writes in place, such as a ring.Arena.
type Region struct {
	Mem []byte
	Ptr Ptr // of Mem[0], for the device

	d *Device
	k *resource
}

// pinned are the spans of memory that are registered in this process. The driver registers memory once
// for all devices and refuses to do so again; several engines may share an arena.
type pinned struct {
	sync.Mutex
	spans []*span
}

// span is registered memory.
type span struct {
	at   uintptr
	n    uintptr
	refs int
	ctx  context // that it was registered in, which is held as long as the span is
	dev  int32
	// foreign spans were registered by another user of CUDA in this process, who also unregisters them.
	foreign bool
	// unregistered spans only have their context left to release, because the driver refused that before.
	unregistered bool
}

func (s *span) covers(at, n uintptr) bool   { return at >= s.at && at+n <= s.at+s.n }
func (s *span) overlaps(at, n uintptr) bool { return at < s.at+s.n && s.at < at+n }

// Register lets the device use mem, which lies outside of the Go heap and stays mapped until the region
// is closed: an arena's Mem, for one. Memory that is registered already, whole or as part of more, is
// shared; the error is ErrOverlap where only a part of it is.
func (d *Device) Register(mem []byte) (r *Region, err error) {
	if len(mem) == 0 {
		return nil, fmt.Errorf("cuda: register no memory")
	}
	err = d.do(func() (err error) {
		r, err = d.register(mem)
		return err
	})
	return r, err
}

// register is Register, for the owner.
func (d *Device) register(mem []byte) (*Region, error) {
	p := &d.lib.pinned
	p.Lock()
	defer p.Unlock()
	s, err := d.pin(mem)
	if err != nil {
		return nil, err
	}
	at := uintptr(unsafe.Pointer(&mem[0]))
	ptr, err := d.lib.hostDevicePointer(at)
	if err != nil {
		d.unpin(s, true)
		return nil, err
	}
	r := &Region{Mem: mem, Ptr: ptr, d: d}
	r.k = &resource{
		free: func() error { return d.unpinLocked(s, true) },
		lost: func() error { return d.unpinLocked(s, false) },
	}
	d.track(r.k)
	return r, nil
}

// pin finds or makes the span that covers mem and counts one more user of it.
func (d *Device) pin(mem []byte) (*span, error) {
	at, n := uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem))
	for _, s := range d.lib.pinned.spans {
		switch {
		case s.covers(at, n):
			s.refs++
			return s, nil
		case s.overlaps(at, n):
			return nil, &Error{
				Op: "register memory", kind: ErrOverlap,
				Text: fmt.Sprintf("%d bytes at %#x overlap %d bytes at %#x", n, at, s.n, s.at),
			}
		}
	}
	return d.pinNew(mem, at, n)
}

// pinNew registers a span, or finds that another user in this process has registered it.
func (d *Device) pinNew(mem []byte, at, n uintptr) (*span, error) {
	ctx, err := d.lib.retain(d.dev)
	if err != nil {
		return nil, err
	}
	s := &span{at: at, n: n, refs: 1, ctx: ctx, dev: d.dev}
	err = d.lib.hostRegister(mem, registerPortable|registerDeviceMap)
	if isCode(err, codeRegistered) {
		if s.foreign = d.mapped(at, n); s.foreign {
			err = nil
		} else {
			err = &Error{
				Op: "register memory", kind: ErrOverlap,
				Text: fmt.Sprintf("another user of CUDA in this process registered a part of %d bytes at %#x", n, at),
			}
		}
	}
	if err != nil {
		d.lib.release(d.dev)
		return nil, err
	}
	d.lib.pinned.spans = append(d.lib.pinned.spans, s)
	return s, nil
}

// mapped reports whether the device has every page of the n bytes at at, in one piece.
func (d *Device) mapped(at, n uintptr) bool {
	first, err := d.lib.hostDevicePointer(at)
	if err != nil {
		return false
	}
	for off := uintptr(0); ; off = min(off+4096, n-1) {
		if p, err := d.lib.hostDevicePointer(at + off); err != nil || p != first+Ptr(off) {
			return false
		}
		if off == n-1 {
			return true
		}
	}
}

// unpin ends one use of s; the last one unregisters it, in the context that registered it. Where the driver
// refuses that, the use goes on.
func (d *Device) unpin(s *span, alive bool) error {
	if s.refs > 1 {
		s.refs--
		return nil
	}
	if !s.foreign && !s.unregistered && alive {
		if err := d.unregister(s); err != nil {
			return err
		}
		s.unregistered = true
	}
	p := &d.lib.pinned
	p.spans = slices.DeleteFunc(p.spans, func(o *span) bool { return o == s })
	return d.lib.release(s.dev)
}

func (d *Device) unregister(s *span) error {
	if s.ctx == d.ctx {
		return d.lib.hostUnregister(s.at)
	}
	if err := d.lib.setCurrent(s.ctx); err != nil {
		return err
	}
	return errors.Join(d.lib.hostUnregister(s.at), d.lib.setCurrent(d.ctx))
}

// unpinLocked is unpin for who does not hold the lock.
func (d *Device) unpinLocked(s *span, alive bool) error {
	d.lib.pinned.Lock()
	defer d.lib.pinned.Unlock()
	return d.unpin(s, alive)
}

// Close ends the use of the memory, which may be unmapped then unless others still use it. It may wait
// for kernels, as Buffer.Close does.
func (r *Region) Close() error { return r.d.close(r.k) }
