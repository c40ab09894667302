package cuda

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Buffer is memory on the device.
type Buffer struct {
	Ptr  Ptr // on a boundary of 256 bytes
	Size int // bytes

	d *Device
	k *resource
}

// Alloc takes size bytes of device memory, which hold anything. The error is ErrOutOfMemory where the
// device has too little. The caller closes the buffer.
func (d *Device) Alloc(size int) (b *Buffer, err error) {
	err = d.do(func() (err error) {
		b, err = d.alloc(size)
		return err
	})
	return b, err
}

// alloc is Alloc, for the owner.
func (d *Device) alloc(size int) (*Buffer, error) {
	p, err := d.lib.memAlloc(size)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of device memory: %w", size, err)
	}
	b := &Buffer{Ptr: p, Size: size, d: d}
	b.k = &resource{free: func() error { return d.lib.memFree(p) }}
	d.track(b.k)
	return b, nil
}

// Close frees the memory. It waits for every kernel that runs on the device, for a persistent one too.
func (b *Buffer) Close() error { return b.d.close(b.k) }

// Block is host memory that the device maps: descriptors, doorbells, results, or what is to be copied.
// Both sides see each other's writes, in the order that release and acquire give them.
type Block struct {
	Mem []byte // page-aligned, outside of the Go heap, zero at first
	Ptr Ptr    // of Mem[0], for the device

	d *Device
	k *resource
}

// AllocHost maps size bytes, rounded up to whole pages. The caller closes the block.
func (d *Device) AllocHost(size int) (b *Block, err error) {
	err = d.do(func() (err error) {
		b, err = d.allocHost(size)
		return err
	})
	return b, err
}

// allocHost is AllocHost, for the owner.
func (d *Device) allocHost(size int) (*Block, error) {
	mem, err := mapMemory(size)
	if err != nil {
		return nil, err
	}
	if err := d.lib.hostRegister(mem, registerPortable|registerDeviceMap); err != nil {
		unmap(mem)
		return nil, err
	}
	at := uintptr(unsafe.Pointer(&mem[0]))
	b := &Block{Mem: mem, d: d}
	b.k = &resource{
		free:  func() error { return d.lib.hostUnregister(at) },
		unmap: func() error { return unix.Munmap(mem) },
	}
	d.track(b.k)
	if b.Ptr, err = d.lib.hostDevicePointer(at); err != nil {
		d.free(b.k)
		return nil, err
	}
	return b, nil
}

// Close unmaps the memory. It must not be used afterwards. It may wait for kernels, as Buffer.Close does.
func (b *Block) Close() error { return b.d.close(b.k) }

// mapMemory maps at least size bytes outside of the Go heap, on whole pages that are there already.
func mapMemory(size int) ([]byte, error) {
	if size < 1 {
		return nil, fmt.Errorf("cuda: map %d bytes", size)
	}
	const page = 4096
	size = (size + page - 1) &^ (page - 1)
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("cuda: map %d bytes: %w", size, err)
	}
	return mem, nil
}

// unmap unmaps what mapMemory has mapped. It fails for a slice that mapMemory did not return.
func unmap(mem []byte) error { return unix.Munmap(mem) }
