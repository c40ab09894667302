package vring

import (
	"sync/atomic"
	"unsafe"
)

// load16 loads two bytes with acquire order. Go has no atomics of 16 bits, so it loads the aligned word around them, which
// never leaves the page.
func load16(p unsafe.Pointer) uint16 {
	low := uintptr(p) & 2
	return uint16(load32(unsafe.Add(p, -int(low))) >> (8 * low))
}

func load32(p unsafe.Pointer) uint32     { return atomic.LoadUint32((*uint32)(p)) }
func store32(p unsafe.Pointer, v uint32) { atomic.StoreUint32((*uint32)(p), v) }

// replace16 replaces two bytes at an address aligned to four, which have the value old, and is a full barrier. What
// follows them may be memory that is not of the ring, so it adds the difference: only where the guest has changed the
// bytes itself does more change than those.
func replace16(p unsafe.Pointer, old, to uint16) {
	atomic.AddUint32((*uint32)(p), uint32(to)-uint32(old))
}

// descriptor has the fields of a descriptor of either form of ring.
type descriptor struct {
	addr   uint64
	length uint32
	low    uint16 // split: flags; packed: buffer ID
	high   uint16 // split: next; packed: flags
}

// Flags of descriptors (virtio 1.2, 2.7.5 and 2.8.1).
const (
	flagNext     = 1
	flagWrite    = 2
	flagIndirect = 4
	flagAvail    = 1 << 7
	flagUsed     = 1 << 15
)

const descSize = 16

func loadDescriptor(p unsafe.Pointer) descriptor {
	w := *(*uint64)(at(p, 8))
	return descriptor{addr: *(*uint64)(p), length: uint32(w), low: uint16(w >> 32), high: uint16(w >> 48)}
}

func storeDescriptor(p unsafe.Pointer, addr uint64, length uint32, low, high uint16) {
	*(*uint64)(p) = addr
	*(*uint64)(at(p, 8)) = uint64(length) | uint64(low)<<32 | uint64(high)<<48
}

// needEvent reports whether an event index lies in (old, to], as virtio 1.2, 2.7.7.1 defines it.
func needEvent(event, to, old uint16) bool { return to-event-1 < to-old }

// Values of the flags that suppress notifications. Split rings have bits (2.7.7, 2.7.10), packed ones kinds (2.8.10).
const (
	splitQuiet = 1

	packedAlways = 0
	packedNever  = 1
	packedAt     = 2 // at the event index
)
